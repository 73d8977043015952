"""Whether an expression surely gives what it gave before: nothing between changes what it is made of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import libcst as cst

from pytest_dispatchguard import Place, Scene, nodes

from .allocations.aliases import others_of, spots_written
from .allocations.data import LEARNS
from .allocations.uses import given_to_writers
from .syncs.waits import RANDOM, REDUCING
from .syntax import bound_names, called_name, contains, names_in


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
    if names & bound_names(between):
        return False
    # What a statement binds, it binds when its value has been worked out.
    parts = between or [_worked_out(scene.statement, second)]
    return not _may_differ(first, parts, bool(between), place)


def _worked_out(statement: cst.CSTNode, second: cst.BaseExpression) -> cst.CSTNode:
    """The value of an assignment that an expression stands in; any other statement whole."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return statement
    only = statement.body[0]
    if not isinstance(only, cst.Assign | cst.AnnAssign) or only.value is None:
        return statement
    return only.value if contains(only.value, second) else statement


def stays(node: cst.BaseExpression, parts: Sequence[cst.CSTNode], place: Place) -> bool:
    """Whether an expression surely gives the same before and after some statements."""
    names = names_in(node)
    if parts and place.self_name in names:
        return False
    return not names & bound_names(parts) and not _may_differ(node, parts, True, place)


def changes(node: cst.BaseExpression, around: cst.CSTNode, place: Place) -> bool:
    """Whether working out what is around an expression may change what that is made of, before its turn."""
    return bool(names_in(node) & bound_names([around])) or _may_differ(node, [around], True, place)


_MODES = frozenset(
    "__enter__ __exit__ enter_context set_autocast_dtype set_autocast_enabled set_default_device "
    "set_default_dtype set_grad_enabled".split()
)
"""Calls after which the same call gives something else."""
_OF_LISTS = frozenset({"cat", "stack"})


def _may_differ(
    node: cst.BaseExpression, parts: Sequence[cst.CSTNode], whole: bool, place: Place
) -> bool:
    """Whether code may change what an expression is made of, under its name or another; `whole` says that all
    of it runs between the two times that the expression is worked out."""
    names = names_in(node)
    inside = place.once(("written inside", id(place.function)), lambda: _by_nested(place.function))
    if names & inside:
        return True
    done = [place.once(("does", id(part)), partial(_does, part, place)) for part in parts]
    lasts = frozenset().union(*(one.lasts for one in done))
    if lasts & _MODES or (
        lasts & LEARNS and not all(_is_made_here(n, place) for n in _names(node))
    ):
        return True
    if not whole and (names & bound_names(parts) or _has_lines(parts)):
        return True
    if any(names & one.filled for one in done):
        return True
    written = frozenset().union(*(one.written for one in done))
    if written and written & others_of(names, place):
        return True
    handed = frozenset().union(*(one.handed for one in done))
    return bool(handed & names) and bool(handed & _opened(node, place))


def _by_nested(function: cst.FunctionDef) -> frozenset[str]:
    """What the functions inside of a function write into, or bind for it: whoever calls one changes it."""
    nested = (
        one for one in nodes.walk(function.body) if isinstance(one, cst.FunctionDef | cst.Lambda)
    )
    return frozenset().union(*map(_reaches_out, nested))


def _reaches_out(function: cst.FunctionDef | cst.Lambda) -> frozenset[str]:
    """What a function writes into that is not its own, and the names that it binds for others."""
    walked = list(nodes.walk(function))
    shared = {
        item.name.value for one in walked if isinstance(one, cst.Nonlocal) for item in one.names
    }
    params = function.params
    given = (*params.posonly_params, *params.params, *params.kwonly_params)
    bound = (one for part in walked for one in nodes.bound_by(part))
    own = {one.value for one in bound if isinstance(one, cst.Name)} - shared
    own.update(one.name.value for one in given)
    written = spots_written(function) | shared
    return frozenset(spot for spot in written if spot.partition(".")[0] not in own)


