"""DG424 to DG426: `unique`, `bincount` and `repeat_interleave`, whose result size depends on values."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Call, Finding, Place, Rule, weaker

from ..data_flow import only_compared
from ..host_code import works_on_host
from ..used import used_as_tensor
from ..waits import device_input, is_of_grid, waits_inside


class Unique(Rule):
    """`unique` makes the host wait for the device.

    ## What it does

    Finds `unique` and `unique_consecutive` of device tensors in hot code whose values are only compared.
    Where the values themselves are wanted it is a note: the author has to decide what to do.

    ## Why it costs

    The size of the result depends on values: the host waits until the device has sorted and counted.

    ## Example

    ```python
    seen = torch.unique(labels)
    wrong = torch.any((seen < 0) | (seen >= classes))
    ```

    ## Instead

    ```python
    wrong = torch.any((labels < 0) | (labels >= classes))
    ```

    ## Fix safety

    No fix: only the author knows how to write the comparison without `unique`.
    """

    code = "DG424"
    name = "unique-values"
    origin = "pytorch#107132"
    looks_for = Call("unique", "unique_consecutive", place="torch")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A call on a device tensor."""
        worked_on = device_input(node, place)
        if worked_on is None:
            return None
        if only_compared(node, place):
            return place.finding(
                node,
                f"`{place.short(node)}` makes the host wait for the device to sort and count, only "
                f"to compare the values. Compare `{place.short(worked_on[0])}` itself: `any` and "
                "`all` give the same result without `unique`.",
                certainty=worked_on[1],
            )
        return place.finding(
            node,
            f"`{place.short(node)}` returns one element per distinct value, so the host waits for "
            "the device to sort and count them. If the possible values are known, count them "
            "into a tensor of fixed size (`scatter_add_`); otherwise one wait cannot be avoided.",
            certainty=weaker(worked_on[1], "note"),
        )


