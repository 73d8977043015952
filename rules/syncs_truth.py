"""DG40x: Python asks a tensor for its truth, and the host waits until the device has the answer."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

import libcst as cst

from pytest_dispatchguard import (
    Call,
    Certainty,
    Finding,
    Fix,
    Place,
    Rule,
    Truth,
    nodes,
    weaker,
)

from ._sync_uses import around, ends, loads, selectable, sources
from ._syncs import (
    READS,
    Asked,
    asked,
    asked_certainty,
    last_small,
    names_in,
    on_host_by_trade,
    only_raises,
    only_warns,
    read_of,
    say,
    small_statements,
    target_names,
    tell,
    waits_inside,
)


def _question(node: cst.BaseExpression, place: Place) -> tuple[Certainty, Asked] | None:
    """How surely the truth of a device tensor is asked here, and by whom; None where it is not, and for all
    but the first tensor of a condition."""
    certainty = asked_certainty(node, place)
    if certainty is None or waits_inside(node, place) or on_host_by_trade(place):
        return None
    if _of_host_data(node, place):
        certainty = "maybe"
    who = asked(node, place)
    first = _asked_of(who.whole, place).first.get(certainty)
    return None if first is not None and first is not node else (certainty, who)


class _Condition(NamedTuple):
    """What a whole condition asks."""

    first: Mapping[Certainty, cst.BaseExpression]
    """The first of what is, as surely, a tensor."""
    tensors: int


def _asked_of(whole: cst.BaseExpression, place: Place) -> _Condition:
    """What a whole condition asks; told once, however many operands it has."""
    return place.once(("asked of", id(whole)), lambda: _condition(whole, place))


def _condition(whole: cst.BaseExpression, place: Place) -> _Condition:
    first: dict[Certainty, cst.BaseExpression] = {}
    tensors = 0
    for leaf in _leaves(whole, place):
        certainty = asked_certainty(leaf, place)
        if certainty is not None:
            first.setdefault(certainty, leaf)
            tensors += 1
    return _Condition(first, tensors)


def _of_host_data(node: cst.BaseExpression, place: Place) -> bool:
    """Whether a name of the condition holds what a function of the project makes of texts and numbers alone:
    that is made on the CPU, unless the function moves it."""
    for name in nodes.names_in(node):
        made = place.value_of(name)
        if isinstance(made, cst.Call) and place.callee(made) is not None and made.args:
            kinds = [place.kind(a.value) for a in made.args]
            parts = [k.element or k if k.what == "nested" else k for k in kinds]
            if all(k.what in ("scalar", "text") for k in parts):
                return True
    return False


def _leaves(whole: cst.BaseExpression, place: Place) -> Iterator[cst.BaseExpression]:
    """What a condition asks, chains taken apart, in order."""
    stack = [whole]
    while stack:
        node = stack.pop()
        if isinstance(node, cst.BooleanOperation):
            stack += (node.right, node.left)
        elif isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
            stack.append(node.expression)
        elif isinstance(node, cst.Call) and place.name(node) == "bool" and len(node.args) == 1:
            stack.append(node.args[0].value)
        elif isinstance(node, cst.NamedExpr):
            stack.append(node.value)
        else:
            yield node


def _more(who: Asked, place: Place) -> str:
    """What is to be said where one condition asks several tensors."""
    count = _asked_of(who.whole, place).tensors
    if count < 2:
        return ""
    return (
        f" The condition asks {count} tensors, each in a wait of its own: join them with `&` or "
        "`|` and ask once at most."
    )


def _shown(node: cst.BaseExpression, place: Place) -> str:
    """The condition as the message names it: `not x.any()` with its not, of a chain the operand."""
    parent = place.parent(node)
    if isinstance(parent, cst.UnaryOperation):
        return say(place, parent)
    return say(place, node)


def _leaves_early(branch: cst.CSTNode | None) -> bool:
    """Whether an if does nothing but leave: the block, the loop, the function."""
    return (
        isinstance(branch, cst.If)
        and branch.orelse is None
        and isinstance(last_small(branch.body), cst.Return | cst.Break | cst.Continue)
    )


class TruthInBranch(Rule):
    """A branch asks for the truth of a tensor, and the host waits for the device to answer.

    ## What it does

    Finds tensors in the conditions of `if`, `elif` and ternaries, as operands of `and`, `or` and `not`, and
    in `bool(...)`, in hot code. Branches that do more than give tensors new values (return, call, loop) are
    notes. What is only perhaps a tensor, a parameter without annotation that nothing in the function proves
    to be one, is a maybe. Host values (`.shape`, `len()`, `is None`, flags) and
    tensors that were built on the CPU are no tensors in this sense.

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

    No fix: whether both sides may be computed is for a reader to decide.
    """

    code = "DG401"
    name = "tensor-truth-in-branch"
    origin = "x-transformers#355"
    looks_for = Truth()

    def judge(self, node: cst.BaseExpression, place: Place) -> Finding | None:
        """The first tensor of a condition that only picks a branch."""
        question = _question(node, place)
        if question is None:
            return None
        certainty, who = question
        if (
            who.asker in ("while", "assert", "filter", "each")
            or only_raises(who.by)
            or only_warns(who.by)
        ):
            return None
        if _host_first(node, who, place) is not None or _clamp(who, place) is not None:
            return None
        if _asked_now_and_then(node, who, place) or _asked_above(who, place):
            return None
        shown = _shown(node, place)
        if not _advice_holds(node, who, place):
            certainty = weaker(certainty, "note")
        return tell(
            place, node, _advice(node, shown, who, place) + _more(who, place), certainty=certainty
        )


def _advice_holds(node: cst.BaseExpression, who: Asked, place: Place) -> bool:
    """Whether the work can surely be done without asking: both sides are values to select from, or nothing
    depends on when the answer comes."""
    if place.kind(node).optional and isinstance(node, cst.Name | cst.Attribute):
        return True
    if _own_buffer(node, place):
        return True
    if who.asker == "if" and _loop_tensor(node, place)[0]:
        return not _used_as_tensor(node, place)
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
        return not _gives_bool(place.function)
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
        for operand in _leaves(who.whole, place):
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
        told = isinstance(test.comparisons[0].operator, cst.In | cst.NotIn)
        modulo = "%" in place.text(test)
        return modulo or (told and bool(names_in(test.left) & names))
    return "%" in place.text(test)


def _asked_above(who: Asked, place: Place) -> bool:
    """Whether an if above in the same chain of elifs asks a tensor as well: one chain gets one finding."""
    branch = who.by
    above = around(branch, place) if isinstance(branch, cst.If) else None
    while isinstance(above, cst.If) and above.orelse is branch:
        if any(asked_certainty(leaf, place) is not None for leaf in _leaves(above.test, place)):
            return True
        branch, above = above, around(above, place)
    return False


def _advice(node: cst.BaseExpression, shown: str, who: Asked, place: Place) -> str:
    if place.kind(node).optional and isinstance(node, cst.Name | cst.Attribute):
        return (
            f"`{shown}` asks a tensor that may be None for its truth: the host waits for the "
            f"device, and a tensor of more than one element raises. Ask `{say(place, node)} is "
            "not None`."
        )
    buffer = _own_buffer(node, place)
    if buffer:
        return (
            f"`{shown}` reads `{buffer}`, a buffer that moves to the device with the module, and "
            "the host waits for it. Keep a Python value beside it for the host to ask."
        )
    if who.asker == "bool":
        return (
            f"`bool({shown})` makes the host wait until the device has the answer. Keep it as a "
            "tensor, or read it where the host has to wait anyway."
        )
    if who.asker == "value" or (
        who.asker == "ternary" and isinstance(place.parent(node), cst.BooleanOperation)
    ):
        return (
            f"`and`, `or` and `not` ask `{shown}` for its truth, so the host waits until the "
            "device has the answer. Use `&`, `|`, `~` or `torch.logical_*`, which stay on the "
            "device."
        )
    divisor = _divisor(node, who, place)
    if divisor:
        asks = "The ternary asks" if who.asker == "ternary" else "The `if` asks"
        return (
            f"{asks} `{shown}` for its truth, so the host waits until the device has the answer, "
            f"only not to divide by zero. Divide by `{divisor}.clamp(min=…)`; with `torch.where` "
            "the division would still run, and give gradients that are not numbers."
        )
    if who.asker == "ternary":
        return (
            f"The ternary asks `{shown}` for its truth, so the host waits until the device has "
            "the answer. Select on the device with `torch.where(condition, a, b)`."
        )
    over, over_ndim = _loop_tensor(node, place)
    if over:
        flat = f"{over}.tolist()" if over_ndim == 1 else f"{over}.flatten().tolist()"
        return (
            f"`if {shown}` makes the host wait for the device in every round, for what the loop "
            f"over `{over}` has taken apart. Loop over `{flat}`: one wait for all rounds."
        )
    if _leaves_early(who.by):
        less = ", or ask every few rounds only" if place.loops else ""
        return (
            f"`if {shown}` makes the host wait until the device has the answer, only to leave "
            f"early. Drop the test where going on gives the same result{less}."
        )
    target = _only_assigned(who.by)
    if target:
        return (
            f"`if {shown}` makes the host wait until the device has the answer. Select on the "
            f"device instead: `{target} = torch.where(condition, new, {target})`, or "
            "`masked_fill` for a constant."
        )
    return (
        f"`if {shown}` makes the host wait until the device has the answer. Compute without "
        "asking (`torch.where`, `masked_fill`), or decide by something the host already knows."
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
            return (say(place, loop.iter), place.kind(loop.iter).ndim) if not rest else ("", None)
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


class TruthInCheck(Rule):
    """A check of values (`assert`, or an `if` that raises or warns) asks for the truth of a tensor.

    ## What it does

    Finds `assert tensor`, and `if tensor:` with nothing but a `raise` or a warning in it, in hot code.

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

    No fix: an asynchronous assertion fails later, and with another exception.
    """

    code = "DG402"
    name = "tensor-truth-in-check"
    origin = "kornia#3842"
    looks_for = Truth()

    def judge(self, node: cst.BaseExpression, place: Place) -> Finding | None:
        """The first tensor of a condition that only checks values."""
        question = _question(node, place)
        if question is None:
            return None
        certainty, who = question
        if _host_first(node, who, place) is not None or _of_the_loop_above(who, place):
            return None
        if any(True for _ in place.calls("_assert_async")):
            return None  # the function checks on the device, and this is where it cannot
        shown = _shown(node, place)
        made = place.value_of(node) if isinstance(node, cst.Name) else None
        of = f" (that is `{say(place, made)}`)" if made is not None else ""
        if who.asker == "assert":
            message = (
                f"`assert {shown}`{of} makes the host wait for the device on every call. "
                "`torch._assert_async(...)` checks on the device (it fails later); or check on "
                f"the host where the values are made, {_switch(place)}."
            )
        elif only_warns(who.by):
            message = (
                f"`if {shown}`{of} is asked for a warning only, and makes the host wait for the device "
                "on every call. Warn where the values are made, or collect the answers on the "
                f"device and ask once in a while, {_switch(place)}."
            )
        elif only_raises(who.by):
            message = (
                f"`if {shown}`{of} only checks values, and makes the host wait for the device on "
                "every call. Check on the device (`torch._assert_async`, which fails later and "
                f"with another exception), where the values are made, {_switch(place)}."
            )
        else:
            return None
        if _may_be_caught(who.by):
            certainty = weaker(certainty, "note")
        if _asked_for(place):
            certainty = "maybe"
        message += _more(who, place) + _waited_before(node, place)
        return tell(place, node, message, certainty=certainty)


_OWN_SIZE = frozenset("unique unique_consecutive nonzero argwhere".split())


def _waited_before(node: cst.BaseExpression, place: Place) -> str:
    """That what is asked about was made by a call that waits by itself; a better question spares that too."""
    for source in sources(node, place):
        for call in nodes.walk(source):
            if isinstance(call, cst.Call) and place.last_name(call) in _OWN_SIZE:
                return (
                    f" `{say(place, call)}` before it waits as well: ask the values themselves, "
                    "`((x == 0) | (x == 1)).all()`."
                )
    return ""


def _may_be_caught(branch: cst.CSTNode | None) -> bool:
    """Whether what is raised is an exception of the project's own, which its callers may well answer to."""
    if not isinstance(branch, cst.If):
        return False
    last = last_small(branch.body)
    raised = last.exc if isinstance(last, cst.Raise) else None
    raised = raised.func if isinstance(raised, cst.Call) else raised
    return isinstance(raised, cst.Name) and not hasattr(builtins, raised.value)


