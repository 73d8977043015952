"""Recorded types correct what was inferred of parameters."""

from __future__ import annotations

import pytest

from pytest_dispatchguard.lint.kinds.kinds import (
    MODULE,
    NESTED,
    SCALAR,
    TENSOR,
    TEXT,
    UNKNOWN,
    Kind,
)
from pytest_dispatchguard.lint.kinds.recorded_types import with_recorded_types


@pytest.mark.parametrize(
    ("kind", "types", "expected"),
    [
        (TENSOR.maybe(), ["tensor"], TENSOR),
        (UNKNOWN, ["tensor"], TENSOR),
        (UNKNOWN, ["NoneType", "tensor"], Kind("tensor", optional=True)),
        (UNKNOWN, ["int", "tensor"], UNKNOWN),
        (TENSOR.maybe(), ["float"], SCALAR),
        (TENSOR, ["float", "int"], TENSOR.maybe()),
        (TENSOR, ["NoneType"], TENSOR),
        (TENSOR.maybe(), ["numpy.ndarray"], TENSOR.maybe()),
        (TENSOR.maybe(), ["numpy.ndarray", "tensor"], TENSOR.maybe()),
        (UNKNOWN, ["str"], TEXT),
        (UNKNOWN, ["module"], MODULE),
        (UNKNOWN, ["list", "dict"], NESTED),
        (UNKNOWN, ["int", "str"], UNKNOWN),
        (SCALAR, ["tensor"], SCALAR),
        (UNKNOWN, [], UNKNOWN),
    ],
)
def test_recorded_types_decide_what_is_open(kind: Kind, types: list[str], expected: Kind) -> None:
    assert with_recorded_types(kind, types) == expected
