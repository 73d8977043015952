"""Which names of a function may hold one tensor, and whether the function writes into it by any of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import libcst as cst

from pytest_dispatchguard import Place, nodes

from ..syntax import VIEWS, names_in
from .data import COMPUTES

_ALIKE = VIEWS | frozenset(
    "as_tensor atleast_1d atleast_2d atleast_3d bool broadcast_to chunk conj contiguous cpu cuda diagonal "
    "double dropout expand_as float half hsplit int long moveaxis movedim narrow positive ravel reshape_as "
    "resolve_conj swapaxes swapdims tensor_split to type type_as unflatten unfold vsplit".split()
)
_GIVES_NEW = COMPUTES | {"backward", "item", "numel", "size", "step", "tolist"}
_PARTS = frozenset({"T", "data", "grad", "H", "imag", "mH", "mT", "real"})


def is_written_under_any_name(node: cst.BaseExpression, place: Place) -> bool:
    """Whether the function may write into what an expression gives: by a name of it, of a part or a view, or
    of a list that holds it."""
    return _are_written(_held_by(node, place), place)


def is_written_through(node: cst.BaseExpression, place: Place) -> bool:
    """Whether the function may write into the tensor that an expression is, or is a part or a view of."""
    return _are_written(frozenset(_sources(node, place)), place)


def _are_written(names: frozenset[str], place: Place) -> bool:
    written = place.once(("written", id(place.function)), lambda: _written(place.function))
    return bool(names) and not written.isdisjoint(names | others_of(names, place))


def others_of(names: frozenset[str], place: Place) -> frozenset[str]:
    """The names that may hold the same tensors as others do, or a part or a view of them."""
    key = ("others of", id(place.function), names)
    return place.once(key, partial(_closure, names, place))


def _closure(names: frozenset[str], place: Place) -> frozenset[str]:
    shared = place.once(("aliases", id(place.function)), lambda: _shared(place))
    found, waiting = set(names), list(names)
    while waiting:
        for name in shared.get(waiting.pop(), ()):
            if name not in found:
                found.add(name)
                waiting.append(name)
    return frozenset(found - names)


def _held_by(node: cst.BaseExpression, place: Place) -> frozenset[str]:
    """The names that a statement gives what an expression makes, or what holds or shares it."""
    inside: cst.CSTNode = node
    parent: cst.CSTNode | None = place.parent(node)
    iterated = place.once(("iterated", id(place.function)), lambda: _iterated(place.function))
    while parent is not None and id(inside) not in iterated:
        if isinstance(parent, cst.Assign):
            return frozenset().union(*(_spots(target.target) for target in parent.targets))
        if isinstance(parent, cst.AnnAssign | cst.NamedExpr):
            return _spots(parent.target)
        if isinstance(parent, cst.BinaryOperation | cst.Comparison | cst.UnaryOperation):
            return frozenset()
        owner = _list_changed_by(parent)
        if owner is not None:
            return _spots(owner)
        if isinstance(parent, cst.Call) and not _gives_the_same(parent, place):
            return frozenset()
        inside, parent = parent, place.parent(parent)
    return iterated.get(id(inside), frozenset())


def _iterated(function: cst.FunctionDef) -> dict[int, frozenset[str]]:
    """By what loops run over: the names of what they take from it."""
    return {
        id(one.iter): _spots(one.target)
        for one in nodes.walk(function.body)
        if isinstance(one, cst.For | cst.CompFor)
    }


def _list_changed_by(node: cst.CSTNode) -> cst.BaseExpression | None:
    """The list that a call changes, and may put what it is given into."""
    called = node.func if isinstance(node, cst.Call) else None
    if isinstance(called, cst.Attribute) and called.attr.value in _OF_LISTS:
        return called.value
    return None


def _gives_the_same(call: cst.Call, place: Place) -> bool:
    """Whether a call may give what it is given, or a view of it."""
    if place.last_name(call) in _GIVES_NEW:
        return False
    if isinstance(call.func, cst.Attribute) and not isinstance(call.func.value, cst.Name):
        return call.func.attr.value in _ALIKE
    owner = place.receiver(call)
    if place.name(call).startswith("torch.") or (owner is not None and place.is_tensor(owner)):
        return place.last_name(call) in _ALIKE
    return True


def _shared(place: Place) -> dict[str, set[str]]:
    """Of each name: those that are given it, or a part or a view of it, and those that it was given."""
    found: dict[str, set[str]] = {}

    def share(value: cst.CSTNode, targets: Iterable[cst.CSTNode]) -> None:
        names = frozenset().union(*map(_spots, targets))
        for source in _sources(value, place):
            found.setdefault(source, set()).update(names)
            for name in names:
                found.setdefault(name, set()).add(source)

    for node in nodes.walk(place.function.body):
        if isinstance(node, cst.Assign):
            share(node.value, [one.target for one in node.targets])
        elif isinstance(node, cst.For | cst.CompFor):
            share(node.iter, [node.target])
        elif isinstance(node, cst.AnnAssign | cst.NamedExpr) and node.value is not None:
            share(node.value, [node.target])
        elif (owner := _list_changed_by(node)) is not None:
            for argument in node.args:
                share(argument.value, [owner])
    return found


def _sources(node: cst.CSTNode, place: Place) -> Iterator[str]:
    """The names whose memory an expression may share."""
    if isinstance(node, cst.Name):
        yield node.value
    elif isinstance(node, cst.Subscript):
        yield from _sources(node.value, place)
    elif isinstance(node, cst.Attribute):
        if node.attr.value in _PARTS:
            yield from _sources(node.value, place)
        if not place.is_tensor(node.value):
            yield from _spots(node)
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
    lists = (_list_changed_by(one) for one in nodes.walk(function.body))
    changed = (_spots(one) for one in lists if one is not None)
    return spots_written(function.body).union(*changed)


def spots_written(node: cst.CSTNode) -> frozenset[str]:
    """What code writes into: names, and attributes with their dots."""
    written = (one for part in nodes.walk(node) for one in nodes.written_by(part))
    return frozenset().union(*map(_spots, written))


def _spots(node: cst.CSTNode) -> frozenset[str]:
    """The names and attributes (`self.weight`) that an expression or a target is, or is an element of."""
    if isinstance(node, cst.Tuple | cst.List):
        return frozenset().union(*(_spots(element.value) for element in node.elements))
    if isinstance(node, cst.StarredElement | cst.Subscript):
        return _spots(node.value)
    if isinstance(node, cst.Name):
        return frozenset({node.value})
    if isinstance(node, cst.Attribute) and node.attr.value in _PARTS:
        return _spots(node.value)
    if isinstance(node, cst.Attribute):
        return frozenset(f"{spot}.{node.attr.value}" for spot in _spots(node.value))
    return frozenset()


def is_deleted(name: str, place: Place) -> bool:
    """Whether the function takes a name away again."""
    deleted = (one for one in nodes.walk(place.function.body) if isinstance(one, cst.Del))
    return any(name in names_in(one.target) for one in deleted)
