"""DG521: what one call computes twice."""

from __future__ import annotations

from functools import partial

import libcst as cst

from pytest_dispatchguard import Call, Finding, Fix, Place, Rule, Scene, nodes

from ..fresh_names import fresh_name
from ..kept_results import used_again
from ..same_value import same_value, statements_between
from ..source_text import repeats_a_call
from ..syncs.host_code import works_on_host
from ..syncs.waits import READS, SAYING
from ..syntax import assigned, called_name
from .data import COMPUTES, LEARNS
from .uses import is_kept, is_written_to

_COMPUTES = COMPUTES | frozenset(
    "floor gather index_select isfinite isnan masked_fill repeat round scatter sign softplus square".split()
)
"""Functions and methods that launch something, and always give the same for the same."""


class SameComputationTwice(Rule):
    """The same tensor is computed twice in one call.

    ## What it does

    Finds calls of torch, and of methods of tensors, in hot code that were made before: with the same
    arguments, with nothing between that may change one of them, on every path, and in the same contexts and
    the same iteration of a loop. It is a note where the result itself is kept, listed or returned: somebody
    may modify one of the two.

    ## Why it costs

    The second call launches the same kernels once more, and autograd records them once more.

    ## Example

    ```python
    low = x * torch.exp(-h)
    high = y * (1 - torch.exp(-h))
    ```

    ## Instead

    ```python
    decay = torch.exp(-h)
    low = x * decay
    high = y * (1 - decay)
    ```

    ## Fix safety

    Unsafe: the first result gets a name, or has one, and is used again; nobody may modify it in place. None
    is offered where somebody may, and where both results have names of their own: one of the two lines may be
    a copy of the other that somebody forgot to change.
    """

    code = "DG521"
    name = "same-computation-twice"
    also_compiled = False
    fixes = "unsafe"
    origin = "stable-diffusion-webui-forge#79adfa89"
    looks_for = Call(*_COMPUTES, place="torch").where(partial(repeats_a_call, names=_COMPUTES))

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """The largest call that was made before."""
        if place.scene.deferred or works_on_host(place) or not place.on_device(node):
            return None
        if _is_told_elsewhere(node, place):
            return None
        before = _made_before(node, place)
        if before is None or _is_part_of_one(node, place):
            return None
        first, scene = before
        if _is_only_told(place) and scene.conditions != place.conditions:
            return None  # of values that are wrong, now and then
        open_to_all = any(
            is_kept(one, place) or _is_handed_out(one, place) for one in (first, node)
        )
        names = [assigned(one, place) for one in (first, node)]
        mistaken = None not in names and len({name.value for name in names if name}) == 2
        return place.finding(
            node,
            f"`{place.short(node)}` was computed before, and launches its kernels once more; keep the first "
            f"result in a name{', if not one of the two is meant to be another' if mistaken else ''}",
            certainty="note" if open_to_all else "sure",
            fix=None if open_to_all or mistaken else _used_again(first, scene, node, place),
        )


def _used_again(first: cst.Call, scene: Scene, second: cst.Call, place: Place) -> Fix | None:
    """The first result in place of the second call."""
    alike = place.once(("calls by text", id(place.function)), lambda: _by_text(place))
    source = place.text(first)
    # Where it is none of the first, that one gets a name, which does for all.
    is_first = alike[source][1].get(id(first)) == 0
    name = fresh_name(source, scene.statement, place) if is_first else ""
    return used_again(first, scene, second, name, place)


def _is_told_elsewhere(node: cst.Call, place: Place) -> bool:
    """Whether a rule about reads, or about loops that compute the same in every iteration, says more."""
    parent = place.parent(node)
    if isinstance(parent, cst.Attribute) and parent.attr.value in READS:
        return True
    return bool(place.loops) and place.invariant(node, place.loops[-1])


def _made_before(node: cst.Call, place: Place) -> tuple[cst.Call, Scene] | None:
    """The same call, made before on every path to this one, and where."""
    alike = place.once(("calls by text", id(place.function)), lambda: _by_text(place))
    calls, at = alike.get(place.text(node), ([], {}))
    here = at.get(id(node), 0)
    for first, scene in reversed(calls[max(here - _MOST_BEFORE, 0) : here]):
        if (
            scene.withs == place.withs
            and same_value(first, scene, node, place.scene, place)
            and not _learns_between(scene, place)
            and not any(_is_modified(one, place) for one in (first, node))
        ):
            return first, scene
    return None


def _learns_between(scene: Scene, place: Place) -> bool:
    """Whether gradients are taken between two calls: what the first one recorded is gone then."""
    between = statements_between(scene, place.scene, place) or ()
    calls = (one for part in between for one in nodes.walk(part) if isinstance(one, cst.Call))
    return any(place.last_name(call) in LEARNS for call in calls)


_MOST_BEFORE = 4
"""How many earlier calls are compared."""


def _is_modified(node: cst.Call, place: Place) -> bool:
    """Whether the function changes a result in place: by its name, as part of the expression, or as the
    argument of what does so."""
    above: cst.CSTNode | None = place.parent(node)
    while isinstance(above, cst.Attribute | cst.Call | cst.Arg):
        if isinstance(above, cst.Call) and any(nodes.written_by(above)):
            return True
        above = place.parent(above)
    return is_written_to(node, place)


_Alike = tuple[list[tuple[cst.Call, Scene]], dict[int, int]]
"""Calls of the same text, in order, and the place of each among them."""


def _by_text(place: Place) -> dict[str, _Alike]:
    """The calls of the function that compute something, by their text."""
    found: dict[str, _Alike] = {}
    for call, scene in place.calls(*_COMPUTES):
        if scene.function is place.function and not (scene.cold or scene.deferred):
            calls, at = found.setdefault(place.text(call), ([], {}))
            at[id(call)] = len(calls)
            calls.append((call, scene))
    return found


def _is_part_of_one(node: cst.Call, place: Place) -> bool:
    """Whether a call is part of another that was made before."""
    parent = place.parent(node)
    while parent is not None and not isinstance(parent, cst.BaseSmallStatement):
        if isinstance(parent, cst.Call) and _made_before(parent, place):
            return True
        parent = place.parent(parent)
    return False


def _is_only_told(place: Place) -> bool:
    """Whether a statement prints something, or logs it, or warns of it."""
    statement = place.statement
    if isinstance(statement, cst.SimpleStatementLine):
        statement = statement.body[0]
    if not isinstance(statement, cst.Expr) or not isinstance(statement.value, cst.Call):
        return False
    return SAYING.fullmatch(called_name(statement.value)) is not None


def _is_handed_out(node: cst.Call, place: Place) -> bool:
    """Whether a result itself, or a view of it, is returned, listed, or unpacked: somebody may modify it."""
    parent = place.parent(node)
    while isinstance(parent, cst.Attribute) or (
        isinstance(parent, cst.Call) and isinstance(parent.func, cst.Attribute)
    ):
        parent = place.parent(parent)
    return isinstance(
        parent,
        cst.Return
        | cst.BaseElement
        | cst.DictElement
        | cst.Yield
        | cst.Tuple
        | cst.List
        | cst.Dict,
    )