_ENDED = re.compile(r"converg|(?:^|_)(?:done|finished|success|reached|accepted)(?:_|$)")


def _of_the_loop_above(who: Asked, place: Place) -> bool:
    """Whether a check asks how the loop before it has ended: what its head has just asked, or whether it
    converged. That is no check of values."""
    leaves = list(_leaves(who.whole, place))
    if any(_ENDED.search(name) for leaf in leaves for name in names_in(leaf)):
        return True
    before = next((a for a, b in pairwise(place.block) if b is place.statement), None)
    if not isinstance(before, cst.While | cst.If):
        return False
    asked_there = list(_leaves(before.test, place))
    return any(place.same(leaf, other) for leaf in leaves for other in asked_there)


_SWITCH = re.compile(r"validat|check|debug|verif|strict|sanity")


def _switch(place: Place) -> str:
    """How a check that stands under a switch is turned off."""
    for test, holds in place.conditions:
        name = place.dotted(test)
        if holds and name and _SWITCH.search(name):
            return f"or not at all (`{name}=False` turns it off)"
    return "or only when asked to"


def _asked_for(place: Place) -> bool:
    """Whether a check is made only where the caller asks for it: under a parameter that is False unless
    given."""
    params = place.function.params
    off = {
        p.name.value
        for p in (*params.params, *params.kwonly_params)
        if isinstance(p.default, cst.Name) and p.default.value == "False"
    }
    return any(
        holds and isinstance(test, cst.Name) and test.value in off
        for test, holds in place.conditions
    )


