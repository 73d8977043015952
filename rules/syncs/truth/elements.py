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
        if not all(place.invariant(base, loop) for loop in around):
            return ""
        bases.add(place.text(base))
    others = (found for found in nodes.walk(node) if id(found) not in inside)
    rest = any(
        place.kind(n).maybe_tensor for n in others if isinstance(n, cst.Name | cst.Attribute)
    )
    return next(iter(bases)) if len(bases) == 1 and not rest else ""


def _taken_from(node: cst.Subscript) -> tuple[cst.BaseExpression, frozenset[str]]:
    """What an element is taken from, and the names in its indices: `x`, and `i` and `j`, of `x[i][j]`."""
    base: cst.BaseExpression = node
    by: frozenset[str] = frozenset()
    while isinstance(base, cst.Subscript):
        by = by.union(*(names_in(element) for element in base.slice))
        base = base.value
    return base, by
