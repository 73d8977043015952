"""DG402: an assertion or a check of values tests a tensor."""

from __future__ import annotations

import builtins
import re
from collections.abc import Sequence
from itertools import pairwise, takewhile

import libcst as cst

from pytest_dispatchguard import Finding, Place, Rule, Truth, nodes, weaker

from ...syntax import contains, is_word, last_small, names_in
from ..data_flow import loads, sources
from ..waits import Asked, only_raises, only_warns
from .check_fixes import checked_on_device
from .conditions import (
    asked_parts,
    condition_text,
    host_first,
    operands,
    several_tensors,
    tensor_question,
)


class TruthInCheck(Rule):
    """A check of values (`assert`, or an `if` that raises or warns) tests a tensor.

    ## What it does

    Finds `assert tensor`, and `if tensor:` with nothing but a `raise` or a warning in it, in hot code. Behind
    a switch that is usually off, by its name (`if error_if_nonfinite and …`), it is a note: whoever turns it
    on wants it.

    ## Why it costs

    Each check makes the host wait until the device has worked through everything queued before it, on every
    call, though it nearly never fails. Under `torch.compile` it also breaks the graph.

    ## Example

    ```python
    def forward(self, index):
        assert (index >= 0).all()
        return self.table[index]
    ```

    ## Instead

    ```python
    def forward(self, index):
        torch._assert_async((index >= 0).all())
        return self.table[index]
    ```

    ## Fix safety

    Unsafe: an asynchronous assertion fails later, and with another exception (a `RuntimeError`); values that
    an f-string would fill in are not in its text. None is offered for warnings, for checks inside `try`, and
    where the host has to work out a part of the condition in the middle of it.
    """

    code = "DG402"
    name = "tensor-truth-in-check"
    origin = "kornia#3842"
    looks_for = Truth()
    fixes = "unsafe"

    def judge(self, node: cst.BaseExpression, place: Place) -> Finding | None:
        """The first tensor of a condition that only checks values."""
        question = tensor_question(node, place)
        if question is None:
            return None
        certainty, who = question
        if host_first(node, who, place) is not None or _of_the_loop_above(who, place):
            return None
        if any(True for _ in place.calls("_assert_async")):
            return None  # the function checks on the device, and this is where it cannot
        shown = condition_text(node, place)
        made = place.value_of(node) if isinstance(node, cst.Name) else None
        of = f" (that is `{place.short(made)}`)" if made is not None else ""
        if who.asker == "assert":
            message = (
                f"`assert {shown}`{of} makes the host wait for the device on every call. "
                "`torch._assert_async(...)` checks on the device (it fails later); or check on the "
                f"host where the values are created, {_switch(place)}."
            )
        elif only_warns(who.by):
            message = (
                f"`if {shown}`{of} only decides on a warning, and makes the host wait for the device "
                "on every call. Warn where the values are created, or accumulate the flag on the "
                f"device and read it now and then, {_switch(place)}."
            )
        elif only_raises(who.by):
            message = (
                f"`if {shown}`{of} only checks values, and makes the host wait for the device on "
                "every call. Check on the device (`torch._assert_async`, which fails later and "
                f"with another exception), where the values are created, {_switch(place)}."
            )
        else:
            return None
        fix = checked_on_device(who, place)
        if _may_be_caught(who.by, place):
            certainty, fix = weaker(certainty, "note"), None
        switches = [test for test, holds in place.conditions if holds]
        switches += _asked_before(node, who)
        if _asked_for(switches, place):
            certainty = "maybe"
        elif any(_OFF_BY_DEFAULT.search(place.dotted(test)) for test in switches):
            certainty = weaker(certainty, "note")  # whoever switched it on wants it
        message += several_tensors(who, place) + _waited_before(node, place)
        return place.finding(node, message, certainty=certainty, fix=fix)


_OWN_SIZE = frozenset("unique unique_consecutive nonzero argwhere".split())


