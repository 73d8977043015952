"""Fixes of reads and writes by a mask: all elements are worked on, and the mask selects."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Fix, Place, nodes

from ..data_flow import ELEMENTWISE, GROWING, undefined_elsewhere
from ..waits import mask_of

_CASTS = frozenset("to type type_as float half double bfloat16 int long bool".split())
_LINEAR = (cst.Add, cst.Subtract)
_ELEMENTWISE_TESTS = frozenset(
    "isnan isinf isfinite eq ne lt le gt ge logical_and logical_or logical_not logical_xor".split()
)


def selecting(
    node: cst.Assign | cst.AugAssign, target: cst.Subscript, mask: cst.BaseExpression, place: Place
) -> Fix | None:
    """`x.copy_(torch.where(mask, new, x))` for `x[mask] = new`, where `new` can be worked out for all
    elements; `x.masked_scatter_(mask, rows)` where it has a row for each hit."""
    base = place.dotted(target.value)
    if not base or len(target.slice) != 1 or "\n" in place.text(node) or "#" in place.text(node):
        return None
    if isinstance(node, cst.Assign) and len(node.targets) != 1:
        return None
    new = for_all(node.value, mask, base, place)
    if isinstance(node, cst.AugAssign):
        if new is None and added_to_all(node.value, place):
            new = place.text(node.value)
        sign = place.text(node.operator).strip().removesuffix("=")
        linear = sign in "+-" or place.kind(node.value).what == "scalar"
        if new is None or sign not in ("+", "-", "*", "/") or not linear:
            return None
        simple = isinstance(
            node.value, cst.Name | cst.Attribute | cst.Call | cst.Subscript | cst.Float
        )
        new = (
            f"{base} {sign} {new if simple or isinstance(node.value, cst.Integer) else f'({new})'}"
        )
    if new is not None:
        shown = aligned(mask, target.value, place)
        text = f"{base}.copy_(torch.where({shown}, {new}, {base}))"
    else:
        shown = _of_rows(mask, target.value, node.value, place)
        text = f"{base}.masked_scatter_({shown}, {place.text(node.value)})"
    if not shown:
        return None
    said = (
        "Select on the device; needs a boolean mask, and works on all elements"
        if new is not None
        else "Scatter on the device; needs a boolean mask, and a value for each element that it hits"
    )
    return place.replace(node, text, safety="unsafe", message=said, imports=("import torch",))


def summed_up(node: cst.Subscript, mask: cst.BaseExpression, how: str, place: Place) -> Fix | None:
    """`torch.where(mask, x, 0).sum()` for `x[mask].sum()`, and the same of a mean, where the mask has as many
    elements as `x`."""
    method = place.parent(node)
    call = place.parent(method) if method is not None else None
    base = place.dotted(node.value)
    if (
        not isinstance(method, cst.Attribute)
        or method.attr.value != how
        or how not in ("sum", "mean")
    ):
        return None
    if not isinstance(call, cst.Call) or call.func is not method or call.args or call.lpar:
        return None
    if not base or len(node.slice) != 1 or "\n" in place.text(call):
        return None
    shown = aligned(mask, node.value, place)
    dims = place.kind(node.value).ndim
    each = asks_each_of(mask, node.value, place) or (
        dims is not None and dims == place.kind(mask).ndim
    )
    if not shown or (how == "mean" and not each):
        return None
    text = f"torch.where({shown}, {base}, 0).sum()"
    if how == "mean":
        operand = shown if place.dotted(mask) else f"({shown})"
        text = f"{text} / {operand}.sum()"
        if isinstance(place.parent(call), cst.BinaryOperation | cst.UnaryOperation | cst.Attribute):
            text = f"({text})"
    return place.replace(
        call,
        text,
        safety="unsafe",
        message="Sum over all elements on the device, in another order; needs a boolean mask",
        imports=("import torch",),
    )


def for_all(
    value: cst.BaseExpression, mask: cst.BaseExpression, base: str, place: Place
) -> str | None:
    """The source of a value, worked out for all elements and not for those selected by the mask; None where
    that is not the same, or not known to be."""
    if (
        place.kind(value).what == "scalar"
        or place.kind(value).ndim == 0
        or of_the_module(value, place)
    ):
        return place.text(value)
    if isinstance(value, cst.Subscript):
        by = mask_of(value, place)
        if by is None or not place.same(by, mask) or len(value.slice) != 1:
            return None
        return place.text(value.value) if place.dotted(value.value) else None
    if undefined_elsewhere(value, place, deep=False):
        return None
    if isinstance(value, cst.BinaryOperation):
        left = for_all(value.left, mask, base, place)
        right = for_all(value.right, mask, base, place)
        own = base in (left, right) or any(t and f"{base}" in t.split() for t in (left, right))
        scaled = "scalar" in (place.kind(value.left).what, place.kind(value.right).what)
        if (
            left is None
            or right is None
            or (own and not scaled and not isinstance(value.operator, _LINEAR))
        ):
            return None
        return _bracketed(value, f"{left}{place.text(value.operator)}{right}")
    if isinstance(value, cst.UnaryOperation):
        inner = for_all(value.expression, mask, base, place)
        return None if inner is None else _bracketed(value, f"{place.text(value.operator)}{inner}")
    return _called_for_all(value, mask, base, place)


def _called_for_all(
    value: cst.BaseExpression, mask: cst.BaseExpression, base: str, place: Place
) -> str | None:
    """The same of an elementwise function of torch, or such a method of a selection."""
    if not isinstance(value, cst.Call) or not isinstance(value.func, cst.Attribute):
        return None
    last = value.func.attr.value
    if last not in (ELEMENTWISE - GROWING) | _CASTS or last.endswith("_"):
        return None
    ours = place.name(value).startswith("torch.")
    given = (value.args[0].value if value.args else None) if ours else value.func.value
    rest = value.args[1:] if ours else value.args
    if given is None or any(
        a.star or (last not in _CASTS and place.kind(a.value).what != "scalar") for a in rest
    ):
        return None
    inner = for_all(given, mask, base, place)
    if inner is None or (inner == base and last not in _CASTS):
        return None  # autograd keeps it, and it is about to change in place
    arguments = ", ".join(place.text(a).rstrip(", ") for a in rest)
    if not ours:
        return f"{inner}.{last}({arguments})"
    return f"{place.text(value.func)}({', '.join(filter(None, (inner, arguments)))})"


def _bracketed(node: cst.BaseExpression, source: str) -> str:
    return f"({source})" if node.lpar else source


def of_the_module(value: cst.BaseExpression, place: Place) -> bool:
    """Whether a value is a parameter or buffer of the module, or a row of one, cast or not: the same for
    every hit."""
    value = _uncast(value)
    if isinstance(value, cst.Subscript) and all(
        isinstance(one.slice, cst.Index) and place.kind(one.slice.value).what == "scalar"
        for one in value.slice
    ):
        return _of_a_part(value.value, place) or _own(value.value, place)
    return _own(value, place)


def added_to_all(value: cst.BaseExpression, place: Place) -> bool:
    """Whether what is added to hits is the weight of a part of the module: one row for all of them, as there
    would have to be as many rows as hits otherwise."""
    return _of_a_part(_uncast(value), place)


def _uncast(value: cst.BaseExpression) -> cst.BaseExpression:
    while (
        isinstance(value, cst.Call)
        and isinstance(value.func, cst.Attribute)
        and value.func.attr.value in _CASTS
    ):
        value = value.func.value
    return value


def _of_a_part(value: cst.BaseExpression, place: Place) -> bool:
    return (
        isinstance(value, cst.Attribute)
        and value.attr.value in ("weight", "bias")
        and place.kind(value.value).what == "module"
    )


def _own(value: cst.BaseExpression, place: Place) -> bool:
    owner, _, last = place.dotted(value).rpartition(".")
    return (
        bool(owner)
        and owner == place.self_name
        and set(place.attribute_values(last)) <= {"param", "buffer"}
        and bool(place.attribute_values(last))
    )


# -- the shape of the mask --------------------------------------------------------------------------


def aligned(mask: cst.BaseExpression, base: cst.BaseExpression, place: Place) -> str:
    """The mask with as many dimensions as what it selects from; empty where that takes a name for it."""
    shown = place.text(mask)
    if asks_each_of(mask, base, place):
        return shown
    dims, masked = place.kind(base).ndim, place.kind(mask).ndim
    if dims is not None and masked is not None and dims >= masked:
        return _spread(mask, shown, dims - masked)
    like = _shaped_like(mask, place)
    if not like:
        return ""
    operand = shown if like == shown else f"({shown})"
    return f"{operand}.reshape({like}.shape + (1,) * ({place.text(base)}.ndim - {like}.ndim))"


def _shaped_like(mask: cst.BaseExpression, place: Place) -> str:
    """The name of a tensor of the shape of a mask: the mask itself, or what it compares to a number."""
    if place.dotted(mask):
        return place.dotted(mask)
    if isinstance(mask, cst.UnaryOperation) and isinstance(mask.operator, cst.BitInvert):
        return _shaped_like(mask.expression, place)
    if isinstance(mask, cst.Comparison) and len(mask.comparisons) == 1:
        other = place.kind(mask.comparisons[0].comparator)
        single = other.what == "scalar" or other.ndim == 0
        return place.dotted(mask.left) if single and place.is_tensor(mask.left) else ""
    return ""


def _spread(mask: cst.BaseExpression, shown: str, more: int) -> str:
    if not more:
        return shown
    plain = isinstance(mask, cst.Name | cst.Attribute | cst.Call) or mask.lpar
    return f"{shown if plain else f'({shown})'}[..., {', '.join(['None'] * more)}]"


def asks_each_of(
    mask: cst.BaseExpression, base: cst.BaseExpression, place: Place, depth: int = 3
) -> bool:
    """Whether a mask is worked out element by element from the very tensor that it selects from: it has no
    fewer dimensions, and a mask can have no more."""
    if place.same(mask, base):
        return _is_still(mask, base, place)
    if isinstance(mask, cst.Name):
        held = place.value_of(mask)
        return held is not None and depth > 0 and asks_each_of(held, base, place, depth - 1)
    parts: list[cst.BaseExpression] = []
    if isinstance(mask, cst.Comparison):
        parts = [mask.left, *(c.comparator for c in mask.comparisons)]
        if any(
            isinstance(c.operator, cst.In | cst.NotIn | cst.Is | cst.IsNot)
            for c in mask.comparisons
        ):
            return False
    elif isinstance(mask, cst.BinaryOperation):
        parts = [mask.left, mask.right]
        if isinstance(mask.operator, cst.MatrixMultiply):
            return False
    elif isinstance(mask, cst.UnaryOperation):
        parts = [mask.expression]
    elif isinstance(mask, cst.Call) and isinstance(mask.func, cst.Attribute):
        if mask.func.attr.value not in _ELEMENTWISE_TESTS | ELEMENTWISE:
            return False
        parts = [a.value for a in mask.args if a.keyword is None and not a.star]
        if not place.name(mask).startswith("torch."):
            parts.append(mask.func.value)
    return any(asks_each_of(part, base, place, depth) for part in parts)


def _is_still(before: cst.BaseExpression, now: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression of the same names means the same tensor as before."""
    pairs = zip(nodes.names_in(before), nodes.names_in(now), strict=True)
    return all(
        place.assignments(a.value) <= 1
        or (place.value_of(a) is not None and place.value_of(a) is place.value_of(b))
        for a, b in pairs
    )


def _of_rows(
    mask: cst.BaseExpression, base: cst.BaseExpression, value: cst.BaseExpression, place: Place
) -> str:
    """The mask for a value of one entry for each hit, by how that was shaped: `view(-1)` for single elements,
    `view(-1, n)` for rows. Empty where it is not known to be so."""
    while (
        isinstance(value, cst.Call)
        and isinstance(value.func, cst.Attribute)
        and value.func.attr.value in _CASTS
    ):
        value = value.func.value
    if not isinstance(value, cst.Call) or not isinstance(value.func, cst.Attribute):
        return ""
    last = value.func.attr.value
    flat = last == "flatten" and not value.args
    sizes = value.args[1:] if place.name(value).startswith("torch.") else value.args
    if last in ("view", "reshape") and sizes and place.text(sizes[0].value) == "-1":
        flat = len(sizes) == 1
        if len(sizes) == 2 and not sizes[1].star:
            return _spread(mask, place.text(mask), 1)
    known = place.kind(base).ndim is not None and place.kind(base).ndim == place.kind(mask).ndim
    return place.text(mask) if flat and (known or asks_each_of(mask, base, place)) else ""
