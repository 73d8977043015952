"""DG517: what every round of a loop computes anew, and finds the same."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from pytest_dispatchguard import Call, Finding, Place, Rule, nodes

from ..syncs.waits import works_on_host
from ..syntax import contains
from .devices import move_target
from .uses import is_written_to

_COMPUTES = frozenset(
    "abs arange argmax argmin argsort bmm cat clamp cos cumprod cumsum diag einsum exp eye linspace log "
    "log_softmax logsumexp matmul max mean min mm norm normalize outer pow prod reciprocal "
    "repeat_interleave rsqrt "
    "sigmoid sin softmax sort sqrt stack std sum tanh topk tril triu var where".split()
)
"""Functions and methods that launch something, and always give the same for the same."""
_RESHAPES = frozenset(
    "bool clone contiguous expand flatten float half int long permute repeat reshape squeeze t to transpose "
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
_LEARNS = frozenset({"backward", "step", "update"})
"""What is called where tensors change without being named."""


class SameInEveryRound(Rule):
    """A loop computes the same tensor in every iteration.

    ## What it does

    Finds calls of torch, and of methods of tensors, in loops and comprehensions of hot code, where nothing
    that they are given changes in the loop. Code under a condition in the loop is left alone, and so is a
    loop that learns: where an optimizer takes steps, tensors change without being named. In code that runs
    once per step, what only reshapes or converts is left alone as well.

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

    No fix: before the loop, it also runs where the loop has nothing to do.
    """

    code = "DG517"
    name = "same-in-every-iteration"
    also_compiled = False
    origin = "MONAI#f98f0fda"
    looks_for = Call(*_COMPUTES, *_RESHAPES, *_MOVES, place="loop")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """The largest call that is the same in every round."""
        if not place.loops or not place.on_device(node) or works_on_host(place):
            return None
        loop = place.loops[-1]
        if _is_short(loop, place) or not _repeats(node, loop, place):
            return None
        parent = place.parent(node)
        while parent is not None:
            if isinstance(parent, cst.Call) and _repeats(parent, loop, place):
                return None
            parent = place.parent(parent)
        if is_written_to(node, place) or _is_conditional(node, loop) or _learns(loop, place):
            return None
        if not _is_dear(node, place) and not place.per_call:
            return None
        return place.finding(
            node,
            f"`{place.short(node)}` is the same in every iteration of the loop, and is computed in each; "
            "compute it once, before the loop",
        )


def _is_short(loop: cst.CSTNode, place: Place) -> bool:
    """Whether a loop surely has two rounds at most."""
    over = loop.for_in.iter if isinstance(loop, cst.BaseComp) else getattr(loop, "iter", None)
    if isinstance(over, cst.List | cst.Tuple):
        return len(over.elements) <= _FEW
    if not isinstance(over, cst.Call) or place.name(over) != "range" or len(over.args) != 1:
        return False
    last = over.args[0].value
    return isinstance(last, cst.Integer) and last.evaluated_value <= _FEW


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
        if id(name) not in known and place.name(name) not in _ASKS
    )


def _is_pure(call: cst.Call, place: Place) -> bool:
    """Whether a call always gives the same for the same, and changes nothing."""
    last = place.last_name(call)
    if place.name(call).startswith("torch."):
        return last in _COMPUTES or last in _RESHAPES
    receiver = place.receiver(call)
    if receiver is None:
        return last in _ASKS
    return place.is_tensor(receiver) and last in _COMPUTES | _RESHAPES | _MOVES | _ASKS


def _is_dear(node: cst.Call, place: Place) -> bool:
    """Whether a call, or one inside it, does more than reshape or convert."""
    return any(
        place.last_name(call) in _COMPUTES or move_target(call, place) is not None
        for call in _calls(node)
    )


def _is_conditional(node: cst.CSTNode, loop: cst.CSTNode) -> bool:
    """Whether a loop reaches a node only under a condition."""
    body = loop.body if isinstance(loop, cst.For | cst.While) else loop
    branches = (cst.If, cst.IfExp, cst.Try, cst.BooleanOperation)
    return any(isinstance(one, branches) and contains(one, node) for one in nodes.walk(body))


def _learns(loop: cst.CSTNode, place: Place) -> bool:
    """Whether a loop changes tensors that it does not name: by an optimizer, or what updates itself."""
    return any(
        isinstance(one, cst.Call) and place.last_name(one) in _LEARNS for one in nodes.walk(loop)
    )