class TruthInWhile(Rule):
    """A `while` loop asks for the truth of a tensor in every round.

    ## What it does

    Finds tensors in the conditions of `while` loops in hot code.

    ## Why it costs

    The host waits for the device in every round, so it can never run ahead: each round costs a round trip.

    ## Example

    ```python
    while (residual > tolerance).any():
        x, residual = step(x)
    ```

    ## Instead

    ```python
    for i in range(max_rounds):
        x, residual = step(x)
        if i % 8 == 7 and bool((residual <= tolerance).all()):
            break
    ```

    ## Fix safety

    No fix: how many rounds may be run in vain is for a reader to decide.
    """

    code = "DG403"
    name = "tensor-truth-in-while"
    origin = "rl#3301"
    looks_for = Truth()

    def judge(self, node: cst.BaseExpression, place: Place) -> Finding | None:
        """The first tensor of a loop's condition."""
        question = _question(node, place)
        if question is None or question[1].asker != "while":
            return None
        certainty, who = question
        if _host_first(node, who, place) is not None:
            return None
        return tell(
            place,
            node,
            f"`while {_shown(node, place)}` makes the host wait for the device in every round. "
            "Count rounds on the host, and ask the tensor only every few rounds, or not at all "
            "where the count is known.",
            certainty=certainty,
        )


