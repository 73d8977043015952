"""Elements of tensors that a loop asks one after the other, by an index of its own."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Place, nodes

from ...syntax import names_in, target_names


def indexed_by_round(node: cst.BaseExpression, place: Place) -> str:
    """The one device tensor, as written, of which a condition asks nothing but elements, by what a `for` loop
    counts, and that the loop leaves as it is; empty where there is none."""
    loops = [loop for loop in place.loops if isinstance(loop, cst.For)]
    counted = {name: loop for loop in reversed(loops) for name in target_names(loop)}
    bases: set[str] = set()
    inside: set[int] = set()
    for found in nodes.walk(node):
        if not isinstance(found, cst.Subscript) or id(found) in inside:
            continue
        base, by = _taken_from(found)
        inside.update(map(id, nodes.walk(found)))
        around = [counted[name] for name in sorted(by & counted.keys())]
        if not around or not place.on_device(base) or not place.dotted(base):
            continue
        stays = all(
            place.invariant(base, loop) and _only_read(base, loop, place) for loop in around
        )
        if not stays or not _is_operand(found, node):
            return ""
        bases.add(place.text(base))
    others = (found for found in nodes.walk(node) if id(found) not in inside)
    rest = any(
        place.kind(n).maybe_tensor for n in others if isinstance(n, cst.Name | cst.Attribute)
    )
    return next(iter(bases)) if len(bases) == 1 and not rest else ""


def _is_operand(element: cst.Subscript, condition: cst.BaseExpression) -> bool:
    """Whether a condition asks an element itself, or how it compares with something: a list of numbers
    answers the same. Parts of a tensor have methods that a list lacks, and equal floats may differ as
    doubles."""
    inner: cst.BaseExpression = element
    while isinstance(inner, cst.Subscript):
        if any(isinstance(one.slice, cst.Slice) for one in inner.slice):
            return False
        inner = inner.value
    if isinstance(condition, cst.Comparison):
        sides = (condition.left, *(part.comparator for part in condition.comparisons))
        ordered = all(
            isinstance(
                part.operator,
                cst.LessThan | cst.LessThanEqual | cst.GreaterThan | cst.GreaterThanEqual,
            )
            for part in condition.comparisons
        )
        return ordered and any(side is element for side in sides)
    return condition is element


def _only_read(base: cst.BaseExpression, loop: cst.CSTNode, place: Place) -> bool:
    """Whether a loop hands a tensor to nobody, and keeps no view of it, through which it could change."""
    for found in nodes.walk(loop):
        if isinstance(found, cst.Call) and any(place.same(a.value, base) for a in found.args):
            return False
        kept = found.value if isinstance(found, cst.Assign) else None
        views = isinstance(kept, cst.Subscript | cst.Name)
        if kept is not None and views and place.same(_taken_from(kept)[0], base):
            return False
    return True


def _taken_from(node: cst.BaseExpression) -> tuple[cst.BaseExpression, frozenset[str]]:
    """What an element is taken from, and the names in its indices: `x`, and `i` and `j`, of `x[i][j]`."""
    base = node
    by: frozenset[str] = frozenset()
    while isinstance(base, cst.Subscript):
        by = by.union(*(names_in(element) for element in base.slice))
        base = base.value
    return base, by
