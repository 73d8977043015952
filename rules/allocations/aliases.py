"""Which names of a function may hold one tensor, and whether the function writes into it by any of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from pytest_dispatchguard import Place, nodes

from ..syntax import VIEWS, names_in

_ALIKE = VIEWS | {
    "chunk",
    "contiguous",
    "diagonal",
    "narrow",
    "swapaxes",
    "tensor_split",
    "to",
    "unflatten",
}
"""Methods and functions that may give the memory that they are given."""
_PARTS = frozenset({"T", "data", "grad", "H", "imag", "mH", "mT", "real"})


def is_written_under_any_name(node: cst.BaseExpression, place: Place) -> bool:
    """Whether the function may write into what an expression gives: by a name of it, of a part or a view, or
    of a list that holds it."""
    held = _held_by(node, place)
    if not held:
        return False
    written = place.once(("written", id(place.function)), lambda: _written(place.function))
    return not written.isdisjoint(held | others_of(held, place))


def others_of(names: frozenset[str], place: Place) -> frozenset[str]:
    """The names that may hold the same tensors as others do, or a part or a view of them."""
    key = ("others of", id(place.function), names)
    return place.once(key, partial(_closure, names, place))


def _closure(names: frozenset[str], place: Place) -> frozenset[str]:
    users = place.once(("aliases", id(place.function)), lambda: _users(place))
    found, waiting = set(names), list(names)
    while waiting:
        for name in users.get(waiting.pop(), ()):
            if name not in found:
                found.add(name)
                waiting.append(name)
    return frozenset(found - names)


def _held_by(node: cst.BaseExpression, place: Place) -> frozenset[str]:
    """The names that a statement gives what an expression makes, or what holds or shares it."""
    parent: cst.CSTNode | None = place.parent(node)
    while parent is not None:
        if isinstance(parent, cst.Assign):
            return frozenset().union(*(names_in(target.target) for target in parent.targets))
        if isinstance(parent, cst.AnnAssign | cst.NamedExpr):
            return names_in(parent.target)
        if isinstance(parent, cst.BinaryOperation | cst.Comparison | cst.UnaryOperation):
            return frozenset()
        if isinstance(parent, cst.Call) and not _gives_the_same(parent, place):
            return frozenset()
        parent = place.parent(parent)
    return frozenset()


def _gives_the_same(call: cst.Call, place: Place) -> bool:
    """Whether a call may give what it is given, or a view of it."""
    if isinstance(call.func, cst.Attribute) and not isinstance(call.func.value, cst.Name):
        return call.func.attr.value in _ALIKE
    owner = place.receiver(call)
    if place.name(call).startswith("torch.") or (owner is not None and place.is_tensor(owner)):
        return place.last_name(call) in _ALIKE
    return True


def _users(place: Place) -> dict[str, set[str]]:
    """Of each name: those that are given it, or a part or a view of it."""
    found: dict[str, set[str]] = {}
    targets: list[cst.BaseExpression]
    for node in nodes.walk(place.function.body):
        if isinstance(node, cst.Assign):
            targets, value = [one.target for one in node.targets], node.value
        elif isinstance(node, cst.For | cst.CompFor):
            targets, value = [node.target], node.iter
        elif isinstance(node, cst.AnnAssign | cst.NamedExpr) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        for source in _sources(value, place):
            found.setdefault(source, set()).update(*map(names_in, targets))
    return found


def _sources(node: cst.CSTNode, place: Place) -> Iterator[str]:
    """The names whose memory an expression may share."""
    if isinstance(node, cst.Name):
        yield node.value
    elif isinstance(node, cst.Subscript):
        yield from _sources(node.value, place)
    elif isinstance(node, cst.Attribute):
        if node.attr.value in _PARTS or not place.is_tensor(node.value):
            yield from _sources(node.value, place)
    elif isinstance(node, cst.IfExp):
        yield from _sources(node.body, place)
        yield from _sources(node.orelse, place)
    elif isinstance(node, cst.BooleanOperation):
        yield from _sources(node.left, place)
        yield from _sources(node.right, place)
    elif isinstance(node, cst.NamedExpr):
        yield from _sources(node.value, place)
    elif isinstance(node, cst.Tuple | cst.List | cst.Set):
        for element in node.elements:
            yield from _sources(element.value, place)
    elif isinstance(node, cst.Dict):
        for one in node.elements:
            yield from _sources(one.value, place)
    elif isinstance(node, cst.Call) and _gives_the_same(node, place):
        if isinstance(node.func, cst.Attribute):
            yield from _sources(node.func.value, place)
        for argument in node.args:
            yield from _sources(argument.value, place)


_OF_LISTS = frozenset("append clear extend insert pop remove reverse sort".split())
"""Methods that change a list."""


def _written(function: cst.FunctionDef) -> frozenset[str]:
    """The names of what a function writes into, lists among them."""
    walked = list(nodes.walk(function.body))
    written = [one for node in walked for one in nodes.written_by(node)]
    methods = [one.func for one in walked if isinstance(one, cst.Call)]
    written += [
        m.value for m in methods if isinstance(m, cst.Attribute) and m.attr.value in _OF_LISTS
    ]
    return frozenset(root.value for one in written if isinstance(root := _root(one), cst.Name))


def _root(node: cst.BaseExpression) -> cst.BaseExpression:
    while isinstance(node, cst.Subscript | cst.Attribute):
        node = node.value
    return node


def is_deleted(name: str, place: Place) -> bool:
    """Whether the function takes a name away again."""
    deleted = (one for one in nodes.walk(place.function.body) if isinstance(one, cst.Del))
    return any(name in names_in(one.target) for one in deleted)