class TruthPerElement(Rule):
    """The truth of one tensor after the other is asked: in `any()`, `all()`, or a comprehension's filter.

    ## What it does

    Finds `any(...)` and `all(...)` of Python over tensors, and comprehensions that filter by a tensor.

    ## Why it costs

    The host waits for the device once per element instead of once, or not at all.

    ## Example

    ```python
    bad = any(g.isnan().any() for g in grads)
    ```

    ## Instead

    ```python
    bad = torch.stack([g.isnan().any() for g in grads]).any()
    ```

    ## Fix safety

    No fix: the result becomes a tensor, which whoever reads it has to expect.
    """

    code = "DG404"
    name = "tensor-truth-per-element"
    origin = "DeepSpeed#4915"
    looks_for = (Truth(), Call("any", "all", place="bare"))

    def judge(self, node: cst.BaseExpression, place: Place) -> Finding | None:
        """A filter, an element, or the whole that any() or all() runs over."""
        if isinstance(node, cst.Call) and place.name(node) in ("any", "all"):
            return self._of_iterable(node, place)
        question = _question(node, place)
        if question is None:
            return None
        certainty, who = question
        if who.asker == "each" and isinstance(who.by, cst.Call):
            how = place.last_name(who.by)
            element = say(place, who.whole)
            message = (
                f"`{how}(...)` asks one tensor after the other (`{element}`) for its truth, and "
                f"the host waits for the device each time. `torch.stack([...]).{how}()` gives one "
                "tensor, to be read once or not at all."
            )
        elif who.asker == "filter":
            message = (
                f"The filter `if {say(place, who.whole)}` reads one tensor after the other, and "
                "the host waits for the device each time. Read all of them at once (`.tolist()` "
                "of one tensor) and filter on the host."
            )
        else:
            return None
        return tell(place, node, message, certainty=certainty)

    def _of_iterable(self, call: cst.Call, place: Place) -> Finding | None:
        if len(call.args) != 1 or on_host_by_trade(place):
            return None
        given = call.args[0].value
        if isinstance(given, cst.GeneratorExp | cst.ListComp):
            return None
        how, shown = place.last_name(call), say(place, given)
        kind = place.kind(given)
        if kind.on_device:
            return tell(
                place,
                call,
                f"Python's `{how}({shown})` takes the tensor apart and waits for the device once "
                f"per element. `{shown}.{how}()` is one operation.",
            )
        element = kind.element
        if kind.what == "nested" and kind.sure and element is not None and element.on_device:
            return tell(
                place,
                call,
                f"`{how}({shown})` asks one tensor after the other for its truth, and the host "
                f"waits for the device each time. `torch.stack(...).{how}()` gives one tensor, "
                "to be read once or not at all.",
            )
        return None


