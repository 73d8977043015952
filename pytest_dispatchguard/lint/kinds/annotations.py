"""The kinds that annotations promise."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache, reduce

from pytest_dispatchguard.lint.kinds.classes import MODULE_LISTS, is_module_class, is_tensor_class
from pytest_dispatchguard.lint.kinds.kinds import (
    DICT,
    FUNCTION,
    NESTED,
    NONE,
    OTHER,
    SCALAR,
    SHAPE,
    TEXT,
    UNKNOWN,
    Dtype,
    Kind,
    join,
)

_JAXTYPING = frozenset(
    "Float Int Bool Num Shaped Integer Real Complex Inexact Float16 Float32 Float64 Int32 Int64 UInt8".split()
)
_OPTIONAL = re.compile(r"^(?:typing\.)?Optional\[(.*)\]$", re.S)
_UNION = re.compile(r"^(?:typing\.)?Union\[(.*)\]$", re.S)
_SEQUENCE = re.compile(
    r"^(?:typing\.|collections\.abc\.)?"
    r"(List|list|Sequence|Iterable|Iterator|Set|set|frozenset|Tuple|tuple|Dict|dict|Mapping|OrderedDict|Collection)\[(.*)\]$",
    re.S,
)
_WRAPPERS = frozenset({"Annotated", "Final", "ClassVar", "Required", "NotRequired"})
"""Their first argument is the type."""
_SLIP = "torch.tensor"
"""The function, where the class is meant."""
_TENSOR_NAMES: dict[str, Dtype] = {
    "Tensor": "", "FloatTensor": "", "LongTensor": "int", "IntTensor": "int", "BoolTensor": "bool",
}  # fmt: skip
_OTHER_FRAMEWORKS = ("tf.", "tensorflow.", "jax.", "paddle.", "keras.")
_BY_NAME: dict[str, Kind] = {
    "int": Kind("scalar", dtype="int"),
    "float": Kind("scalar", dtype="float"),
    "bool": Kind("scalar", dtype="bool"),
    **dict.fromkeys(("complex", "numbers.Number", "Number", "torch.types.Number"), SCALAR),
    **dict.fromkeys(("str", "bytes"), TEXT),
    "None": NONE,
    **dict.fromkeys(
        ("list", "tuple", "set", "List", "Tuple", "typing.List", "typing.Tuple"), NESTED
    ),
    **dict.fromkeys(
        ("dict", "Dict", "typing.Dict", "OrderedDict", "collections.OrderedDict"), DICT
    ),
    **dict.fromkeys(
        ("torch.device", "torch.dtype", "torch.Generator", "torch.memory_format"), OTHER
    ),
    **dict.fromkeys(("numpy.ndarray", "np.ndarray"), Kind("other", cls="numpy")),
}
_BY_LAST_NAME: dict[str, Kind] = {
    "Literal": TEXT,
    **dict.fromkeys(("Callable", "Type"), FUNCTION),
    "Size": SHAPE,
    **dict.fromkeys(("Any", "object", "TensorLike"), UNKNOWN),
}


def _split_top(text: str, separator: str) -> list[str]:
    """Splits at a separator that no bracket or quote encloses."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c in "[(":
            depth += 1
        elif c in "])":
            depth -= 1
        elif c == separator and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:].strip())
    return [p for p in parts if p]


def _first_inside(annotation: str) -> str:
    """``int`` of ``Annotated[int, "a word"]``; empty where there is nothing."""
    parts = _split_top(annotation.partition("[")[2].removesuffix("]"), ",")
    return parts[0] if parts else ""


@lru_cache(maxsize=4096)
def annotation_kind(text: str, tensor_types: tuple[str, ...] = ()) -> Kind:
    """The kind that an annotation promises; names in it are dotted and resolved where possible."""
    text = text.strip()
    if text[:1] in "\"'":
        text = text.strip("\"'").strip()
    if not text:
        return UNKNOWN
    if match := _OPTIONAL.match(text):
        return join(annotation_kind(match[1], tensor_types), NONE)
    parts = _split_top(text, "|")
    if len(parts) == 1 and (match := _UNION.match(text)):
        parts = _split_top(match[1], ",")
    if len(parts) > 1:
        return _union_kind([annotation_kind(p, tensor_types) for p in parts])
    base = text.partition("[")[0].strip()
    last = base.rpartition(".")[2]
    if last in _WRAPPERS:
        return annotation_kind(_first_inside(text), tensor_types)
    if is_tensor_class(base, tensor_types) or last in _TENSOR_NAMES or base == _SLIP:
        if base.startswith(_OTHER_FRAMEWORKS) and base not in tensor_types:
            return UNKNOWN
        return Kind("tensor", dtype=_TENSOR_NAMES.get(last, ""))
    if last in _JAXTYPING and "[" in text:
        inside = annotation_kind(_first_inside(text), tensor_types)
        if base == last or base.startswith("jaxtyping.") or inside.what == "tensor":
            return inside
    if match := _SEQUENCE.match(text):
        return _sequence_kind(match[1], match[2], tensor_types)
    named = _BY_NAME.get(base) or _BY_LAST_NAME.get(last)
    if named is not None:
        return named
    if is_module_class(base) or base == "torch.nn.Module":
        return Kind("modules" if base in MODULE_LISTS else "module", cls=base)
    return Kind("unknown", cls=base)


def _union_kind(kinds: list[Kind]) -> Kind:
    """The kind of a value that is one of several."""
    out = kinds[0]
    for kind in kinds[1:]:
        out = join(out, kind)
    others = [kind for kind in kinds if kind.what not in ("tensor", "none")]
    if out.what == "tensor" and len({(kind.what, kind.cls) for kind in others}) == 1:
        return replace(out, either=reduce(join, others))
    return out


def _sequence_kind(name: str, inside: str, tensor_types: tuple[str, ...]) -> Kind:
    parts = _split_top(inside, ",")
    lowered = name.lower()
    if lowered in ("dict", "mapping", "ordereddict"):
        return Kind(
            "nested",
            element=annotation_kind(parts[-1], tensor_types) if len(parts) > 1 else UNKNOWN,
            cls="dict",
        )
    kinds = [annotation_kind(p, tensor_types) for p in parts if p != "..."]
    if lowered == "tuple" and "..." not in parts:
        out = kinds[0] if kinds else UNKNOWN
        for kind in kinds[1:]:
            out = join(out, kind)
        return Kind("nested", items=tuple(kinds), element=out)
    return Kind("nested", element=kinds[0] if kinds else UNKNOWN)
