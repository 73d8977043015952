"""What torch's schemas and tags say about an operation."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch

from pytest_dispatchguard.runtime.torch_private import dispatcher

_COPIES = frozenset({"clone", "lift_fresh", "lift", "_to_copy", "detach", "alias"})
"""Copies are mostly made to be changed, so making two of them is no mistake."""
_CONSTANTS = frozenset(
    {
        "arange",
        "eye",
        "full",
        "lift_fresh",
        "linspace",
        "logspace",
        "ones",
        "scalar_tensor",
        "tril_indices",
        "triu_indices",
        "zeros",
    }
)


class OperationInfo(NamedTuple):
    """Facts about one operation, looked up once."""

    name: str
    pure: bool
    """Whether equal arguments give equal results, in new memory, and nothing is changed."""
    pointwise: bool
    constant: bool
    """Whether it makes a tensor from numbers alone."""
    writes: tuple[int | str, ...]
    """The arguments that it writes to, by position and by name."""
    foreach: str
    """The `torch._foreach_*` function that does it to many tensors at once; empty if there is none."""


@cache
def operation_info(func: Any) -> OperationInfo:
    """Looks an operation up."""
    schema = dispatcher.schema_of(func)
    if schema is None:
        return OperationInfo(str(func.name()), False, False, False, (), "")
    name = schema.name.partition("::")[2]
    writes: list[int | str] = []
    for number, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            writes += [number, argument.name]
    aliased = any(returned.alias_info is not None for returned in schema.returns)
    tags = set(func.tags)
    pure = not (writes or aliased or torch.Tag.nondeterministic_seeded in tags)
    return OperationInfo(
        name,
        pure and name not in _COPIES and not name.startswith(("empty", "new_empty", "rand")),
        torch.Tag.pointwise in tags,
        name in _CONSTANTS,
        tuple(writes),
        f"torch._foreach_{name}" if hasattr(torch, f"_foreach_{name}") else "",
    )