class DeviceBeforeHost(Rule):
    """A boolean chain asks a tensor first, where a host value that is at hand could spare the wait.

    ## What it does

    Finds `and`/`or` chains that ask for the truth of a tensor before a plain host test.

    ## Why it costs

    `and` and `or` stop at the first operand that decides. Asking the tensor first makes the host wait for the
    device even where the host test alone decides.

    ## Example

    ```python
    if (diff >= 0).all() and q_len != 1:
        ...
    ```

    ## Instead

    ```python
    if q_len != 1 and (diff >= 0).all():
        ...
    ```

    ## Fix safety

    Unsafe: the operands are evaluated in another order. That shows only where one of them raises or has
    side effects and the other decides.
    """

    code = "DG405"
    name = "device-test-before-host-test"
    origin = "transformers#33570"
    looks_for = Truth()
    fixes = "unsafe"

    def judge(self, node: cst.BaseExpression, place: Place) -> Finding | None:
        """The first tensor of a chain, where a host test comes later."""
        question = _question(node, place)
        if question is None:
            return None
        found = _host_first(node, question[1], place)
        if found is None:
            return None
        chain, operands, host = found
        word = "and" if isinstance(chain.operator, cst.And) else "or"
        return tell(
            place,
            node,
            f"`{say(place, node)}` makes the host wait for the device before "
            f"`{say(place, host)}`, which the host knows, is even asked. Ask the host's test "
            f"first: where it decides the `{word}`, nobody asks the tensor.",
            certainty=question[0],
            fix=self._fix(operands, place),
        )

    def _fix(self, operands: list[cst.BaseExpression], place: Place) -> Fix | None:
        """The operands in their new order, each in the place of another: what is between them stays."""
        ordered = [o for o in operands if _plain_host(o, place)]
        ordered += [o for o in operands if not _plain_host(o, place)]
        pairs = []
        for old, new in zip(operands, ordered, strict=True):
            if old is not new:
                # A place keeps the brackets around it.
                bare = new.with_changes(lpar=(), rpar=()) if getattr(old, "lpar", ()) else new
                pairs.append((old, place.text(bare)))
        if any("\n" in text for _, text in pairs):
            return None
        message = "Ask the host's test first; the operands are evaluated in another order"
        return place.edits(pairs, safety="unsafe", message=message)