class _Done(NamedTuple):
    """What a statement does to what it names."""

    lasts: frozenset[str]
    """The last names of what it calls."""
    written: frozenset[str]
    """What it writes into."""
    filled: frozenset[str]
    """What it gives to calls that are made for their effect, to kernels and operators of torch's library."""
    handed: frozenset[str]
    """What it gives to any calls but those of torch."""


def _does(part: cst.CSTNode, place: Place) -> _Done:
    walked = list(nodes.walk(part))
    calls = [one for one in walked if isinstance(one, cst.Call)]
    others = [call for call in calls if not _only_looks(place.name(call))]
    return _Done(
        frozenset(map(place.last_name, calls)),
        spots_written(part),
        given_to_writers(part, place),
        frozenset(name for call in others for name in _given(call)),
    )


def _only_looks(name: str) -> bool:
    """Whether a function leaves as it is what it is given, whatever that is."""
    return name.startswith(("torch.", "math.")) or name in _LOOKING


_LOOKING = frozenset(
    "abs bool enumerate float getattr hasattr id int isinstance len list max min print range repr reversed "
    "round sorted str sum tuple type typing.cast zip".split()
)


def _given(call: cst.Call) -> frozenset[str]:
    """The names that a call is given, and that of the object whose method it is."""
    given = frozenset().union(*(names_in(argument.value) for argument in call.args))
    method = call.func
    if isinstance(method, cst.Attribute) and method.attr.value not in _LOOKS:
        owner = method.value
        given |= {owner.value} if isinstance(owner, cst.Name) else frozenset()
    return given


_LOOKS = frozenset(
    "copy count cpu dim endswith float format get index int items join keys len max mean min ndimension "
    "nelement numel shape size startswith sum to type values".split()
)
"""Methods that change nothing of their object, whatever that is."""


def _has_lines(parts: Sequence[cst.CSTNode]) -> bool:
    """Whether statements share a line."""
    return any(isinstance(one, cst.SimpleStatementLine) and len(one.body) > 1 for one in parts)


def _names(node: cst.CSTNode) -> Iterator[cst.Name]:
    """The names of what an expression works on, without those of torch."""
    return (one for one in nodes.names_in(node) if one.value not in ("torch", "F", "nn"))


def _is_made_here(name: cst.Name, place: Place) -> bool:
    """Whether a name holds what a call or an operation in the function gave: no parameter, no gradient."""
    return isinstance(place.value_of(name), cst.Call | cst.BinaryOperation | cst.Comparison)


def _opened(node: cst.BaseExpression, place: Place) -> frozenset[str]:
    """The names of lists whose tensors an expression puts together, and of objects whose attributes it reads:
    whoever is given one may change it."""
    found: set[str] = set()
    for part in nodes.walk(node):
        if isinstance(part, cst.Call) and place.last_name(part) in _OF_LISTS:
            found |= names_in(part)
        elif (
            isinstance(part, cst.Attribute | cst.Subscript)
            and isinstance(part.value, cst.Name)
            and not place.kind(part.value).is_tensor
            and not place.name(part).startswith("torch.")
        ):
            found.add(part.value.value)
    return frozenset(found) - {"torch"}


def draws(node: cst.CSTNode) -> bool:
    """Whether a call gives something else each time, by its name: a random number, or the next one."""
    if not isinstance(node, cst.Call):
        return False
    last = called_name(node)
    return last in RANDOM or last in _TAKES or _DRAWS.search(last) is not None


_TAKES = frozenset({"choice", "next", "perf_counter", "pop", "popleft", "time"})
_DRAWS = re.compile(
    r"binomial|drop|rand|gumbel|poisson|rrelu|scaled_dot_product|multi_head|fractional|(?<!down)(?<!up)sample|standard_gamma"
)
"""Functions that draw random numbers, or may, by their names."""


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
        if node.func.attr.value.endswith("_") or draws(node):
            return False
        last = node.func.attr.value
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
            or (isinstance(parent, cst.Comparison) and _is_later(node, parent))
        )
        node = parent
    known.update((id(one), skipped) for one in passed)
    return skipped


def _is_later(node: cst.CSTNode, chain: cst.Comparison) -> bool:
    """Whether comparisons one after the other may end before they come to a value."""
    return node is not chain.left and not contains(chain.comparisons[0], node)


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
