"""Whether an expression surely gives what it gave before: nothing between changes what it is made of."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from pytest_dispatchguard import Place, Scene

from .syncs.waits import RANDOM, REDUCING
from .syntax import bound_names, contains, names_in


def same_value(
    first: cst.BaseExpression,
    at: Scene,
    second: cst.BaseExpression,
    scene: Scene,
    place: Place,
) -> bool:
    """Whether an expression surely was worked out before, with the same result."""
    if not place.same(first, second) or not settled(first, place):
        return False
    if at.loops != scene.loops[: len(at.loops)]:
        return False
    if at.conditions != scene.conditions[: len(at.conditions)] or may_be_skipped(first, place):
        return False
    if not all(place.invariant(second, loop) for loop in scene.loops[len(at.loops) :]):
        return False
    between = statements_between(at, scene, place)
    if between is None:
        return False
    names = names_in(first)
    if place.self_name in names and at.statement is not scene.statement:
        return False
    return not names & bound_names(between)


def settled(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression, computed twice from the same names, gives the same: names, attributes, and
    methods and torch functions that draw no random numbers and change nothing."""
    if isinstance(node, cst.Name | cst.Integer | cst.Float | cst.SimpleString):
        return True
    if isinstance(node, cst.Attribute):
        return settled(node.value, place)
    if isinstance(node, cst.Subscript):
        bounds = [bound for e in node.slice for bound in _bounds(e.slice)]
        return settled(node.value, place) and all(settled(bound, place) for bound in bounds)
    if isinstance(node, cst.Tuple | cst.List):
        return all(isinstance(e, cst.Element) and settled(e.value, place) for e in node.elements)
    if isinstance(node, cst.UnaryOperation):
        return settled(node.expression, place)
    if isinstance(node, cst.BinaryOperation):
        return settled(node.left, place) and settled(node.right, place)
    if isinstance(node, cst.Comparison):
        return settled(node.left, place) and all(
            settled(c.comparator, place) for c in node.comparisons
        )
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        last = node.func.attr.value
        if last.endswith("_") or last in RANDOM:
            return False
        ours = place.name(node).startswith("torch.") or (
            (place.kind(node.func.value).is_tensor or last in REDUCING)
            and settled(node.func.value, place)
        )
        return ours and all(not a.star and settled(a.value, place) for a in node.args)
    return False


def _bounds(index: cst.BaseSlice) -> list[cst.BaseExpression]:
    """What an index is made of."""
    if isinstance(index, cst.Index):
        return [index.value]
    assert isinstance(index, cst.Slice)
    return [bound for bound in (index.lower, index.upper, index.step) if bound is not None]


def may_be_skipped(expression: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression stands where another that is around it may stop before it."""
    known: dict[int, bool] = place.once(("may be skipped",), dict)
    passed: list[cst.CSTNode] = []
    node: cst.CSTNode | None = expression
    skipped = False
    while node is not None and not skipped:
        if id(node) in known:
            skipped = known[id(node)]
            break
        passed.append(node)
        parent = place.parent(node)
        skipped = (
            (isinstance(parent, cst.BooleanOperation) and parent.right is node)
            or (isinstance(parent, cst.IfExp) and parent.test is not node)
            or isinstance(parent, cst.BaseComp | cst.Lambda)
        )
        node = parent
    known.update((id(one), skipped) for one in passed)
    return skipped


def statements_between(at: Scene, scene: Scene, place: Place) -> list[cst.CSTNode] | None:
    """What runs from the statement of the first place to that of the second, the first one included; None
    where that is not known."""
    if at.statement is scene.statement:
        return (
            []
            if isinstance(at.statement, cst.SimpleStatementLine) or at.block is scene.block
            else None
        )
    start = positions(at.block, place).get(id(at.statement))
    if start is None:
        return None
    for end, statement in enumerate(at.block[start:], start):
        simple = isinstance(statement, cst.SimpleStatementLine)
        if statement is scene.statement or (not simple and contains(statement, scene.statement)):
            # Of the statement that contains the second place all is taken, also what comes after it.
            return list(at.block[start:end]) + (
                [statement] if statement is not scene.statement else []
            )
    return None


def positions(block: Sequence[cst.CSTNode], place: Place) -> dict[int, int]:
    """Where the statements of a block stand in it, by their ids."""
    return place.once(("positions", id(block)), lambda: {id(s): i for i, s in enumerate(block)})
