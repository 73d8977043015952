"""DG401: a branch tests a tensor."""

from __future__ import annotations

import re

import libcst as cst

from pytest_dispatchguard import Finding, Place, Rule, Truth, nodes, weaker

from ...syntax import last_small, names_in, small_statements, target_names
from ..asked import asked_certainty
from ..data_flow import around, ends, loads, selectable
from ..waits import READS, Asked, only_raises, only_warns, read_of
from .branch_fixes import selected
from .clamps import as_clamp
from .conditions import asked_parts, condition_text, host_first, several_tensors, tensor_question
from .elements import indexed_by_round
from .needless import needless, without_asking


def _leaves_early(branch: cst.CSTNode | None) -> bool:
    """Whether an if does nothing but leave: the block, the loop, the function."""
    return (
        isinstance(branch, cst.If)
        and branch.orelse is None
        and isinstance(last_small(branch.body), cst.Return | cst.Break | cst.Continue)
    )


class TruthInBranch(Rule):
    """A branch tests a tensor, and the host waits for the device to have the answer.

    ## What it does

    Finds tensors in the conditions of `if`, `elif` and conditional expressions, as operands of `and`, `or`
    and `not`, and in `bool(...)`, in hot code. A branch that does more than assign new values to tensors
    (return, call, loop) is a note, unless it only writes through the mask that it asks for hits. A value that
    may or may not be a tensor, such as a parameter without annotation, is a maybe. Host values (`.shape`,
    `len()`, `is None`, flags) and CPU tensors do not count. Buffers of trainers and of averages around a
    model are notes: these are not always moved with it.

    ## Why it costs

    Python needs the answer before it can go on: the host stops until the device has worked through
    everything queued before it, and the queue runs empty.

    ## Example

    ```python
    def forward(self, x: Tensor, mask: Tensor):
        if mask.any():
            x = x.masked_fill(mask, 0.0)
        return x
    ```

    ## Instead

    ```python
    def forward(self, x: Tensor, mask: Tensor):
        return x.masked_fill(mask, 0.0)
    ```

    ## Fix safety

    Unsafe: both sides are computed and have to be of one shape, a result of another dtype is converted.
    What only writes through the mask that is asked stays, without the question. None is offered where a side
    may be undefined, draws random numbers, or does more than give one name a value.
    """

    code = "DG401"
    name = "tensor-truth-in-branch"
    origin = "x-transformers#355"
    looks_for = Truth()
    fixes = "unsafe"

    def judge(self, node: cst.BaseExpression, place: Place) -> Finding | None:
        """The first tensor of a condition that only picks a branch."""
        question = tensor_question(node, place)
        if question is None:
            return None
        certainty, who = question
        if (
            who.asker in ("while", "assert", "filter", "each")
            or only_raises(who.by)
            or only_warns(who.by)
        ):
            return None
        if host_first(node, who, place) is not None or as_clamp(who, place) is not None:
            return None
        if _asked_now_and_then(node, who, place) or _asked_above(who, place):
            return None
        shown = condition_text(node, place)
        if needless(node, who, place):
            return place.finding(
                node,
                f"`if {shown}` makes the host wait until the device has the answer, only to write through "
                "the mask, which changes nothing where it hits nothing. Write without asking.",
                certainty=certainty,
                fix=without_asking(who, place),
            )
        if not _advice_holds(node, who, place):
            certainty = weaker(certainty, "note")
        return place.finding(
            node,
            _advice(node, shown, who, place) + several_tensors(who, place),
            certainty=certainty,
            fix=selected(node, who, place) if certainty == "sure" else None,
        )


_STAYS = re.compile(r"Trainer|E(?:MA|ma)(?![a-z])|ExponentialMovingAverage")
"""Modules around a model, which often are not moved to its device, by their names."""


def _advice_holds(node: cst.BaseExpression, who: Asked, place: Place) -> bool:
    """Whether the work can surely be done without asking: both sides are values to select from, or nothing
    depends on when the answer comes."""
    if place.kind(node).optional and isinstance(node, cst.Name | cst.Attribute):
        return True
    if _own_buffer(node, place):
        return _STAYS.search(place.class_name) is None
    if who.asker == "if" and _loop_tensor(node, place)[0]:
        return not _used_as_tensor(node, place)
    if who.asker == "if" and indexed_by_round(node, place):
        return True
    if _read_as_number(node, place):
        return False
    if who.asker == "ternary" and isinstance(who.by, cst.IfExp):
        arms = (who.by.body, who.by.orelse)
        kinds = [place.kind(arm) for arm in arms]
        values = all(k.what in ("tensor", "scalar") and not k.optional for k in kinds)
        return values and any(k.is_tensor for k in kinds)
    if who.asker == "bool" and isinstance(who.by, cst.Call):
        return ends(who.by, place) == {"tensor"}
    if who.asker == "value":
        return not _gives_bool(place.function) and not _tested_later(who, place)
    return selectable(who.by, place)


