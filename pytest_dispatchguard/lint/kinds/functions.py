"""What functions of Python, torch and NumPy return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_dispatchguard.lint.kinds.kinds import (
    DICT,
    EMPTY,
    EMPTY_DICT,
    FUNCTION,
    NONE,
    OTHER,
    SCALAR,
    TENSOR,
    TEXT,
    UNKNOWN,
    Kind,
    element_of,
    join,
)
from pytest_dispatchguard.lint.kinds.placement import placed
from pytest_dispatchguard.lint.kinds.torch_functions import torch_kind

_HOST_BUILTINS = frozenset(
    "len int float bool complex isinstance issubclass hasattr callable id hash ord any all".split()
)


_TEXT_BUILTINS = frozenset({"str", "repr", "format", "chr", "hex", "bin", "ascii"})


def function_kind(
    name: str, args: Sequence[Kind], keywords: Mapping[str, Kind], texts: Mapping[str, str]
) -> Kind | None:
    """What `name(...)` gives, for a dotted name of torch or Python; None where nothing is known."""
    if name.startswith("torch."):
        return torch_kind(name, args, keywords, texts)
    if name.startswith(("numpy.", "np.", "math.", "cupy.", "scipy.")):
        return SCALAR if name.startswith("math.") else Kind("other", cls="numpy")
    if name in ("dict", "collections.OrderedDict"):
        return DICT if args or keywords else EMPTY_DICT
    if name == "collections.deque" and not args:
        return EMPTY
    if name == "collections.defaultdict":
        return DICT
    if "." not in name:
        return _builtin_kind(name, args)
    if name in ("itertools.chain", "itertools.islice") and args:
        return Kind("nested", element=element_of(args[0]))
    if name == "einops.parse_shape":
        return replace(DICT, element=SCALAR)
    if name.startswith("einops."):
        return placed(TENSOR, args) if args else TENSOR
    if name in ("functools.partial", "functools.partialmethod"):
        return FUNCTION
    if name.startswith(
        ("os.", "time.", "inspect.", "logging.", "warnings.", "re.", "json.", "random.")
    ):
        return OTHER
    return None


def _builtin_kind(name: str, args: Sequence[Kind]) -> Kind | None:
    if name in _HOST_BUILTINS or name == "ord":
        return SCALAR
    if name in _TEXT_BUILTINS:
        return TEXT
    if name == "range":
        return Kind("nested", element=SCALAR)
    if name in ("list", "tuple", "set", "sorted", "reversed", "frozenset", "iter"):
        if not args:
            return EMPTY
        return Kind("nested", element=element_of(args[0]))
    if name == "enumerate" and args:
        inner = element_of(args[0])
        return Kind(
            "nested", element=Kind("nested", items=(SCALAR, inner), element=join(SCALAR, inner))
        )
    if name == "zip":
        parts = tuple(element_of(a) for a in args)
        return Kind("nested", element=Kind("nested", items=parts, element=UNKNOWN))
    if name in ("sum", "max", "min"):
        if len(args) == 1:
            inner = element_of(args[0])
            return replace(inner, ndim=None) if inner.what == "tensor" else inner
        kinds = {a.what for a in args}
        if "tensor" in kinds:
            return TENSOR.maybe() if kinds != {"tensor"} else placed(TENSOR, args)
        return SCALAR if kinds == {"scalar"} else UNKNOWN
    if name in ("abs", "round", "pow", "divmod") and args:
        return (
            args[0]
            if args[0].what == "tensor"
            else (SCALAR if args[0].what == "scalar" else UNKNOWN)
        )
    if name in (
        "type",
        "super",
        "object",
        "slice",
        "memoryview",
        "bytes",
        "bytearray",
        "open",
        "vars",
        "dir",
    ):
        return OTHER
    if name == "print":
        return NONE
    return None