def _waited_before(node: cst.BaseExpression, place: Place) -> str:
    """That what is asked about was made, for nothing else, by a call that waits by itself; a better question
    spares that too."""
    if any(len(loads(name, place)) > 1 for name in names_in(node) if place.assignments(name)):
        return ""
    for source in sources(node, place):
        for call in nodes.walk(source):
            if isinstance(call, cst.Call) and place.last_name(call) in _OWN_SIZE:
                return (
                    f" `{place.short(call)}` before it waits as well: where the question is about all "
                    "values, ask it of the tensor itself."
                )
    return ""


_ANSWERED = frozenset({"ArithmeticError", "FloatingPointError", "OverflowError"})
"""Exceptions of Python by which trainers say that a step is to be skipped."""


def _may_be_caught(branch: cst.CSTNode | None, place: Place) -> bool:
    """Whether somebody may well answer to what a check raises: an exception of the project's own, or one that
    the function itself catches."""
    if isinstance(branch, cst.Assert):
        return _is_caught("AssertionError", branch, place)
    if not isinstance(branch, cst.If):
        return False
    last = last_small(branch.body)
    raised = last.exc if isinstance(last, cst.Raise) else None
    raised = raised.func if isinstance(raised, cst.Call) else raised
    if not isinstance(raised, cst.Name):
        return False
    name = raised.value
    return not hasattr(builtins, name) or name in _ANSWERED or _is_caught(name, branch, place)


def _is_caught(name: str, check: cst.CSTNode, place: Place) -> bool:
    """Whether a check stands in a `try` that answers to an exception."""
    answers = {name, "BaseException", "Exception"}
    return any(
        isinstance(node, cst.Try)
        and contains(node.body, check)
        and any(one.type is None or names_in(one.type) & answers for one in node.handlers)
        for node in nodes.walk(place.function)
    )


_ENDED = re.compile(r"converg|(?:^|_)(?:done|finished|success|reached|accepted)(?:_|$)")


def _of_the_loop_above(who: Asked, place: Place) -> bool:
    """Whether a check asks how the loop before it has ended: what its head has just asked, or whether it
    converged. That is no check of values."""
    leaves = list(asked_parts(who.whole, place))
    if any(_ENDED.search(name) for leaf in leaves for name in names_in(leaf)):
        return True
    before = next((a for a, b in pairwise(place.block) if b is place.statement), None)
    if not isinstance(before, cst.While | cst.If):
        return False
    asked_there = list(asked_parts(before.test, place))
    return any(place.same(leaf, other) for leaf in leaves for other in asked_there)


_OFF_BY_DEFAULT = re.compile(r"(?:^|[._])(?:error_if|raise_if|raise_on|fail_on|debug|sanity)")
_SWITCH = re.compile(r"validat|check|debug|verif|strict|sanity")


def _switch(place: Place) -> str:
    """How a check that stands under a switch is turned off."""
    for test, holds in place.conditions:
        name = place.dotted(test)
        if holds and name and _SWITCH.search(name):
            return f"or never (`{name}=False` turns it off)"
    return "or only behind a debug option"


def _asked_before(node: cst.BaseExpression, who: Asked) -> list[cst.BaseExpression]:
    """What has to hold for a tensor of a condition to be asked: the operands of `and` before it."""
    whole = who.whole
    if not isinstance(whole, cst.BooleanOperation) or not isinstance(whole.operator, cst.And):
        return []
    return list(takewhile(lambda part: not contains(part, node), operands(whole)))


def _asked_for(switches: Sequence[cst.BaseExpression], place: Place) -> bool:
    """Whether a check is made only where the caller asks for it: under a parameter that is False unless
    given."""
    params = place.function.params
    off = {
        p.name.value for p in (*params.params, *params.kwonly_params) if is_word(p.default, "False")
    }
    return any(isinstance(test, cst.Name) and test.value in off for test in switches)