def _host_first(
    node: cst.BaseExpression, who: Asked, place: Place
) -> tuple[cst.BooleanOperation, list[cst.BaseExpression], cst.BaseExpression] | None:
    """The chain in which a tensor is asked before a host test, its operands, and the test in question. Only
    for the first tensor of a chain whose value is used for its truth alone."""
    if who.asker == "value":
        return None
    chain = _chain_around(node, place)
    if chain is None:
        return None
    operands = _operands(chain)
    if not all(_asks_tensor(o, place) or _plain_host(o, place) for o in operands):
        return None
    first = next(i for i, o in enumerate(operands) if _asks_tensor(o, place))
    if _bare(operands[first]) is not node:
        return None
    goes_on = isinstance(
        chain.operator, cst.And
    )  # with this answer the tensor is asked all the same
    later = [
        o for o in operands[first + 1 :] if _plain_host(o, place) and place.usual(o) is not goes_on
    ]
    return (chain, operands, later[0]) if later else None


def _chain_around(node: cst.BaseExpression, place: Place) -> cst.BooleanOperation | None:
    """The whole chain of one operator that a node is an operand of."""
    parent = place.parent(node)
    while isinstance(parent, cst.UnaryOperation):
        parent = place.parent(parent)
    if not isinstance(parent, cst.BooleanOperation):
        return None
    chain = parent
    while True:
        outer = place.parent(chain)
        if (
            isinstance(outer, cst.BooleanOperation)
            and outer.left is chain
            and not chain.lpar
            and type(outer.operator) is type(chain.operator)
        ):
            chain = outer
        else:
            return chain


def _operands(chain: cst.BooleanOperation) -> list[cst.BaseExpression]:
    left = chain.left
    same = isinstance(left, cst.BooleanOperation) and type(left.operator) is type(chain.operator)
    if isinstance(left, cst.BooleanOperation) and same and not left.lpar:
        return [*_operands(left), chain.right]
    return [left, chain.right]


def _bare(node: cst.BaseExpression) -> cst.BaseExpression:
    while isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
        node = node.expression
    return node


def _asks_tensor(node: cst.BaseExpression, place: Place) -> bool:
    return place.certainty(_bare(node)) is not None


_PURE_CALLS = frozenset({"len", "isinstance"})
_PURE_METHODS = frozenset({"dim", "ndimension", "numel", "size", "is_floating_point", "is_complex"})


