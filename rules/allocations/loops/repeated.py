"""DG517: what every round of a loop computes anew, and finds the same."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from pytest_dispatchguard import Call, Finding, Fix, Place, Rule, nodes

from ...before_loops import lines_of, may_move, outside, shares_context
from ...fresh_names import fresh_name
from ...syncs.host_code import works_on_host
from ...syntax import assigned_once, contains, has_few_rounds, line_before
from ..aliases import is_deleted, is_written_under_any_name
from ..data import COMPUTES, LEARNS
from ..devices import move_target
from ..uses import given_to_writers, is_written_to

_RESHAPES = frozenset(
    "bool contiguous expand flatten float half int long permute repeat reshape squeeze t to transpose "
    "type_as unsqueeze view".split()
)
"""Those that mostly make a view, or convert what may need no conversion: a microsecond or two."""
_MOVES = frozenset({"cuda", "to"})
_COUNTS = frozenset({"arange", "eye", "linspace"})
"""They make tensors of numbers alone, which hardly anybody writes to."""
_ASKS = frozenset({"dim", "len", "numel", "size"})
_SETTINGS = frozenset({"device", "dtype"})
_FEW = 2
"""Rounds that are not worth a word."""
_CONSTANTS = frozenset({"False", "None", "True"})


class SameInEveryRound(Rule):
    """A loop computes the same tensor in every iteration.

    ## What it does

    Finds calls of torch, and of methods of tensors, in loops and comprehensions of hot code, where nothing
    that they are given changes in the loop. Code under a condition in the loop is left alone, and so is a
    loop that learns, or replays a CUDA graph: there tensors change without being named. Left alone, too, is
    what is listed as it is (`[x.exp() for _ in range(n)]`: tensors of their own may be wanted), and in code
    that runs once per step what only reshapes or converts.

    ## Why it costs

    Every iteration pays for Python, the dispatcher and a launch, and for the work itself.

    ## Example

    ```python
    for window in windows:
        out.append(window * weights.exp())
    ```

    ## Instead

    ```python
    scale = weights.exp()
    for window in windows:
        out.append(window * scale)
    ```

    ## Fix safety

    Unsafe: before the loop, it also runs where the loop has nothing to do, and all iterations share one
    tensor. None is offered inside of a `with` in the loop.
    """

    code = "DG517"
    name = "same-in-every-iteration"
    also_compiled = False
    fixes = "unsafe"
    origin = "MONAI#f98f0fda"
    looks_for = Call(*COMPUTES, *_RESHAPES, *_MOVES, place="loop")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """The largest call that is the same in every round."""
        if not place.loops or place.scene.deferred:
            return None
        if not place.on_device(node) or works_on_host(place):
            return None
        loop = place.loops[-1]
        if has_few_rounds(loop, _FEW, place) or not _repeats(node, loop, place):
            return None
        parent = place.parent(node)
        while parent is not None:
            if isinstance(parent, cst.Call) and _repeats(parent, loop, place):
                return None
            parent = place.parent(parent)
        if is_written_to(node, place) or _is_listed(node, place) or _is_conditional(node, loop):
            return None
        names = {name.value for name in _data(node, place)}
        if _learns(loop, place) or names & given_to_writers(loop, place):
            return None
        if not _is_dear(node, place) and not place.per_call:
            return None
        return place.finding(
            node,
            f"`{place.short(node)}` does not change inside the loop, but is recomputed in every iteration; "
            "compute it once, before the loop",
            fix=_before_the_loop(node, loop, place),
        )


def _before_the_loop(node: cst.Call, loop: cst.CSTNode, place: Place) -> Fix | None:
    """A line before the loop, under the name that the result has in it, or under one of its own."""
    around = outside(loop, place)
    if around is None or node.lpar or not shares_context(loop, place):
        return None
    if not may_move(node, loop, around, place) or not _is_shared(node, loop, place):
        return None
    source = place.text(node)
    named, line = assigned_once(node, place), place.statement
    if named is not None and around is loop and not _is_commented(line):
        gone = place.without(line) if any(one is line for one in lines_of(loop)) else None
        if gone is None or is_deleted(named.value, place):
            return None
        name, pairs, more = named.value, [], [gone]
    else:
        name, more = fresh_name(source, around, place), []
        pairs = [(one, name) for one in _alike(node, loop, place)]
    if not name:
        return None
    before = line_before(around, f"{name} = {source}", place)
    return place.edits(
        pairs,
        safety="unsafe",
        message="Compute it once, before the loop; all iterations share the tensor",
        more=[before, *more],
    )


def _is_shared(node: cst.Call, loop: cst.CSTNode, place: Place) -> bool:
    """Whether all rounds may share what a call gives: nobody writes into it."""
    named = assigned_once(node, place)
    if named is not None and named.value in given_to_writers(loop, place):
        return False
    return not is_written_under_any_name(node, place)


def _alike(node: cst.Call, loop: cst.CSTNode, place: Place) -> Iterator[cst.Call]:
    """The call, and those of the same text in the loop that may share its result."""
    for one, scene in place.calls(place.last_name(node)):
        if one is node or (
            loop in scene.loops
            and place.same(one, node)
            and not one.lpar
            and not scene.deferred
            and scene.function is place.function
            and scene.withs == place.withs
            and not _is_listed(one, place)
            and not is_written_under_any_name(one, place)
        ):
            yield one


def _is_commented(line: cst.CSTNode) -> bool:
    """Whether a comment stands behind a statement, which would stay behind."""
    return isinstance(line, cst.SimpleStatementLine) and bool(line.trailing_whitespace.comment)


def _repeats(node: cst.Call, loop: cst.CSTNode, place: Place) -> bool:
    """Whether a call computes the same in every round of a loop: by torch, of local values that stay."""
    names = list(_data(node, place))
    return (
        all(_is_pure(call, place) for call in _calls(node))
        and (any(place.is_tensor(name) for name in names) or place.last_name(node) in _COUNTS)
        and all(place.assignments(name.value) for name in names)
        and place.self_name not in {name.value for name in names}
        and place.invariant(node, loop)
    )


def _calls(node: cst.Call) -> Iterator[cst.Call]:
    """A call, and those inside it."""
    return (inner for inner in nodes.walk(node) if isinstance(inner, cst.Call))


def _data(node: cst.Call, place: Place) -> Iterator[cst.Name]:
    """The names that a call works on, without those of torch, and of devices and dtypes."""
    known = {
        id(name)
        for part in nodes.walk(node)
        if isinstance(part, cst.Attribute)
        and (part.attr.value in _SETTINGS or place.name(part).startswith("torch."))
        for name in nodes.names_in(part)
    }
    return (
        name
        for name in nodes.names_in(node)
        if id(name) not in known and place.name(name) not in _ASKS | _CONSTANTS
    )


def _is_pure(call: cst.Call, place: Place) -> bool:
    """Whether a call always gives the same for the same, and changes nothing."""
    last = place.last_name(call)
    if place.name(call).startswith("torch."):
        return last in COMPUTES or last in _RESHAPES
    receiver = place.receiver(call)
    if receiver is None:
        return last in _ASKS
    if last in _MOVES and (not call.args or place.argument(call, None, "copy") is not None):
        return False  # to the current device, or into memory of its own
    return place.is_tensor(receiver) and last in COMPUTES | _RESHAPES | _MOVES | _ASKS


def _is_dear(node: cst.Call, place: Place) -> bool:
    """Whether a call, or one inside it, does more than reshape or convert."""
    return any(
        place.last_name(call) in COMPUTES or move_target(call, place) is not None
        for call in _calls(node)
    )


def _is_conditional(node: cst.CSTNode, loop: cst.CSTNode) -> bool:
    """Whether a loop reaches a node only under a condition."""
    body = loop.body if isinstance(loop, cst.For | cst.While) else loop
    branches = (cst.If, cst.IfExp, cst.Match, cst.Try, cst.TryStar, cst.BooleanOperation)
    return any(isinstance(one, branches) and contains(one, node) for one in nodes.walk(body))


def _is_listed(node: cst.Call, place: Place) -> bool:
    """Whether what a call makes is all that a comprehension lists, or that is put into a list."""
    parent = place.parent(node)
    if isinstance(parent, cst.ListComp):
        return parent.elt is node
    return (
        isinstance(parent, cst.Call)
        and parent is not node.func
        and place.last_name(parent) in ("append", "insert")
    )


def _learns(loop: cst.CSTNode, place: Place) -> bool:
    """Whether a loop changes tensors that it does not name: by an optimizer, or what updates itself."""
    return any(
        isinstance(one, cst.Call) and place.last_name(one) in LEARNS for one in nodes.walk(loop)
    )