class Bincount(Rule):
    """`bincount`, `one_hot` without a number of classes and `histc` without bounds wait for the device.

    ## What it does

    Finds `bincount` of device tensors in hot code, `one_hot` that is not told how many classes there are, and
    `histc` that is not told where the bins begin and end.

    ## Why it costs

    The size of the result depends on the largest value, which the host waits for; `minlength` does not
    avoid the wait. `one_hot(labels, classes)` waits for nothing.

    ## Example

    ```python
    counts = torch.bincount(labels, minlength=n)
    ```

    ## Instead

    ```python
    counts = torch.zeros(n, dtype=torch.long, device=labels.device)
    counts = counts.scatter_add_(0, labels, torch.ones_like(labels))
    ```

    ## Fix safety

    No fix: values beyond the fixed size fail in `scatter_add_`, and grow the result of `bincount`.
    """

    code = "DG425"
    name = "bincount-of-tensor"
    origin = "torchmetrics#1413"
    looks_for = Call("bincount", "histc", "one_hot", place="torch")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A call on a device tensor."""
        worked_on = device_input(node, place)
        if worked_on is None:
            return None
        if place.last_name(node) == "one_hot":
            return self._of_labels(node, worked_on[0], place)
        if place.last_name(node) == "histc":
            return self._of_values(node, place)
        size = place.argument(node, 2 if place.name(node) else 1, "minlength")
        counted = place.short(worked_on[0], 32)
        certainty = worked_on[1]
        if (
            isinstance(size, cst.Name | cst.Attribute | cst.Integer)
            and not _may_be_zero(size, place)
            and not place.kind(size).maybe_tensor
        ):
            known, new = "", place.short(size, 24)
        else:
            known, new = "If the host knows the number of bins, ", "n"
            # With no size, or none in some calls, the largest value has to be asked for; one on the device
            # would have to be read.
            certainty = weaker(certainty, "note")
        return place.finding(
            node,
            f"`{place.short(node)}` computes the largest value first, and the host waits for the "
            f"device. {known}`torch.zeros({new}, …).scatter_add_(0, {counted}, ones)` (of int64 indices) "
            "has a fixed size and waits for nothing.",
            certainty=certainty,
        )

    def _of_labels(
        self, node: cst.Call, labels: cst.BaseExpression, place: Place
    ) -> Finding | None:
        classes = place.argument(node, 1, "num_classes")
        if place.name(node) != "torch.nn.functional.one_hot" or any(a.star for a in node.args):
            return None
        if classes is not None and place.text(classes) != "-1":
            return None
        return place.finding(
            node,
            f"`{place.short(node)}` reads the smallest and the largest label to know how many classes "
            f"there are, and the host waits for the device. `one_hot({place.short(labels)}, num_classes)` "
            "does not.",
            certainty="note",
        )

    def _of_values(self, node: cst.Call, place: Place) -> Finding | None:
        most = 2 if place.name(node) else 1
        named = {a.keyword.value for a in node.args if a.keyword is not None}
        if len(node.args) - len(named) > most or named & {"min", "max"}:
            return None
        if any(a.star for a in node.args):
            return None
        return place.finding(
            node,
            f"`{place.short(node)}` reads the smallest and the largest value to know where the bins begin "
            "and end, and the host waits for the device. With `min=` and `max=` it does not.",
            certainty="note",
        )


def _may_be_zero(size: cst.BaseExpression, place: Place) -> bool:
    """Whether a number of bins is 0 or may be none."""
    zero = isinstance(size, cst.Integer) and size.evaluated_value == 0
    return zero or place.kind(size).optional


class RepeatInterleave(Rule):
    """`repeat_interleave` with a tensor of repeats and no `output_size` makes the host wait for the device.

    ## What it does

    Finds `repeat_interleave` whose repeats are a device tensor and that is not told its `output_size`. A
    Python number as repeats waits for nothing. It is a note where they are a tensor only by what else the
    function does with them.

    ## Why it costs

    The size of the result is the sum of the repeats: the host waits until the device has it.

    ## Example

    ```python
    y = torch.repeat_interleave(x, lengths, dim=0)
    ```

    ## Instead

    ```python
    y = torch.repeat_interleave(x, lengths, dim=0, output_size=total)
    ```

    ## Fix safety

    No fix: a wrong `output_size` is a device-side assertion.
    """

    code = "DG426"
    name = "repeat-interleave-without-size"
    origin = "torchtitan#2440"
    looks_for = Call("repeat_interleave")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A call whose repeats are a tensor."""
        if works_on_host(place) or place.argument(node, None, "output_size") is not None:
            return None
        first = 1 if place.is_torch(node, "repeat_interleave") else 0
        repeats = place.argument(node, first, "repeats")
        if repeats is None and first and len(node.args) == 1:
            repeats = place.argument(node, 0)
        if repeats is None or waits_inside(repeats, place):
            return None
        certainty = place.certainty(repeats)
        kind = place.kind(repeats)
        if certainty != "sure" and not (kind.host or kind.not_tensor or kind.cls):
            alone = first == 1 and len(node.args) == 1
            certainty = "note" if alone or used_as_tensor(repeats, place) else certainty
        if certainty is None:
            return None
        if _moved_afterwards(node, place):
            certainty = "maybe"  # what is moved to the device only then was not there
        elif is_of_grid(repeats, place):
            certainty = weaker(certainty, "note")
        return place.finding(
            node,
            f"`repeat_interleave` with the tensor `{place.short(repeats)}` makes the host wait "
            "for the device to add it up. If the host knows the total, pass it: `output_size=total`.",
            certainty=certainty,
        )


def _moved_afterwards(call: cst.Call, place: Place) -> bool:
    """Whether what a call gives is moved to a device at once, or after some methods."""
    node: cst.CSTNode = call
    parent = place.parent(node)
    while isinstance(parent, cst.Attribute | cst.Call):
        if isinstance(parent, cst.Call) and place.last_name(parent) in ("to", "cuda"):
            return any("device" in place.text(a) for a in parent.args) or not parent.args
        node, parent = parent, place.parent(parent)
    return False
