"""The kinds of attributes and globals, from the values that the scout noted for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from pytest_dispatchguard.lint.facts import CPU, DEFAULT, Value
from pytest_dispatchguard.lint.kinds.annotations import annotation_kind
from pytest_dispatchguard.lint.kinds.classes import is_tensor_class
from pytest_dispatchguard.lint.kinds.functions import function_kind
from pytest_dispatchguard.lint.kinds.kinds import (
    DICT,
    FUNCTION,
    NESTED,
    NONE,
    SCALAR,
    TENSOR,
    TEXT,
    UNKNOWN,
    Kind,
    join,
)

_OF_DATA = frozenset({"torch.as_tensor", "torch.asarray"})
"""They make tensors of Python's numbers as a rule, on the CPU."""


@lru_cache(maxsize=4096)
def value_kind(value: Value, tensor_types: tuple[str, ...] = ()) -> Kind:
    """The kind of what a fact's value word stands for."""
    head, _, rest = value.partition(":")
    if head == "call":
        if is_tensor_class(rest, tensor_types):
            return Kind("tensor")
        kind = function_kind(rest, (), {}, {})
        if kind is not None:
            # An attribute may be moved later: a tensor in it is not known to stay on the CPU.
            if kind.what != "tensor":
                return kind
            roaming = kind.host or rest in _OF_DATA
            return replace(kind, host=False, roaming=roaming, built=False)
        return Kind("unknown", cls=rest)
    if head == "ann":
        return annotation_kind(rest, tensor_types)
    simple: dict[str, Kind] = {
        "param": TENSOR,
        "buffer": TENSOR,
        "tensor": TENSOR,
        "built": replace(TENSOR, roaming=True),
        "int": Kind("scalar", dtype="int"),
        "float": Kind("scalar", dtype="float"),
        "bool": Kind("scalar", dtype="bool"),
        "number": SCALAR,
        "str": TEXT,
        "none": NONE,
        "tuple": NESTED,
        "list": NESTED,
        "dict": DICT,
        "function": FUNCTION,
    }
    return simple.get(head, UNKNOWN)


def values_kind(values: Sequence[Value], tensor_types: tuple[str, ...] = ()) -> Kind:
    """The kind of a name that is assigned several values."""
    values = [value for value in values if not value.startswith((DEFAULT, "item:"))]
    if CPU in values:
        kind = values_kind([value for value in values if value != CPU], tensor_types)
        return replace(kind, host=True, roaming=False) if kind.roaming else kind
    promised = [v for v in values if v.startswith("ann:") and value_kind(v, tensor_types).is_tensor]
    if promised:
        values = [*promised, *(v for v in values if v == "none")]
    if not values:
        return UNKNOWN
    out = value_kind(values[0], tensor_types)
    for value in values[1:]:
        out = join(out, value_kind(value, tensor_types))
    if out.roaming and not {"param", "buffer"}.isdisjoint(values):
        return replace(out, roaming=False)  # goes where its module goes
    return out


def field_kind(values: Sequence[Value], tensor_types: tuple[str, ...] = ()) -> Kind:
    """The kind of a field of another object: where its annotation says tensor, and its default is made on the
    CPU, it may stay there."""
    kind = values_kind(values, tensor_types)
    made = any(value_kind(v, tensor_types).roaming for v in values)
    moves = not {"param", "buffer"}.isdisjoint(values)
    return replace(kind, roaming=True) if kind.is_tensor and made and not moves else kind