def _plain_host(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression is a host value, read without side effects and without raising where the rest of
    its chain makes sense."""
    node = _bare(node)
    if isinstance(node, cst.Integer | cst.Float | cst.SimpleString):
        return True
    if isinstance(node, cst.BooleanOperation):
        return _plain_host(node.left, place) and _plain_host(node.right, place)
    if isinstance(node, cst.Comparison):
        if place.kind(node).what != "scalar":
            return False
        parts = [node.left, *(c.comparator for c in node.comparisons)]
        identity = all(isinstance(c.operator, cst.Is | cst.IsNot) for c in node.comparisons)
        return all(_no_effects(p, place) and (identity or _plain_host(p, place)) for p in parts)
    if isinstance(node, cst.Call):
        return _no_effects(node, place)
    if isinstance(node, cst.Attribute) and node.attr.value == "training":
        return True
    return (
        place.kind(node).what in ("scalar", "text")
        and place.kind(node).sure
        and _no_effects(node, place)
    )


def _no_effects(node: cst.BaseExpression, place: Place) -> bool:
    if isinstance(node, cst.Name | cst.Integer | cst.Float | cst.SimpleString):
        return True
    if isinstance(node, cst.Attribute):
        return _no_effects(node.value, place)
    if isinstance(node, cst.Subscript):
        whole = place.text(node.value)
        return whole.endswith((".shape", ".size()")) and _no_effects(node.value, place)
    if isinstance(node, cst.UnaryOperation):
        return _no_effects(node.expression, place)
    if isinstance(node, cst.BinaryOperation):
        return _no_effects(node.left, place) and _no_effects(node.right, place)
    if isinstance(node, cst.Call):
        if place.name(node) in _PURE_CALLS:
            return all(_no_effects(a.value, place) for a in node.args if place.name(node) == "len")
        if place.last_name(node) in _PURE_METHODS and isinstance(node.func, cst.Attribute):
            return place.is_tensor(node.func.value) and _no_effects(node.func.value, place)
    return False


class ClampByBranch(Rule):
    """A branch on a tensor does what `clamp` does.

    ## What it does

    Finds `if x > limit: x = limit` (and `<`), and `if x > 1: y = x * k` after `y = k`, where `x` is a tensor.

    ## Why it costs

    The branch makes the host wait until the device has computed `x`. `clamp` does not ask.

    ## Example

    ```python
    if scale > 1.0:
        scale = 1.0
    ```

    ## Instead

    ```python
    scale = scale.clamp(max=1.0)
    ```

    ## Fix safety

    Unsafe: the result is always a tensor, and NaN stays NaN.
    """

    code = "DG406"
    name = "clamp-by-branch"
    origin = "DeepSpeed#5632"
    looks_for = Truth()
    fixes = "unsafe"

    def judge(self, node: cst.BaseExpression, place: Place) -> Finding | None:
        """A condition whose branch amounts to a clamp."""
        question = _question(node, place)
        if question is None:
            return None
        certainty, who = question
        new = _clamp(who, place)
        if new is None or not isinstance(who.by, cst.If):
            return None
        return tell(
            place,
            node,
            f"`if {say(place, node)}` makes the host wait for the device, only to clamp a value. "
            f"`{new}` does the same without asking.",
            certainty=certainty,
            fix=_one_line(who.by, new, place),
        )


def _one_line(branch: cst.If, new: str, place: Place) -> Fix | None:
    """The fix that puts one simple statement in place of an if, with the comment of its first line; none
    where
    that would lose another comment."""
    if branch is not place.statement:
        return None
    header = branch.body.header.comment if isinstance(branch.body, cst.IndentedBlock) else None
    kept = f"  {header.value}" if header is not None else ""
    if place.text(branch).count("#") != kept.count("#"):
        return None
    message = "Clamp on the device; the result is always a tensor"
    return place.replace(branch, new + kept, safety="unsafe", message=message)


def _clamp(who: Asked, place: Place) -> str | None:
    """The statement with `clamp` that a branch on a tensor amounts to."""
    branch = who.by
    if who.asker != "if" or not isinstance(branch, cst.If) or branch.orelse is not None:
        return None
    test = who.whole
    smalls = list(small_statements(branch.body))
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1 or len(smalls) != 1:
        return None
    only = smalls[0]
    if not isinstance(only, cst.Assign) or len(only.targets) != 1:
        return None
    tensor, limit = test.left, test.comparisons[0].comparator
    operator = test.comparisons[0].operator
    above = isinstance(operator, cst.GreaterThan | cst.GreaterThanEqual)
    if not above and not isinstance(operator, cst.LessThan | cst.LessThanEqual):
        return None
    if not isinstance(tensor, cst.Name | cst.Attribute) or place.kind(limit).what != "scalar":
        return None
    target, value = only.targets[0].target, only.value
    if place.same(target, tensor) and place.same(value, limit):
        name = place.text(tensor)
        return f"{name} = {name}.clamp({'max' if above else 'min'}={place.text(limit)})"
    factor = _factor(value, tensor, place)
    if (
        above
        and factor is not None
        and place.text(limit) in ("1", "1.0")
        and _was(target, factor, branch, place)
    ):
        clamped = f"{place.text(tensor)}.clamp(min={place.text(limit)})"
        return f"{place.text(target)} = {clamped} * {place.text(factor)}"
    return None


def _factor(
    value: cst.BaseExpression, tensor: cst.BaseExpression, place: Place
) -> cst.BaseExpression | None:
    """`k` of `tensor * k` or `k * tensor`."""
    if not isinstance(value, cst.BinaryOperation) or not isinstance(value.operator, cst.Multiply):
        return None
    if place.same(value.left, tensor):
        return value.right
    return value.left if place.same(value.right, tensor) else None


def _was(
    target: cst.BaseExpression, factor: cst.BaseExpression, branch: cst.If, place: Place
) -> bool:
    """Whether the target was given the factor before the branch, in the same block."""
    for assign in _assigns_before(branch, place):
        if any(place.same(t.target, target) for t in assign.targets):
            return place.same(assign.value, factor)
    return False


def _assigns_before(branch: cst.If, place: Place) -> Iterator[cst.Assign]:
    before: list[cst.Assign] = []
    for statement in place.block:
        if statement is branch:
            break
        if isinstance(statement, cst.SimpleStatementLine):
            before.extend(s for s in statement.body if isinstance(s, cst.Assign))
    return reversed(before)
