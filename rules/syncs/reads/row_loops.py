"""What a loop goes through row by row: a counter, the rows themselves, or pieces of several rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from pytest_dispatchguard import Place, nodes

from ...syntax import VIEWS, names_in

_FEW = 4
_BY_MEMORY = re.compile(
    r"(?<![a-z])(?:chunk|tile|micro|minibatch|mini_batch|window|bucket|block|patch)"
)
"""Names of pieces that are as large as memory allows, or as the algorithm says."""
_BY_MODEL = re.compile(
    r"(?<![a-z])(?:layer|level|stage|branch|feature|feats?\b|part|modal|param|chain|scale)"
)
"""Names of what a model has a few of, whatever the size of its input."""
_OF_LAYERS = re.compile(r"(?:n|num|number_of)_?\w*(?:layers|levels|stages)")
_KEEPING = frozenset({"append", "extend", "insert", "item", "size", "stride", "tolist"})
_OF_PYTHON = frozenset(
    "enumerate float int isinstance len list max min range slice sum tuple zip".split()
)
"""Calls that launch nothing either, or that other rules tell."""
_KNOWN = frozenset({"device", "dtype", "is_cuda", "ndim", "requires_grad", "shape"})
_COMPUTING = (
    cst.AssignTarget,
    cst.AugAssign,
    cst.BinaryOperation,
    cst.Comparison,
    cst.UnaryOperation,
)
_MERGING = frozenset(
    "add cat concat concatenate hstack logaddexp logical_and logical_or max maximum min minimum stack vstack "
    "where".split()
)
"""What gathers the results of all rounds, in any order."""
_JOINING = (cst.Add, cst.Subtract, cst.BitOr, cst.BitAnd)


@dataclass(frozen=True, slots=True)
class RowLoop:
    """How a loop takes its rows."""

    over: cst.BaseExpression
    """What it goes through."""
    counters: frozenset[str] = frozenset()
    """Names for the number of the row."""
    rows: frozenset[str] = frozenset()
    """Names for rows that were taken apart before: by `split` or `unbind`."""
    bounds: frozenset[str] = frozenset()
    """Names for where a piece begins and ends, which is not where the number of the round says."""
    counts: bool = False
    """Whether it goes through a `range`."""
    carries: bool = False
    """Whether a round needs what the round before it computed."""


def row_loop(loop: cst.For | cst.CompFor, body: cst.CSTNode, place: Place) -> RowLoop | None:
    """How a loop takes rows, unless it is surely short, or goes through layers."""
    over, shown = loop.iter, place.text(loop.iter).lower()
    if isinstance(over, cst.Call) and place.name(over) == "range" and over.args:
        return None if _OF_LAYERS.search(shown) else _counting(loop, over, body, place)
    if _BY_MEMORY.search(shown):
        return None
    if _BY_MODEL.search(shown) and not _is_taken_apart(over, place):
        return None
    counters: frozenset[str] = frozenset()
    target: cst.BaseExpression = loop.target
    of = over
    if isinstance(over, cst.Call) and place.name(over) == "enumerate" and over.args:
        of = over.args[0].value
        if not isinstance(target, cst.Tuple) or len(target.elements) != 2:
            return None
        counters, target = names_in(target.elements[0].value), target.elements[1].value
    if isinstance(of, cst.List | cst.Tuple):
        return None
    if _goes_through_layers(target, of, body, place) or _carries(body, place):
        return None
    named = frozenset(name for name in names_in(target) if not _BY_MEMORY.search(name.lower()))
    rows = frozenset(_rows(target, of, place))
    bounds = _bounds(named - rows, counters, body)
    return RowLoop(over, counters, rows, bounds)


def _counting(
    loop: cst.For | cst.CompFor, over: cst.Call, body: cst.CSTNode, place: Place
) -> RowLoop | None:
    last = over.args[min(len(over.args), 2) - 1].value
    if isinstance(last, cst.Integer) and last.evaluated_value <= _FEW:
        return None
    counters = names_in(loop.target)
    bounds = _bounds(frozenset(), counters, body) if len(over.args) < 3 else frozenset()
    return RowLoop(over, counters, bounds=bounds, counts=True, carries=_carries(body, place))


def _goes_through_layers(
    target: cst.BaseExpression, of: cst.BaseExpression, body: cst.CSTNode, place: Place
) -> bool:
    """Whether a loop goes through modules, or whatever the object holds, or calls what it goes through."""
    parts = [of]
    while parts:
        part = parts.pop()
        if isinstance(part, cst.Call) and place.name(part) in ("zip", "reversed", "list", "tuple"):
            parts.extend(a.value for a in part.args)
        elif place.kind(part).what == "modules" or (
            place.self_name and place.dotted(part).startswith(f"{place.self_name}.")
        ):
            return True
    return isinstance(target, cst.Name) and any(
        isinstance(one, cst.Call)
        and isinstance(one.func, cst.Name)
        and one.func.value == target.value
        for one in nodes.walk(body)
    )


def _rows(target: cst.BaseExpression, of: cst.BaseExpression, place: Place) -> Iterator[str]:
    """The names that a loop gives to rows of tensors that were taken apart for it."""
    if isinstance(of, cst.Call) and place.name(of) == "zip" and isinstance(target, cst.Tuple):
        for element, argument in zip(target.elements, of.args, strict=False):
            yield from _rows(element.value, argument.value, place)
    elif _is_taken_apart(of, place) and isinstance(target, cst.Name):
        yield target.value


def _is_taken_apart(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression is `x.unbind()`, or `x.split(sizes)` with a size for each piece."""
    if isinstance(node, cst.Name):
        held = place.value_of(node)
        node = held if held is not None else node
    if not isinstance(node, cst.Call):
        return False
    last = place.last_name(node)
    of_torch = place.is_torch(node, "split", "unbind")
    tensor = place.argument(node, 0, "tensor") if of_torch else place.receiver(node)
    if last not in ("split", "unbind") or tensor is None or not place.on_device(tensor):
        return False
    if last == "unbind":
        return True
    sizes = place.argument(node, int(of_torch), "split_size_or_sections")
    sizes = place.argument(node, int(of_torch), "split_size") if sizes is None else sizes
    written_down = isinstance(sizes, cst.List | cst.Tuple)
    return sizes is not None and not written_down and place.kind(sizes).what == "nested"


