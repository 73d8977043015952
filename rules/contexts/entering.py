"""Which contexts a `with` statement enters, and whether entering them once outside a loop would do."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from pytest_dispatchguard import Place, nodes

WATCHING = re.compile(
    r"prof|nvtx|trac|debug|record|annotat|instrument|verbose|timing", re.IGNORECASE
)
_PLAIN_ITERATORS = frozenset(
    {"range", "enumerate", "zip", "reversed", "len", "list", "tuple", "sorted"}
)


def entered(node: cst.With) -> Iterator[cst.Call]:
    """The calls whose results a with statement enters as they are."""
    if node.asynchronous is None:
        for item in node.items:
            if isinstance(item.item, cst.Call):
                yield item.item


def around_a_loop(node: cst.With) -> bool:
    """Whether the body of a with statement loops: to be entered once for all rounds is its point."""
    inside = nodes.walk(node.body, without=(cst.FunctionDef,))
    return any(type(n) is cst.For or type(n) is cst.While for n in inside)


def whole_body_of(node: cst.With, place: Place) -> cst.For | None:
    """The for loop whose body is this with statement and nothing else, where entering it around the loop
    instead would give the same: the context does not change between rounds, and what is iterated
    computes nothing."""
    loop = place.loops[-1] if place.loops else None
    if not isinstance(loop, cst.For) or loop.asynchronous is not None or loop.orelse is not None:
        return None
    if not isinstance(loop.body, cst.IndentedBlock) or list(loop.body.body) != [node]:
        return None
    if any(item.asname is not None or not place.invariant(item.item, loop) for item in node.items):
        return None
    return loop if _computes_nothing(loop.iter, place) else None


def _computes_nothing(node: cst.BaseExpression, place: Place) -> bool:
    if isinstance(node, cst.Name | cst.Attribute | cst.Integer | cst.SimpleString):
        return True
    if isinstance(node, cst.Tuple | cst.List):
        return all(_computes_nothing(e.value, place) for e in node.elements)
    if isinstance(node, cst.Call):
        plain = place.name(node) in _PLAIN_ITERATORS
        view = place.last_name(node) in ("items", "values", "keys") and not node.args
        return (plain or view) and all(_computes_nothing(a.value, place) for a in node.args)
    return False


def guarded(place: Place, words: re.Pattern[str]) -> bool:
    """Whether a condition around the place, or one that returns before it, speaks of such a thing."""
    asked = [test for test, _ in place.conditions]
    asked.extend(
        statement.test
        for statement in place.block
        if isinstance(statement, cst.If) and _returns(statement.body)
    )
    return any(words.search(place.text(test)) for test in asked)


def _returns(body: cst.BaseSuite) -> bool:
    last = body.body[-1]
    if isinstance(last, cst.SimpleStatementLine):
        last = last.body[-1]
    return isinstance(last, cst.Return)
