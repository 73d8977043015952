"""Fixes of branches on tensors: both sides are worked out, and the device selects."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Fix, Place

from ...syntax import head_comment, small_statements
from ..data_flow import cheap, may_overflow, selectable
from ..waits import Asked
from .device_conditions import host_before, truth_on_device

_SAID = "compute both branches and select on the device; both must have the same shape"


def selected(node: cst.BaseExpression, who: Asked, place: Place) -> Fix | None:
    """`torch.where(condition, a, b)` for a branch that gives a tensor one of two values; `x is not None`
    where the truth of a tensor was asked that may be missing."""
    if place.kind(node).optional and isinstance(node, cst.Name | cst.Attribute):
        return _is_there(node, place)
    host, (asks, *_) = host_before(who.whole, place)
    condition = truth_on_device(asks, False, place)
    if condition is None or "\n" in condition:
        return None
    if isinstance(who.by, cst.IfExp) and host is None:
        arms = (who.by.body, who.by.orelse)
        if who.by.lpar or any(isinstance(arm, cst.IfExp) for arm in arms):
            return None  # of a chain of them each would be walked through to its end
        if not all(place.is_tensor(arm) and cheap(arm, place) for arm in arms):
            return None
        if any(may_overflow(arm, place) for arm in arms):
            return None
        return _fix(who.by, condition, [place.text(arm) for arm in arms], ("", ""), place)
    branch = who.by
    if (
        not isinstance(branch, cst.If)
        or branch is not place.statement
        or not selectable(branch, place)
    ):
        return None
    comment = head_comment(branch)
    if place.text(branch).count("#") > comment.count("#"):
        return None
    if host is not None:
        return _under_host(branch, host, condition, place)
    then, otherwise = _given(branch.body, place), None
    if branch.orelse is not None:
        otherwise = (
            _given(branch.orelse.body, place) if isinstance(branch.orelse, cst.Else) else None
        )
        if otherwise is None:
            return None
    if then is None or (otherwise is not None and otherwise[0] != then[0]):
        return None
    name, value = then
    other = otherwise[1] if otherwise is not None else name
    behind = f"  {comment}" if comment else ""
    return _fix(branch, condition, [value, other], (f"{name} = ", behind), place)


def _fix(
    whole: cst.CSTNode, condition: str, arms: list[str], around: tuple[str, str], place: Place
) -> Fix | None:
    if any("\n" in arm for arm in arms):
        return None
    return place.replace(
        whole,
        f"{around[0]}torch.where({condition}, {', '.join(arms)}){around[1]}",
        safety="unsafe",
        message=_SAID,
        imports=("import torch",),
    )


def _under_host(
    branch: cst.If, host: cst.BaseExpression, condition: str, place: Place
) -> Fix | None:
    """The same of a branch that asks the host first, which goes on to ask it."""
    inside, then = list(small_statements(branch.body)), _given(branch.body, place)
    if branch.orelse is not None or then is None or "\n" in then[1]:
        return None
    name, value = then
    return place.edits(
        [
            (branch.test, place.text(host)),
            (inside[0], f"{name} = torch.where({condition}, {value}, {name})"),
        ],
        safety="unsafe",
        message=_SAID,
        imports=("import torch",),
    )


def _given(body: cst.BaseSuite, place: Place) -> tuple[str, str] | None:
    """The name that a block of one statement gives a value, and the value."""
    inside = list(small_statements(body))
    if len(inside) != 1:
        return None
    one = inside[0]
    if (
        isinstance(one, cst.Assign)
        and isinstance(one.targets[0].target, cst.Name)
        and not may_overflow(one.value, place)
    ):
        return one.targets[0].target.value, place.text(one.value)
    return None


def _is_there(node: cst.BaseExpression, place: Place) -> Fix | None:
    outer = place.parent(node)
    denied = isinstance(outer, cst.UnaryOperation) and isinstance(outer.operator, cst.Not)
    whole = outer if denied and outer is not None else node
    return place.replace(
        whole,
        f"{place.text(node)} is {'' if denied else 'not '}None",
        safety="unsafe",
        message="Ask whether it is there; a tensor of one zero no longer counts as missing",
    )