def _used_as_tensor(node: cst.BaseExpression, place: Place) -> bool:
    """Whether the loop calls methods of the element that a condition asks: it needs more than its number."""
    elements = frozenset().union(*(target_names(loop) for loop in place.loops)) & names_in(node)
    return any(
        isinstance(around(load, place), cst.Attribute) for n in elements for load in loads(n, place)
    )


def _read_as_number(node: cst.BaseExpression, place: Place) -> bool:
    """Whether the function reads what a condition asks as a number as well: the host has to wait anyway."""
    names = names_in(node) - {place.self_name}
    return any(
        isinstance(read.tensor, cst.Name) and read.tensor.value in names
        for call, _ in place.calls(*READS)
        if (read := read_of(call, place)) is not None
    )


def _tested_later(who: Asked, place: Place) -> bool:
    """Whether a name is given what a condition makes, and tested: the host needs it anyway."""
    statement = around(who.whole, place)
    if isinstance(statement, cst.Assign):
        names = [t.target.value for t in statement.targets if isinstance(t.target, cst.Name)]
        return any(_is_test(load, place) for name in names for load in loads(name, place))
    return False


def _is_test(node: cst.BaseExpression, place: Place) -> bool:
    by = around(node, place)
    while isinstance(by, cst.BooleanOperation | cst.UnaryOperation):
        node, by = by, around(by, place)
    return isinstance(by, cst.If | cst.IfExp | cst.While | cst.Assert) and by.test is node


def _gives_bool(function: cst.FunctionDef) -> bool:
    """Whether a function is annotated to give a Python bool."""
    annotation = function.returns.annotation if function.returns is not None else None
    return isinstance(annotation, cst.Name) and annotation.value == "bool"


def _asked_now_and_then(node: cst.BaseExpression, who: Asked, place: Place) -> bool:
    """Whether a host test of the round spares the wait in most rounds: `i in checks and x.any()`,
    `i % 8 == 0 and …`, or an if of that kind around."""
    if not place.loops:
        return False
    tests = [test for test, holds in place.conditions if holds]
    if isinstance(who.whole, cst.BooleanOperation):
        for operand in asked_parts(who.whole, place):
            if operand is node:
                break
            tests.append(operand)
    return any(_of_the_round(test, place) for test in tests)


def _of_the_round(test: cst.BaseExpression, place: Place) -> bool:
    names = frozenset().union(*(target_names(loop) for loop in place.loops))
    if place.certainty(test) is not None or not isinstance(test, cst.BaseExpression):
        return False
    if isinstance(test, cst.BooleanOperation):
        return _of_the_round(test.left, place) or _of_the_round(test.right, place)
    if isinstance(test, cst.Comparison):
        member = isinstance(test.comparisons[0].operator, cst.In | cst.NotIn)
        modulo = "%" in place.text(test)
        counter = isinstance(test.left, cst.Name) and test.left.value in names
        return modulo or (member and counter)
    return "%" in place.text(test)


def _asked_above(who: Asked, place: Place) -> bool:
    """Whether an if above in the same chain of elifs asks a tensor as well: one chain gets one finding."""
    branch = who.by
    above = around(branch, place) if isinstance(branch, cst.If) else None
    while isinstance(above, cst.If) and above.orelse is branch:
        if any(asked_certainty(leaf, place) is not None for leaf in asked_parts(above.test, place)):
            return True
        branch, above = above, around(above, place)
    return False


def _advice(node: cst.BaseExpression, shown: str, who: Asked, place: Place) -> str:
    if place.kind(node).optional and isinstance(node, cst.Name | cst.Attribute):
        return (
            f"`{shown}` tests the truth of a tensor that may be None: the host waits for the device, "
            f"and a tensor of more than one element raises. Write `{place.short(node)} is not None`."
        )
    buffer = _own_buffer(node, place)
    if buffer:
        return (
            f"`{buffer}` is a buffer and moves to the device with the module, so the host waits when "
            "it tests the value. Keep a Python copy of the value, and test that."
        )
    if who.asker == "bool":
        return (
            f"`bool({shown})` makes the host wait until the device has the answer. Keep it as a "
            "tensor, or read it at a point where the host waits anyway."
        )
    if who.asker == "value" or (
        who.asker == "ternary" and isinstance(place.parent(node), cst.BooleanOperation)
    ):
        return (
            f"`and`, `or` and `not` convert `{shown}` to a bool, so the host waits until the device "
            "has the answer. " + _instead_of_words(node, who, place)
        )
    divisor = _divisor(node, who, place)
    if divisor:
        tests = "The conditional expression tests" if who.asker == "ternary" else "The `if` tests"
        return (
            f"{tests} `{shown}`, so the host waits until the device has the answer, only to avoid a "
            f"division by zero. Divide by `{divisor}.clamp(min=…)`; with `torch.where` the division "
            "would still run, and could make gradients NaN."
        )
    if who.asker == "ternary":
        return (
            f"The conditional expression tests `{shown}`, so the host waits until the device has the "
            "answer. Select on the device with `torch.where(condition, a, b)`."
        )
    return _advice_for_if(node, shown, who, place)


