"""DG521: what one call computes twice."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Call, Finding, Fix, Place, Rule, Scene

from ..same_value import same_value, statements_between
from ..syncs.host_code import works_on_host
from ..syntax import assigned_once, names_in
from .data import COMPUTES
from .uses import given_to_writers, is_kept, is_written_to

_COMPUTES = COMPUTES | frozenset(
    "floor gather index_select isfinite isnan masked_fill repeat round scatter sign softplus square".split()
)
"""Functions and methods that launch something, and always give the same for the same."""


class SameComputationTwice(Rule):
    """The same tensor is computed twice in one call.

    ## What it does

    Finds calls of torch, and of methods of tensors, in hot code that were made before: with the same
    arguments, with nothing between that changes one of them, on every path, and in the same contexts and the
    same iteration of a loop. It is a note where the result is kept or returned: somebody may modify one of
    the two.

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

    Safe: the second place reads the name that holds the first result. No fix where that has no name of its
    own.
    """

    code = "DG521"
    name = "same-computation-twice"
    also_compiled = False
    origin = "stable-diffusion-webui-forge#79adfa89"
    looks_for = Call(*_COMPUTES, place="torch")
    fixes = "safe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """The largest call that was made before."""
        if place.scene.deferred or works_on_host(place) or not place.on_device(node):
            return None
        first = _made_before(node, place)
        if first is None or _is_part_of_one(node, place):
            return None
        open_to_all = any(
            is_kept(one, place) or _is_given_back(one, place) for one in (first, node)
        )
        return place.finding(
            node,
            f"`{place.short(node)}` was computed before, and launches its kernels once more; keep the first "
            "result in a name",
            certainty="note" if open_to_all else "sure",
            fix=None if open_to_all else _read_instead(node, first, place),
        )


def _made_before(node: cst.Call, place: Place) -> cst.Call | None:
    """The same call, made before on every path to this one."""
    alike = place.once(("calls by text", id(place.function)), lambda: _by_text(place))
    for first, at in alike.get(place.text(node), ()):
        if first is node:
            return None
        if (
            at.withs == place.withs
            and same_value(first, at, node, place.scene, place)
            and not given_to_writers(
                names_in(node), statements_between(at, place.scene, place) or (), place
            )
            and not is_written_to(first, place)
            and not is_written_to(node, place)
        ):
            return first
    return None


def _by_text(place: Place) -> dict[str, list[tuple[cst.Call, Scene]]]:
    """The calls of the function that compute something, by their text, in order."""
    found: dict[str, list[tuple[cst.Call, Scene]]] = {}
    for call, scene in place.calls(*_COMPUTES):
        if scene.function is place.function and not (scene.cold or scene.deferred):
            found.setdefault(place.text(call), []).append((call, scene))
    return found


def _is_part_of_one(node: cst.Call, place: Place) -> bool:
    """Whether a call is part of another that was made before."""
    parent = place.parent(node)
    while parent is not None and not isinstance(parent, cst.BaseSmallStatement):
        if isinstance(parent, cst.Call) and _made_before(parent, place):
            return True
        parent = place.parent(parent)
    return False


def _is_given_back(node: cst.Call, place: Place) -> bool:
    """Whether a result is all that is returned, or one of several."""
    parent = place.parent(node)
    while isinstance(parent, cst.Tuple | cst.List | cst.Dict | cst.BaseElement | cst.DictElement):
        parent = place.parent(parent)
    return isinstance(parent, cst.Return)


def _read_instead(node: cst.Call, first: cst.Call, place: Place) -> Fix | None:
    """The name that holds the first result in place of the second call."""
    held = assigned_once(first, place)
    if held is None or "#" in place.text(node):
        return None
    return place.replace(node, held.value, safety="safe", message=f"read `{held.value}`")