def _bounds(named: frozenset[str], counters: frozenset[str], body: cst.CSTNode) -> frozenset[str]:
    """The names for where pieces begin and end: what the loop goes through, what is looked up by the number
    of the round, and what is computed of these."""
    found = set(named)
    assigned = [one for one in nodes.walk(body) if isinstance(one, cst.Assign | cst.AugAssign)]
    for _ in range(2):
        for one in assigned:
            if _looks_up(one.value, counters) or names_in(one.value) & found:
                targets = (
                    [t.target for t in one.targets] if isinstance(one, cst.Assign) else [one.target]
                )
                found.update(t.value for t in targets if isinstance(t, cst.Name))
    return frozenset(found)


def _looks_up(node: cst.BaseExpression, counters: frozenset[str]) -> bool:
    return any(
        isinstance(part, cst.Subscript)
        and any(names_in(e.slice) & counters for e in part.slice if isinstance(e.slice, cst.Index))
        for part in nodes.walk(node)
    )


def _carries(body: cst.CSTNode, place: Place) -> bool:
    """Whether a round needs what the round before it computed, other than to gather results."""
    leads: dict[str, set[str]] = {}
    computed: set[str] = set()
    for one in nodes.walk(body):
        if isinstance(one, cst.Assign):
            bound = {t.value for target in one.targets for t in _names_of(target.target)}
        elif isinstance(one, cst.AugAssign):
            bound = {one.target.value} if isinstance(one.target, cst.Name) else set()
        else:
            continue
        for name in bound:
            reads = names_in(one.value)
            if isinstance(one, cst.Assign) and name in reads and _gathers(one.value, name, place):
                reads -= {name}
            leads.setdefault(name, set()).update(reads)
            if _computes(one.value, place):
                computed.add(name)
    return any(_comes_back(name, leads) for name in computed)


def _comes_back(name: str, leads: dict[str, set[str]]) -> bool:
    """Whether a value is computed from what it was in the round before, by other names or not."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        for source in leads.get(waiting.pop(), ()):
            if source == name:
                return True
            if source not in seen:
                seen.add(source)
                waiting.append(source)
    return False


def _computes(value: cst.BaseExpression, place: Place) -> bool:
    """Whether a value is more than a count: it is a tensor, or what a call gives that is no builtin."""
    return place.on_device(value) or any(
        isinstance(one, cst.Call)
        and not (isinstance(one.func, cst.Name) and one.func.value in _OF_PYTHON)
        and place.last_name(one) not in _KEEPING
        for one in nodes.walk(value)
    )


def _names_of(target: cst.BaseExpression) -> Iterator[cst.Name]:
    if isinstance(target, cst.Name):
        yield target
    elif isinstance(target, cst.Tuple | cst.List):
        for element in target.elements:
            yield from _names_of(element.value)


def _gathers(value: cst.BaseExpression, name: str, place: Place) -> bool:
    """Whether an expression adds something to what a name held, and needs it for nothing else."""
    if sum(one.value == name for one in nodes.names_in(value)) != 1:
        return False
    if isinstance(value, cst.BinaryOperation) and isinstance(value.operator, _JOINING):
        return any(
            isinstance(side, cst.Name) and side.value == name for side in (value.left, value.right)
        )
    return isinstance(value, cst.Call) and place.last_name(value) in _MERGING


def is_worked_on(part: cst.CSTNode, body: cst.CSTNode, place: Place, steps: int = 2) -> bool:
    """Whether something is computed of a row, or a row is written to: not only a view made of it, or its
    number read. Names that hold it are followed, so many `steps` far."""
    by = place.once(("around", id(body)), lambda: nodes.around(body))
    outer = by.get(id(part))
    while outer is not None and _passes_on(outer, place):
        outer = by.get(id(outer))
    if isinstance(outer, cst.Call):
        plain = isinstance(outer.func, cst.Name) and outer.func.value in _OF_PYTHON
        return not plain and place.last_name(outer) not in _KEEPING
    if isinstance(outer, cst.Assign) and steps:
        names = {t.target.value for t in outer.targets if isinstance(t.target, cst.Name)}
        return any(
            one.value in names
            and not isinstance(by.get(id(one)), cst.AssignTarget)
            and is_worked_on(one, body, place, steps - 1)
            for one in nodes.names_in(body)
        )
    return isinstance(outer, _COMPUTING)


def _passes_on(outer: cst.CSTNode, place: Place) -> bool:
    """Whether what is around a row only makes a view of it, or puts it beside others."""
    if isinstance(outer, cst.Call):
        return place.last_name(outer) in VIEWS
    if isinstance(outer, cst.Attribute):
        return outer.attr.value not in _KNOWN
    return isinstance(outer, cst.Arg | cst.Element | cst.Tuple | cst.List | cst.Subscript)
