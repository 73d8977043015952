"""DG411 to DG415: the value of a tensor is brought to Python, and the host waits until the device has it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import libcst as cst

from pytest_dispatchguard import Call, Finding, FString, NumberCall, Place, Rule, weaker

from ...allocations.devices import move_target
from ...syntax import MODULE_NAMES, assigned, is_word, names_in
from ..data_flow import around, ends, held_by, loads
from ..host_code import works_on_host
from ..waits import Read, tensor_certainty, waits_inside
from .read_fixes import unread
from .roles import ReadRule, avoidable, found, given_text, goes_to_a_check, told_on_failure, use


class ItemRead(ReadRule):
    """`.item()` makes the host wait for the device.

    ## What it does

    Finds `.item()` on tensors that may live on a device, in hot code, where the number goes back into
    tensors, is summed up, logged in a loop, or only checked. Where the host needs it (for a shape, an
    index, its caller, or the sum itself in the same round), or what it goes into is shown in each round, it
    is a note: the author has to decide what to do. What a meter is given by keyword (`**figures`) may be a
    number already: it is a *maybe*.

    ## Why it costs

    The host stops until the device has worked through everything queued before, then copies one number. While
    it waits it queues nothing, and the device runs dry.

    ## Example

    ```python
    total += loss.item()
    ```

    ## Instead

    ```python
    total += loss.detach()
    ```

    ## Fix safety

    Unsafe: a number that goes back into tensors stays one, detached (`x.detach()`), with the precision of its
    dtype; a sum in a loop is kept on the device and read where it is used. None is offered for what is logged
    or checked: only the author knows whether the number is needed on the host.
    """

    code = "DG411"
    name = "item-read"
    origin = "torchtune#522"
    looks_for = Call("item", arguments=0)
    roles = ("plain",)
    fixes = "unsafe"

    def report(self, read: Read, row: Sequence[Read], place: Place) -> Finding | None:
        """One read on its own."""
        shown = place.short(read.call)
        read = _judged(read, place)
        return found(
            place,
            read,
            f"`{shown}` makes the host wait for the device. {use(read, place)}",
            unread(read, place),
        )


def _judged(read: Read, place: Place) -> Read:
    """A read, as sure as it is that the host can do without it."""
    return (
        read if avoidable(read, place) else replace(read, certainty=weaker(read.certainty, "note"))
    )


class NumberOfTensor(ReadRule):
    """`float()`, `int()` or `complex()` of a tensor makes the host wait for the device.

    ## What it does

    Finds `float(t)`, `int(t)`, `complex(t)` of tensors that may live on a device, in hot code, where the
    number goes back into tensors, is summed up, logged in a loop, or only checked. Where the host needs it
    it is a note: the author has to decide what to do.

    ## Why it costs

    It is `.item()` in other words: the host waits until the device has worked through everything queued
    before.

    ## Example

    ```python
    scale = 1.0 / float(x.norm())
    ```

    ## Instead

    ```python
    scale = 1.0 / x.norm()
    ```

    ## Fix safety

    Unsafe: a number that goes back into tensors stays one, detached (`x.detach()`), with the precision of its
    dtype; a sum in a loop is kept on the device and read where it is used. None is offered for what rounds or
    converts, and for what is logged or checked.
    """

    code = "DG412"
    name = "python-number-of-tensor"
    origin = "transformers#33693"
    looks_for = NumberCall()
    roles = ("plain",)
    fixes = "unsafe"

    def report(self, read: Read, row: Sequence[Read], place: Place) -> Finding | None:
        """One read on its own."""
        shown = place.short(read.call)
        read = _judged(read, place)
        return found(
            place,
            read,
            f"`{shown}` reads a tensor, so the host waits for the device. {use(read, place)}",
            unread(read, place),
        )


class ListOfTensor(ReadRule):
    """`.tolist()` makes the host wait for the device.

    ## What it does

    Finds `.tolist()` on tensors that may live on a device, in hot code, where a module's method splits by it
    what its caller knew, or the values go back into tensors. Elsewhere it is a note.

    ## Why it costs

    The host waits until the device has worked through everything queued before, copies the tensor, and
    makes a
    Python object of every element.

    ## Example

    ```python
    parts = x.split(lengths.tolist())
    ```

    ## Instead

    ```python
    parts = x.split(host_lengths)
    ```

    ## Fix safety

    No fix: only the author knows where the host can get the values from.
    """

    code = "DG413"
    name = "tolist-read"
    origin = "diffusers#12072"
    looks_for = Call("tolist", arguments=0)
    roles = ("plain",)

    def report(self, read: Read, row: Sequence[Read], place: Place) -> Finding | None:
        """One read on its own; of what was stacked to be read at once it is a note."""
        shown = place.short(read.call)
        if not (_known_to_the_caller(read, place) or ends(read.call, place) == {"tensor"}):
            read = replace(read, certainty=weaker(read.certainty, "note"))
        return found(
            place,
            read,
            f"`{shown}` makes the host wait for the device and copies every element to Python. "
            "Pass the values along from where the host knows them, or keep the work on the "
            "device.",
        )


_SPLITS = frozenset({"split", "split_with_sizes", "tensor_split"})


def _known_to_the_caller(read: Read, place: Place) -> bool:
    """Whether a method of a module reads the sizes of parts from its arguments alone: whoever made them had
    the numbers, and each layer reads them again."""
    parent = place.parent(read.call)
    if not isinstance(parent, cst.Call) or place.last_name(parent) not in _SPLITS:
        return False
    params = place.function.params
    given = {p.name.value for p in (*params.posonly_params, *params.params, *params.kwonly_params)}
    names: set[str] = set(names_in(read.tensor))
    for _ in range(4):
        derived = {n for n in names if n not in given}
        if not derived:
            break
        for name in derived:
            made = next((place.value_of(n) for n in loads(name, place) if place.value_of(n)), None)
            if made is None or place.assignments(name) != 1:
                return False
            names = (names - {name}) | names_in(made)
    return bool(names) and names <= given


class CopyToHost(Rule):
    """A tensor is copied to the CPU in hot code.

    ## What it does

    Finds `.cpu()`, `.to("cpu")` and `.numpy()` on tensors that may live on a device. What ends in NumPy or
    another library, is collected or returned, and does not come back to the device, is a note.

    ## Why it costs

    The copy waits until the device has worked through everything queued before, and the host waits for
    the copy.

    ## Example

    ```python
    def forward(self, x):
        counts = x.sum(0).to("cpu")
        return x / counts.to(x.device)
    ```

    ## Instead

    ```python
    def forward(self, x):
        return x / x.sum(0)
    ```

    ## Fix safety

    No fix: only the author knows where the copy is used.
    """

    code = "DG414"
    name = "copy-to-host"
    origin = "DeepSpeed#5578"
    looks_for = Call("cpu", "to", "numpy")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """The first copy of a statement."""
        tensor = place.receiver(node)
        if tensor is None or works_on_host(place) or not _copies_to_cpu(node, place):
            return None
        certainty = tensor_certainty(tensor, place, strict=place.last_name(node) != "cpu")
        if certainty is None or waits_inside(tensor, place):
            return None
        if certainty == "maybe" and place.last_name(node) == "cpu" and _is_open(tensor, place):
            certainty = "note"  # nothing else has such a method
        if _on_odd_devices(node, place) or _earlier_in_statement(node, place):
            return None
        if place.kind(tensor).what == "unknown" and _moves_a_module(node, tensor, place):
            return None
        if _sent_by_another_name(tensor, place):
            return None
        shown = place.short(node)
        if place.last_name(node) == "numpy" and not node.args:
            return place.finding(
                node,
                f"`{shown}` works on CPU tensors only: on a device it needs a copy first, which "
                "the host waits for. Use torch in hot code.",
                certainty="maybe",
            )
        foreign = _given_to(node, place)
        if foreign:
            return place.finding(
                node,
                f"`{shown}` copies from the device for `{foreign}`, and the host waits for it. "
                "Gather its inputs into one copy, or use a torch operation instead.",
                certainty=weaker(certainty, "note"),
            )
        leaves, back = _way(node, place)
        if leaves and not back:
            certainty = weaker(certainty, "note")
        trip = " and the result goes back to it later" if back else ""
        return place.finding(
            node,
            f"`{shown}` copies from the device{trip}, and the host waits for it. Keep the work "
            "on the device, or copy once, outside the hot path.",
            certainty=certainty,
        )


def _is_open(tensor: cst.BaseExpression, place: Place) -> bool:
    """Whether nothing is known of a value, but perhaps that it may be a tensor, and its name is not one of a
    module, in a file that imports torch."""
    named = place.dotted(tensor).rpartition(".")[2].lower()
    return (
        place.kind(tensor).what in ("tensor", "unknown")
        and "torch" in place.imports
        and MODULE_NAMES.search(named) is None
    )


def _sent_by_another_name(tensor: cst.BaseExpression, place: Place) -> bool:
    """Whether a parameter, or what a loop gives, is sent to the device by another name, as in
    `x = batch.to(device)`: then it is on the CPU itself."""
    if not isinstance(tensor, cst.Name) or place.value_of(tensor) is not None:
        return False
    for call, _ in place.calls("to", "cuda"):
        if is_word(place.receiver(call), tensor.value) and move_target(call, place) is not None:
            name = assigned(call, place)
            if name is not None and name.value != tensor.value:
                return True
    return False


_BACK = frozenset({"to", "cuda", "from_numpy", "as_tensor", "tensor", "type_as"})


def _way(copy: cst.Call, place: Place) -> tuple[bool, bool]:
    """Whether a copy leaves torch or the function (for NumPy, another library, a collection, the caller),
    and whether it comes back to the device in the same function."""
    leaves, back = False, False
    waiting: list[tuple[cst.BaseExpression, int]] = [(copy, 0)]
    while waiting:
        node, depth = waiting.pop()
        name = held_by(node, place)
        if name and depth < 4:
            waiting.extend((load, depth + 1) for load in loads(name, place))
            continue
        parent = around(node, place)
        if isinstance(parent, cst.Attribute) and parent.value is node:
            call = around(parent, place)
            last = parent.attr.value
            if last in ("data", "T", "mT") and depth < 12:
                waiting.append((parent, depth + 1))
            if not (isinstance(call, cst.Call) and call.func is parent):
                continue
            if last in ("numpy", "tolist", "item"):
                leaves = True
            if last in _BACK and call.args and not _copies_to_cpu(call, place):
                moved = place.argument(call, 0, "device")
                back = back or (
                    moved is not None
                    and not place.text(moved).startswith("torch.")
                    and "dtype" not in place.text(moved)
                )
            if depth < 12:
                waiting.append((call, depth + 1))
        elif isinstance(parent, cst.Call):
            name = place.name(parent)
            if name.startswith("torch.") and place.last_name(parent) in _BACK:
                device = place.argument(parent, None, "device")
                back = back or device is not None
                if device is None and depth < 12:
                    waiting.append((parent, depth + 1))
            elif name.startswith(("torch.", "numpy.")) and depth < 12:
                leaves = leaves or name.startswith("numpy.")
                waiting.append((parent, depth + 1))
            else:
                leaves = True
        elif isinstance(parent, cst.BinaryOperation | cst.UnaryOperation | cst.Subscript):
            if depth < 12:
                waiting.append((parent, depth + 1))
        elif not isinstance(parent, cst.Comparison | cst.AugAssign | cst.Expr):
            leaves = True
    return leaves, back


def _earlier_in_statement(call: cst.Call, place: Place) -> bool:
    """Whether the statement copies another tensor before: one place gets one finding."""
    for other, scene in place.calls("cpu", "to"):
        if other is call:
            return False
        if scene.statement is place.statement and isinstance(
            scene.statement, cst.SimpleStatementLine
        ):
            tensor = place.receiver(other)
            if (
                tensor is not None
                and _copies_to_cpu(other, place)
                and tensor_certainty(tensor, place) == "sure"
            ):
                return True
    return False


def _on_odd_devices(node: cst.CSTNode, place: Place) -> bool:
    """Whether the place is a way around what some device cannot do."""
    tests = [test for test, _ in place.conditions]
    parent = place.parent(node)
    while parent is not None:
        if isinstance(parent, cst.IfExp):
            tests.append(parent.test)
        parent = place.parent(parent)
    return any(_ODD_DEVICES.search(place.text(test)) for test in tests)


def _given_to(copy: cst.Call, place: Place) -> str:
    """The function of another library that a copy is handed to as a NumPy array."""
    node: cst.CSTNode = copy
    parent = place.parent(node)
    as_numpy = False
    while isinstance(parent, cst.Attribute | cst.Call):
        if isinstance(parent, cst.Call) and parent.func is not node:
            name = place.name(parent)
            foreign = (
                as_numpy
                and not name.startswith(("torch.", "numpy.", "self."))
                and place.callee(parent) is None
            )
            return place.text(parent.func) if foreign else ""
        as_numpy = as_numpy or (isinstance(parent, cst.Attribute) and parent.attr.value == "numpy")
        node, parent = parent, place.parent(parent)
    return ""


def _moves_a_module(call: cst.Call, tensor: cst.BaseExpression, place: Place) -> bool:
    """Whether what is moved is a module, which goes where it is told: `self.model = self.model.cpu()`,
    `unet = unet.cpu()`, or nothing is made of the result."""
    parent = place.parent(call)
    if isinstance(parent, cst.Expr) or place.dotted(tensor) == place.self_name:
        return True
    if isinstance(parent, cst.Assign) and len(parent.targets) == 1:
        target = parent.targets[0].target
        if isinstance(target, cst.Name) and not MODULE_NAMES.search(target.value.lower()):
            return False
        return place.same(target, tensor)
    return False


def _copies_to_cpu(call: cst.Call, place: Place) -> bool:
    last = place.last_name(call)
    for argument in call.args:
        # With non_blocking the host goes on.
        if argument.keyword is not None and argument.keyword.value == "non_blocking":
            return place.text(argument.value) == "False"
    if last == "cpu":
        return not call.args
    if last == "numpy":
        return not call.args or any(
            a.keyword is not None and a.keyword.value == "force" for a in call.args
        )
    device = place.argument(call, 0, "device")
    return device is not None and place.text(device) in (
        '"cpu"',
        "'cpu'",
        'torch.device("cpu")',
        "torch.device('cpu')",
    )


_WARNING = re.compile(r"warn|error|exception|critical|fatal|check|assert|fail", re.IGNORECASE)
_ODD_DEVICES = re.compile(
    r"(?<![a-z])(?:mps|npu|xla|hpu|tpu|directml)(?![a-z])|deterministic", re.IGNORECASE
)
_TEXTS = frozenset({"str", "repr", "format", "print"})


class TextOfTensor(Rule):
    """A tensor is turned into text in hot code.

    ## What it does

    Finds tensors in f-strings, and as arguments of `print`, `str`, `repr`, `format` and `.format(...)`. What
    is printed, logged as `info`, or drawn into a picture is a note: the author may want to see it.

    ## Why it costs

    The host waits for the device, copies the values and formats them; formatting alone takes far longer than
    launching an operation.

    ## Example

    ```python
    print("loss", loss)
    ```

    ## Instead

    ```python
    if step % log_every == 0:
        print("loss", loss)
    ```

    ## Fix safety

    No fix: only the author knows what has to be printed, and how often.
    """

    code = "DG415"
    name = "text-of-tensor"
    origin = "pytorch#126829"
    looks_for = (FString(), Call("print", "str", "repr", "format"))

    def judge(self, node: cst.FormattedString | cst.Call, place: Place) -> Finding | None:
        """A text with a tensor among its parts."""
        if works_on_host(place) or _goes_to_a_warning(node, place) or told_on_failure(node, place):
            return None
        if isinstance(node, cst.FormattedString):
            parts = [
                p.expression for p in node.parts if isinstance(p, cst.FormattedStringExpression)
            ]
            what = "The f-string formats"
        else:
            last = place.last_name(node)
            if isinstance(node.func, cst.Attribute):
                if last != "format" or place.kind(node.func.value).what != "text":
                    return None
            elif place.name(node) not in _TEXTS:
                return None
            parts = [a.value for a in node.args if not a.star]
            what = "`print` formats" if last == "print" else f"`{last}(...)` formats"
        often = "" if place.conditions else " on every call"
        for part in parts:
            if place.on_device(part) and not waits_inside(part, place):
                better = "Format it only when it is logged, or log its shape and dtype."
                if goes_to_a_check(node, place):
                    better = "Build the text only if the check that it is for fails, or leave the value out."
                return place.finding(
                    node,
                    f"{what} the tensor `{place.short(part)}`{often}, so the host waits for the "
                    f"device and copies it. {better}",
                    certainty="note" if _is_shown(node, place) else "sure",
                )
        return None


def _is_shown(node: cst.BaseExpression, place: Place) -> bool:
    """Whether a text is printed or logged for people, which the author may want."""
    taker: cst.CSTNode | None = node
    while taker is not None and not isinstance(taker, cst.Call | cst.Assign | cst.AugAssign):
        taker = place.parent(taker)
        if isinstance(taker, cst.Call) and place.last_name(taker) == "join":
            taker = place.parent(taker)
    if taker is node and isinstance(node, cst.Call) and place.name(node) != "print":
        taker = place.parent(node)
    if isinstance(taker, cst.Call):
        return place.last_name(taker) in _SHOWN_BY
    if not isinstance(taker, cst.Assign | cst.AugAssign):
        return False
    line = taker.target if isinstance(taker, cst.AugAssign) else taker.targets[0].target
    shown = (argument.value for call, _ in place.calls(*_SHOWN_BY) for argument in call.args)
    return isinstance(line, cst.Name) and any(_contains_text(one, line.value) for one in shown)


def _contains_text(node: cst.BaseExpression, name: str) -> bool:
    """Whether a text is what a name holds, or has that in it."""
    if isinstance(node, cst.FormattedString):
        parts = (p.expression for p in node.parts if isinstance(p, cst.FormattedStringExpression))
        return any(_contains_text(part, name) for part in parts)
    if isinstance(node, cst.BinaryOperation):
        return _contains_text(node.left, name) or _contains_text(node.right, name)
    return isinstance(node, cst.Name) and node.value == name


_SHOWN_BY = (
    "info", "print", "write", "box_label", "putText", "text", "draw_text", "annotate", "add_text",
    "set_title", "title", "suptitle", "set_description", "set_description_str", "set_postfix_str",
)  # fmt: skip
"""Calls that show a text to people, in a picture perhaps."""


def _goes_to_a_warning(node: cst.CSTNode, place: Place) -> bool:
    """Whether a text is made for a warning, an error or a check under a condition: those are
    rare by nature."""
    return bool(place.conditions) and _WARNING.search(given_text(node, place)) is not None
