"""Fixes that use a first result again, by the name that it has, or by one that it gets."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Fix, Place, Scene, nodes

from .allocations.aliases import is_deleted, is_written_under_any_name
from .same_value import changes, statements_between
from .syntax import assigned_once, contains, is_left, line_before


def used_again(
    first: cst.Call, scene: Scene, second: cst.Call, name: str, place: Place
) -> Fix | None:
    """The first result in place of the second call, which surely gives the same; under the `name`, where it
    has none."""
    if second.lpar or first.lpar:
        return None
    if is_left(statements_between(scene, place.scene, place) or ()):
        return None
    if any(_is_spelled_out(one, place) for one in (first, second)):
        return None
    if any(is_written_under_any_name(one, place) for one in (first, second)):
        return None
    named = assigned_once(first, place)
    if named is not None:
        if is_deleted(named.value, place):
            return None
        return place.replace(
            second, named.value, safety="unsafe", message=f"Use `{named.value}` again"
        )
    statement = scene.statement
    around = worked_out(statement)
    if around is None or not name or not any(one is statement for one in scene.block):
        return None
    if not contains(around, first):  # but a later condition of a chain
        return None
    if changes(first, around, place) or any(isinstance(o, cst.BaseComp) for o in scene.loops):
        return None
    before = line_before(statement, f"{name} = {place.text(first)}", place)
    return place.edits(
        [(first, name), (second, name)],
        safety="unsafe",
        message=f"Keep the result as `{name}`",
        more=[before],
    )


def _is_spelled_out(node: cst.Call, place: Place) -> bool:
    """Whether an f-string shows an expression as it is written: `f"{x.item()=}"`."""
    spelled = place.once(("spelled out", id(place.function)), lambda: _spelled_out(place.function))
    return id(node) in spelled


def _spelled_out(function: cst.FunctionDef) -> frozenset[int]:
    return frozenset(
        id(one.expression)
        for one in nodes.walk(function.body)
        if isinstance(one, cst.FormattedStringExpression) and one.equal is not None
    )


def worked_out(statement: cst.CSTNode) -> cst.CSTNode | None:
    """What a statement works out, before which a line may be put; None where that is something else."""
    if isinstance(statement, cst.If):
        return statement.test
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    small = statement.body[0]
    return small.value if isinstance(small, cst.Assign | cst.AugAssign) else small
