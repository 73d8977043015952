"""Selections by the same boolean mask."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from pytest_dispatchguard import Place, Scene

from ...syntax import bound_names, contains, names_in, target_names
from ..waits import mask_of


def same_in_every_round(mask: cst.BaseExpression, loop: cst.CSTNode, place: Place) -> bool:
    """Whether a mask held by a name is the same in every iteration of the innermost loop."""
    if not isinstance(mask, cst.Name) or not isinstance(loop, cst.For | cst.BaseComp):
        return False
    if any(test for test, _ in place.conditions if contains(loop, test)):
        return False
    if isinstance(loop, cst.BaseComp) and contains(loop.for_in.iter, place.node):
        return False
    return not names_in(mask) & target_names(loop) and place.invariant(mask, loop)


def rebound_in_block(mask: cst.BaseExpression, place: Place) -> bool:
    """Whether a name of the mask may get another value within the block after it was made."""
    names = names_in(mask)
    return any(place.assignments(n) > 1 and n in bound_names(place.block) for n in names)


def selections_by(mask: cst.BaseExpression, place: Place) -> Sequence[tuple[cst.Subscript, Scene]]:
    """What selects by a mask that reads like one, in reading order."""
    found = place.once(("selections",), lambda: _by_masks(place))
    return found.get(place.text(mask), ())


def _by_masks(place: Place) -> dict[str, list[tuple[cst.Subscript, Scene]]]:
    found: dict[str, list[tuple[cst.Subscript, Scene]]] = {}
    for node, scene in place.subscripts():
        mask = mask_of(node, place)
        if mask is not None:
            found.setdefault(place.text(mask), []).append((node, scene))
    return found


def selects_by(node: cst.Subscript, mask: cst.BaseExpression, place: Place) -> bool:
    """Whether a subscript reads by a mask while that still holds the same values."""
    found = mask_of(node, place)
    if found is None or not place.same(found, mask):
        return False
    values = place.value_of(found), place.value_of(mask)
    rebound = None not in values and values[0] is not values[1]
    return not rebound and not in_mask_write(node, place)


def in_mask_write(node: cst.Subscript, place: Place) -> bool:
    """Whether a subscript is written to (`x[m] += 1`), or read for a write by the same mask (`y[m] = x[m]`):
    the write is flagged."""
    if not isinstance(place.statement, cst.SimpleStatementLine):
        return False
    for small in place.statement.body:
        targets: list[cst.BaseExpression] = []
        if isinstance(small, cst.Assign):
            targets = [t.target for t in small.targets]
        elif isinstance(small, cst.AugAssign):
            targets = [small.target]
        for target in targets:
            if target is node:
                return True
            if isinstance(target, cst.Subscript):
                written, read = mask_of(target, place), mask_of(node, place)
                if written is not None and read is not None and place.same(written, read):
                    return True
    return False