def _instead_of_words(node: cst.BaseExpression, who: Asked, place: Place) -> str:
    """What does without `and`, `or` and `not`; `~` is right for tensors alone."""
    if _tested_later(who, place):
        return "What is made of it is tested as well: ask once, after what the host knows."
    denied = ", `~`" if isinstance(place.parent(node), cst.UnaryOperation) else ""
    return f"Use `&`, `|`{denied} or `torch.logical_*`, which stay on the device."


def _advice_for_if(node: cst.BaseExpression, shown: str, who: Asked, place: Place) -> str:
    over, over_ndim = _loop_tensor(node, place)
    if over:
        flat = f"{over}.tolist()" if over_ndim == 1 else f"{over}.flatten().tolist()"
        return (
            f"`if {shown}` makes the host wait for the device in every iteration of the loop over "
            f"`{over}`. Loop over `{flat}`: one wait in all."
        )
    indexed = indexed_by_round(node, place)
    if indexed:
        return (
            f"`if {shown}` makes the host wait for the device in every iteration of the loop. Read "
            f"`{indexed}.tolist()` once before it and index the list, or work on all elements at once."
        )
    if _leaves_early(who.by):
        less = ", or test it only every few iterations" if place.loops else ""
        return (
            f"`if {shown}` makes the host wait until the device has the answer, only to leave early. "
            f"Drop the test if the code after it gives the same result{less}."
        )
    target = _only_assigned(who.by)
    if target:
        return (
            f"`if {shown}` makes the host wait until the device has the answer. Select on the "
            f"device instead: `{target} = torch.where(condition, new, {target})`, or "
            "`masked_fill` for a constant."
        )
    return (
        f"`if {shown}` makes the host wait until the device has the answer. Compute without a branch "
        "(`torch.where`, `masked_fill`), or decide by something the host already knows."
    )


_ZERO = re.compile(r"0|0?\.0*|\w*(?:eps|tiny|tol)\w*|1e-\d+", re.IGNORECASE)


def _divisor(node: cst.BaseExpression, who: Asked, place: Place) -> str:
    """What the condition compares with zero, and what it decides divides by."""
    if not (isinstance(node, cst.Comparison) and len(node.comparisons) == 1):
        return ""
    compared = {place.text(side) for side in (node.left, node.comparisons[0].comparator)}
    if not any(_ZERO.fullmatch(side) for side in compared):
        return ""
    decided: tuple[cst.CSTNode, ...] = ()
    if isinstance(who.by, cst.IfExp):
        decided = (who.by.body, who.by.orelse)
    elif isinstance(who.by, cst.If) and _only_assigned(who.by):
        decided = (who.by.body,)
    for branch in decided:
        for part in nodes.walk(branch):
            if isinstance(part, cst.BinaryOperation) and isinstance(part.operator, cst.Divide):
                divisor = place.text(part.right)
                if divisor in compared and not divisor[0].isdigit():
                    return divisor
    return ""


def _loop_tensor(node: cst.BaseExpression, place: Place) -> tuple[str, int | None]:
    """The device tensor whose elements a loop runs over, where a condition asks nothing but such an element,
    and its number of dimensions: an element of `[n, 1]` has a truth as well."""
    names = names_in(node)
    for loop in place.loops:
        if isinstance(loop, cst.For) and place.on_device(loop.iter) and names & target_names(loop):
            rest = names - target_names(loop) - {place.self_name}
            return (place.short(loop.iter), place.kind(loop.iter).ndim) if not rest else ("", None)
    return "", None


def _own_buffer(node: cst.BaseExpression, place: Place) -> str:
    """`self.x` of `self.x` or `self.x[0] == 1`, where that is a buffer."""
    if isinstance(node, cst.Comparison):
        if any(place.kind(c.comparator).what != "scalar" for c in node.comparisons):
            return ""
        node = node.left
    while isinstance(node, cst.Subscript):
        node = node.value
    if isinstance(node, cst.Attribute) and place.dotted(node).startswith(f"{place.self_name}."):
        return place.dotted(node) if "buffer" in place.attribute_values(node.attr.value) else ""
    return ""


def _only_assigned(branch: cst.CSTNode | None) -> str:
    """The one name that an if without else gives a new value, where it does nothing more."""
    if not isinstance(branch, cst.If) or branch.orelse is not None:
        return ""
    smalls = list(small_statements(branch.body))
    if len(smalls) != 1:
        return ""
    only = smalls[0]
    if (
        isinstance(only, cst.Assign)
        and len(only.targets) == 1
        and isinstance(only.targets[0].target, cst.Name)
    ):
        return only.targets[0].target.value
    return ""
