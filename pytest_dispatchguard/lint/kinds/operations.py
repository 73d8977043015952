"""What a torch operation returns, whether it is called as a function or as a method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_dispatchguard.lint.kinds.kinds import TENSOR, Dtype, Kind
from pytest_dispatchguard.lint.kinds.placement import placed

BOOL_RESULT = frozenset(
    "eq ne lt le gt ge less less_equal greater greater_equal not_equal isnan isinf isfinite isin "
    "isclose isreal "
    "isneginf isposinf logical_and logical_or logical_not logical_xor all any signbit bool".split()
)
INT_RESULT = frozenset(
    "argmax argmin argsort argwhere nonzero randint randperm bincount count_nonzero searchsorted "
    "bucketize long int "
    "short byte char tril_indices triu_indices one_hot".split()
)
REDUCTIONS = frozenset(
    "all any sum mean prod std var norm amax amin max min median nanmedian nansum nanmean argmax "
    "argmin logsumexp "
    "count_nonzero numel".split()
)
"""Tensor methods that give one number (still a tensor) when called without a dimension."""


_JOINING = frozenset("cat concat concatenate stack hstack vstack".split())


def dtype_of(text: str) -> Dtype:
    """bool, int or float for the text of a dtype argument; empty where it does not tell."""
    last = text.rpartition(".")[2]
    if last == "bool":
        return "bool"
    if last in ("long", "int", "short", "int8", "int16", "int32", "int64", "uint8"):
        return "int"
    return "float" if last.startswith(("float", "bfloat", "half", "double")) else ""


def operation_kind(name: str, args: Sequence[Kind], keywords: Mapping[str, Kind]) -> Kind:
    """The tensor that an operation returns; its receiver, if any, is the first argument."""
    dtype: Dtype = "bool" if name in BOOL_RESULT else "int" if name in INT_RESULT else ""
    if name in _JOINING and args and args[0].what == "nested":
        parts = args[0].items or ((args[0].element,) if args[0].element is not None else ())
        dtypes = {part.dtype for part in parts if part is not None}
        dtype = dtypes.pop() if len(dtypes) == 1 else ""
    whole = (
        name in REDUCTIONS and len(args) <= 1 and not ({"dim", "axis", "keepdim"} & set(keywords))
    )
    return replace(
        placed(TENSOR, [*args, *keywords.values()]),
        dtype=dtype,
        ndim=0 if whole else None,
    )
