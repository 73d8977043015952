"""The kinds of parameters by the types of the values that a recorded run passed to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_dispatchguard.lint.kinds.kinds import (
    DICT,
    FUNCTION,
    MODULE,
    NESTED,
    SCALAR,
    TENSOR,
    TEXT,
    Kind,
)

_KIND_OF_TYPE: dict[str, Kind] = {
    "tensor": TENSOR,
    "module": MODULE,
    **dict.fromkeys(("int", "float", "bool", "complex"), SCALAR),
    **dict.fromkeys(("str", "bytes"), TEXT),
    **dict.fromkeys(("list", "tuple", "set", "frozenset"), NESTED),
    "dict": DICT,
    **dict.fromkeys(("function", "method", "builtin_function_or_method"), FUNCTION),
}
_NONE = "NoneType"


def with_recorded_types(kind: Kind, types: Sequence[str]) -> Kind:
    """The kind that was inferred for a parameter, corrected by the types that were recorded for it."""
    optional = kind.optional or _NONE in types
    known = [_KIND_OF_TYPE.get(name) for name in types if name != _NONE]
    recorded = [one for one in known if one is not None]
    if not recorded or len(recorded) < len(known):
        return kind  # nothing was recorded, or types whose values may be anything
    whats = {one.what for one in recorded}
    if whats == {"tensor"}:
        if kind.what == "tensor":
            return replace(kind, sure=True, optional=optional)
        return replace(TENSOR, optional=optional) if kind.what == "unknown" else kind
    if "tensor" in whats:
        return kind
    if kind.what == "tensor" and kind.sure:
        return kind.maybe()  # inferred to be a tensor, but never seen as one
    if kind.what in ("tensor", "unknown") and len(whats) == 1:
        same = all(one == recorded[0] for one in recorded)
        return replace(recorded[0] if same else NESTED, optional=optional)
    return kind
