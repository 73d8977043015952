"""DG403, DG404: a loop, `any()` or `all()` tests tensors, once per iteration."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Call, Finding, Place, Rule, Truth

from ..host_code import works_on_host
from .conditions import condition_text, host_first, tensor_question


class TruthInWhile(Rule):
    """A `while` loop tests a tensor in every iteration.

    ## What it does

    Finds tensors in the conditions of `while` loops in hot code.

    ## Why it costs

    The host waits for the device in every iteration and can never run ahead: each iteration costs a round
    trip.

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

    No fix: only the author knows how many extra iterations are acceptable.
    """

    code = "DG403"
    name = "tensor-truth-in-while"
    origin = "rl#3301"
    looks_for = Truth()

    def judge(self, node: cst.BaseExpression, place: Place) -> Finding | None:
        """The first tensor of a loop's condition."""
        question = tensor_question(node, place)
        if question is None or question[1].asker != "while":
            return None
        certainty, who = question
        if host_first(node, who, place) is not None:
            return None
        return place.finding(
            node,
            f"`while {condition_text(node, place)}` makes the host wait for the device in every iteration. "
            "Count iterations on the host, and read the tensor only every few iterations, or not at "
            "all if the count is known.",
            certainty=certainty,
        )


class TruthPerElement(Rule):
    """`any()`, `all()` or the filter of a comprehension tests one tensor after the other.

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

    No fix: the result becomes a tensor, which the code that reads it has to expect.
    """

    code = "DG404"
    name = "tensor-truth-per-element"
    origin = "DeepSpeed#4915"
    looks_for = (Truth(), Call("any", "all", place="whole"))

    def judge(self, node: cst.BaseExpression, place: Place) -> Finding | None:
        """A filter, an element, or the whole that any() or all() runs over."""
        if isinstance(node, cst.Call) and place.name(node) in ("any", "all"):
            return self._of_iterable(node, place)
        question = tensor_question(node, place)
        if question is None:
            return None
        certainty, who = question
        if who.asker == "each" and isinstance(who.by, cst.Call):
            how = place.last_name(who.by)
            element = place.short(who.whole)
            message = (
                f"`{how}(...)` converts one tensor after the other (`{element}`) to a bool, and each "
                f"conversion waits for the device. `torch.stack([...]).{how}()` gives one tensor, "
                "which is read once or not at all."
            )
        elif who.asker == "filter":
            message = (
                f"The filter `if {place.short(who.whole)}` reads one tensor after the other, and "
                "the host waits for the device each time. Read all of them at once (`.tolist()` "
                "of one tensor) and filter on the host."
            )
        else:
            return None
        return place.finding(node, message, certainty=certainty)

    def _of_iterable(self, call: cst.Call, place: Place) -> Finding | None:
        if len(call.args) != 1 or works_on_host(place):
            return None
        given = call.args[0].value
        if isinstance(given, cst.GeneratorExp | cst.ListComp):
            return None
        how, shown = place.last_name(call), place.short(given)
        kind = place.kind(given)
        if kind.on_device:
            return place.finding(
                call,
                f"Python's `{how}({shown})` iterates over the tensor and waits for the device once "
                f"per element. `{shown}.{how}()` is one operation.",
            )
        element = kind.element
        if kind.what == "nested" and kind.sure and element is not None and element.on_device:
            return place.finding(
                call,
                f"`{how}({shown})` converts one tensor after the other to a bool, and each "
                f"conversion waits for the device. `torch.stack(...).{how}()` gives one tensor, "
                "which is read once or not at all.",
            )
        return None
