"""DG41x: the value of a tensor is brought to Python, and the host waits until the device has it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import libcst as cst
from dispatchguard_rules._syncs import (
    NUMBERS,
    RANDOM,
    READS,
    REDUCING,
    Certainty,
    Read,
    asked,
    bound_names,
    holds,
    names_in,
    on_host_by_trade,
    only_raises,
    read_of,
    say,
    target_names,
    tell,
    tensor_certainty,
    waits_inside,
)

from pytest_dispatchguard import Call, Finding, Fix, FString, Iterated, Place, Rule, Scene

Role = Literal["each", "invariant", "again", "row", "in-row", "iterated", "plain"]
_LOGGING = frozenset(
    "add_scalar add_scalars append debug extend info info_once log log_dict log_metric log_metrics print put report "
    "set_description set_postfix update write track record".split()
)
_TAKES_TENSORS = ("add", "sub", "mul", "div", "pow", "clamp", "where", "minimum", "maximum", "lerp")
_HOLDS_STILL = frozenset({"backward", "step", "training_step", "train_step", "zero_grad"})


# -- the part a read plays ---------------------------------------------------------------------------------


def _reads(place: Place) -> list[tuple[Read, Scene]]:
    """All sure reads of the innermost function around the place, in order, outside cold regions."""
    out = []
    for call, scene in place.calls(*READS):
        if scene.cold or scene.deferred or scene.function is not place.scene.function:
            continue
        read = read_of(call, place)
        if read is not None and read.certainty == "sure":
            out.append((read, scene))
    return out


def _role(read: Read, place: Place) -> tuple[Role, Sequence[Read]]:
    """The part a read plays among the others: one of a row, one more of the same, once per element …"""
    scene = place.scene
    if scene.deferred:
        return "plain", ()
    if _iterated_by(read, scene, place) is not None:
        return "iterated", ()
    if scene.loops:
        loop = scene.loops[-1]
        if _hoistable(read, loop, place):
            return "invariant", ()
        if _per_element(read, loop, place):
            return "each", ()
    reads = _reads(place)
    if any(_same_value(r, s, read, scene, place) for r, s in _before(read, reads)):
        return "again", ()
    row = _row(read, scene, reads, place)
    if len(row) > 1:
        return ("row" if row[0].call is read.call else "in-row"), row
    return "plain", ()


def _before(read: Read, reads: Sequence[tuple[Read, Scene]]) -> list[tuple[Read, Scene]]:
    out = []
    for other, scene in reads:
        if other.call is read.call:
            break
        out.append((other, scene))
    return out


def _iterated_by(read: Read, scene: Scene, place: Place) -> cst.BaseExpression | None:
    """The tensor that a loop takes apart, where the read is of the loop's variable itself."""
    if not isinstance(read.tensor, cst.Name):
        return None
    for loop in reversed(scene.loops):
        over = _iterated_tensor(loop, read.tensor.value, place)
        if over is not None:
            return over
    return None


def _iterated_tensor(loop: cst.CSTNode, name: str, place: Place) -> cst.BaseExpression | None:
    """The device tensor whose elements a loop binds to a name: of `for v in x`, `for i, v in enumerate(x)`."""
    clauses: list[tuple[cst.BaseExpression, cst.BaseExpression]] = []
    if isinstance(loop, cst.For):
        clauses.append((loop.target, loop.iter))
    elif isinstance(loop, cst.BaseComp):
        clause: cst.CompFor | None = loop.for_in  # type: ignore[attr-defined]  # all comprehensions have it
        while clause is not None:
            clauses.append((clause.target, clause.iter))
            clause = clause.inner_for_in
    for target, over in clauses:
        if isinstance(target, cst.Name) and target.value == name and place.on_device(over):
            return over
        if not isinstance(target, cst.Tuple) or not isinstance(over, cst.Call):
            continue
        names = [e.value.value if isinstance(e.value, cst.Name) else "" for e in target.elements]
        if name not in names:
            continue
        at = names.index(name) - (place.name(over) == "enumerate")
        if place.name(over) in ("enumerate", "zip") and 0 <= at < len(over.args):
            if place.on_device(over.args[at].value):
                return over.args[at].value
    return None


def _hoistable(read: Read, loop: cst.CSTNode, place: Place) -> bool:
    """Whether a read gives the same in every round of the loop, and is made in every round."""
    if not isinstance(loop, cst.For | cst.While | cst.BaseComp):
        return False
    if isinstance(loop, cst.BaseComp) and not _in_element(read, loop, place):
        return False
    if not _settled(read.tensor, place) or not place.invariant(read.tensor, loop):
        return False
    names = names_in(read.tensor)
    if names & target_names(loop):
        return False
    if isinstance(loop, cst.While) and holds(loop.test, read.call):
        return False
    if place.self_name in names and _calls_own_methods(loop, place):
        return False
    inside = [test for test, _ in place.conditions if holds(loop, test)]
    return not inside


def _in_element(read: Read, loop: cst.BaseComp, place: Place) -> bool:
    """Whether a read stands where a comprehension asks for it in every round, not in its first iterable."""
    return not holds(loop.for_in.iter, read.call)  # type: ignore[attr-defined]  # all comprehensions have it


def _settled(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression, computed twice from the same names, gives the same: names, attributes, and
    methods and torch functions that draw no random numbers and change nothing."""
    if isinstance(node, cst.Name | cst.Integer | cst.Float | cst.SimpleString):
        return True
    if isinstance(node, cst.Attribute):
        return _settled(node.value, place)
    if isinstance(node, cst.Subscript):
        parts = [e.slice for e in node.slice]
        return _settled(node.value, place) and all(
            isinstance(p, cst.Index) and _settled(p.value, place) for p in parts
        )
    if isinstance(node, cst.UnaryOperation):
        return _settled(node.expression, place)
    if isinstance(node, cst.BinaryOperation):
        return _settled(node.left, place) and _settled(node.right, place)
    if isinstance(node, cst.Comparison):
        return _settled(node.left, place) and all(_settled(c.comparator, place) for c in node.comparisons)
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        last = node.func.attr.value
        if last.endswith("_") or last in RANDOM:
            return False
        ours = place.name(node).startswith("torch.") or (
            (place.kind(node.func.value).is_tensor or last in REDUCING) and _settled(node.func.value, place)
        )
        return ours and all(not a.star and _settled(a.value, place) for a in node.args)
    return False


def _calls_own_methods(loop: cst.CSTNode, place: Place) -> bool:
    return any(
        place.name(call).startswith("self.") and loop in scene.loops for call, scene in place.calls()
    )


def _per_element(read: Read, loop: cst.CSTNode, place: Place) -> bool:
    """Whether a loop reads one tensor after the other: those it runs over, not what a training step gives."""
    if isinstance(loop, cst.BaseComp):
        return bool(names_in(read.tensor) & target_names(loop)) and _in_element(read, loop, place)
    if not isinstance(loop, cst.For) or place.hot.per == "step" or place.hot.only_loops:
        return False
    if any(loop in scene.loops for _, scene in place.calls(*_HOLDS_STILL)):
        return False
    return bool(names_in(read.tensor) & target_names(loop))


def _same_value(first: Read, at: Scene, second: Read, scene: Scene, place: Place) -> bool:
    """Whether a read made before surely gave what this one gives."""
    if first.how != second.how or not place.same(first.tensor, second.tensor):
        return False
    if not _settled(first.tensor, place) or at.loops != scene.loops[: len(at.loops)]:
        return False
    if at.conditions != scene.conditions[: len(at.conditions)] or _may_be_skipped(first, place):
        return False
    if at.loops != scene.loops and not all(place.invariant(second.tensor, l) for l in scene.loops[len(at.loops) :]):
        return False
    between = _statements_between(at, scene)
    if between is None:
        return False
    names = names_in(first.tensor)
    if place.self_name in names and at.statement is not scene.statement:
        return False
    return not names & bound_names(between)


def _may_be_skipped(read: Read, place: Place) -> bool:
    """Whether a read stands where an expression may stop before it."""
    node: cst.CSTNode | None = read.call
    while node is not None:
        parent = place.parent(node)
        if isinstance(parent, cst.BooleanOperation) and parent.right is node:
            return True
        if isinstance(parent, cst.IfExp) and parent.test is not node:
            return True
        if isinstance(parent, cst.BaseComp | cst.Lambda):
            return True
        node = parent
    return False


def _statements_between(at: Scene, scene: Scene) -> list[cst.CSTNode] | None:
    """What runs from the statement of the first place to that of the second, the first one included; None
    where that cannot be told."""
    if at.statement is scene.statement:
        return [] if isinstance(at.statement, cst.SimpleStatementLine) or at.block is scene.block else None
    start = _position(at.block, at.statement)
    if start is None:
        return None
    for end, statement in enumerate(at.block):
        if statement is scene.statement or holds(statement, scene.statement):
            # Of the statement that holds the second place all is taken, also what comes after it.
            return list(at.block[start:end]) + ([statement] if statement is not scene.statement else [])
    return None


def _position(block: Sequence[cst.CSTNode], statement: cst.CSTNode) -> int | None:
    return next((i for i, s in enumerate(block) if s is statement), None)


def _row(read: Read, scene: Scene, reads: Sequence[tuple[Read, Scene]], place: Place) -> list[Read]:
    """Reads of numbers that follow each other with nothing between that needs the first: one wait would do."""
    if not _rows(read, scene):
        return []
    mine = [
        (r, s)
        for r, s in reads
        if _rows(r, s) and s.block == scene.block and not _may_be_skipped(r, place)
    ]  # fmt: skip
    row: list[tuple[Read, Scene]] = []
    for r, s in mine:
        if row and not _follows(row, s, r, place):
            if any(x.call is read.call for x, _ in row):
                break
            row = []
        if not any(place.same(r.tensor, x.tensor) for x, _ in row):
            row.append((r, s))
    return [r for r, _ in row] if any(r.call is read.call for r, _ in row) else []


def _rows(read: Read, scene: Scene) -> bool:
    return read.how != "tolist" and isinstance(scene.statement, cst.SimpleStatementLine) and not any(
        isinstance(loop, cst.BaseComp) for loop in scene.loops
    )


def _follows(row: Sequence[tuple[Read, Scene]], scene: Scene, read: Read, place: Place) -> bool:
    start = _position(scene.block, row[-1][1].statement)
    end = _position(scene.block, scene.statement)
    if start is None or end is None or end - start > 1:
        return False
    first = _position(scene.block, row[0][1].statement)
    between = scene.block[first:end]
    return not names_in(read.tensor) & bound_names(between)


# -- what becomes of it ---------------------------------------------------------------------------------------


def _use(read: Read, place: Place) -> str:
    """What the value is for, as advice: logged, summed up, a size, a number for torch."""
    node: cst.CSTNode = read.call
    parent = place.parent(node)
    while isinstance(parent, cst.BinaryOperation | cst.UnaryOperation | cst.Dict | cst.List | cst.Tuple) or (
        isinstance(parent, cst.Call) and place.name(parent) in (*NUMBERS, "round", "abs")
    ):
        node, parent = parent, place.parent(parent)
    if isinstance(parent, cst.AugAssign) and read.how in ("item", "float") and not isinstance(node, cst.BinaryOperation):
        total = say(place, parent.target)
        return f"Sum up on the device (`{total} += {_detached(read, place)}`) and read `{total}` where it is logged."
    if isinstance(parent, cst.Call):
        last = place.last_name(parent)
        if last in _LOGGING:
            return f"Hand on the tensor (`{_detached(read, place)}`) and read it at the log interval only."
        if last == "range" or (place.name(parent).startswith("torch.") and last in ("zeros", "ones", "empty", "full", "arange")):
            return "Pass the size along as a Python number from where the host knows it."
        if place.is_torch(parent, *_TAKES_TENSORS):
            return f"`torch.{last}` takes the tensor itself: pass `{say(place, read.tensor)}` on unread."
    if _checks(parent if isinstance(parent, cst.Comparison) else node, place):
        return "Check on the device (`torch._assert_async`), where the values are made, or only when asked to."
    if isinstance(parent, cst.Comparison):
        return "Compare on the device and select with `torch.where`, or decide by something the host already knows."
    return "Keep it on the device as a tensor, or read it outside the hot path, where the host has to wait anyway."


def _checks(node: cst.CSTNode, place: Place) -> bool:
    """Whether a value is only asked whether all is well."""
    if not isinstance(node, cst.BaseExpression):
        return False
    who = asked(node, place)
    return who.asker == "assert" or only_raises(who.by)


def _detached(read: Read, place: Place) -> str:
    shown = say(place, read.tensor)
    if isinstance(read.tensor, cst.BinaryOperation | cst.UnaryOperation | cst.Comparison):
        shown = f"({shown})"
    return shown if "detach" in shown else f"{shown}.detach()"


def _finding(place: Place, read: Read, message: str, fix: Fix | None = None) -> Finding:
    return tell(place, read.call, message, certainty=read.certainty, fix=fix)


class _ReadRule(Rule):
    """What the rules about single reads share: they judge a call if it plays their part."""

    role: Role
    looks_for = Call(*READS)

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Only reads of this rule's role are told."""
        if on_host_by_trade(place) or _told_on_failure(node, place):
            return None
        read = read_of(node, place)
        if read is None:
            return None
        role, row = _role(read, place)
        return self.tell(read, row, place) if role == self.role else None

    def tell(self, read: Read, row: Sequence[Read], place: Place) -> Finding | None:
        """The verdict on a read that plays the part."""
        raise NotImplementedError


class ItemRead(_ReadRule):
    """`.item()` makes the host wait for the device.

    ## What it does

    Finds `.item()` on tensors that may live on a device, in hot code.

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

    No fix: whether the number is needed on the host is for a reader to decide.
    """

    code = "DG411"
    name = "item-read"
    origin = "torchtune#522"
    looks_for = Call("item")
    role = "plain"

    def tell(self, read: Read, row: Sequence[Read], place: Place) -> Finding | None:
        """One read on its own."""
        shown = say(place, read.call)
        return _finding(place, read, f"`{shown}` makes the host wait for the device. {_use(read, place)}")


class NumberOfTensor(_ReadRule):
    """`float()`, `int()` or `complex()` of a tensor makes the host wait for the device.

    ## What it does

    Finds `float(t)`, `int(t)`, `complex(t)` of tensors that may live on a device, in hot code.

    ## Why it costs

    It is `.item()` in other words: the host waits until the device has worked through everything queued before.

    ## Example

    ```python
    scale = 1.0 / float(x.norm())
    ```

    ## Instead

    ```python
    scale = 1.0 / x.norm()
    ```

    ## Fix safety

    No fix: whether a Python number is needed is for a reader to decide.
    """

    code = "DG412"
    name = "python-number-of-tensor"
    origin = "transformers#33693"
    looks_for = Call("int", "float", "complex")
    role = "plain"

    def tell(self, read: Read, row: Sequence[Read], place: Place) -> Finding | None:
        """One read on its own."""
        shown = say(place, read.call)
        return _finding(
            place, read, f"`{shown}` reads a tensor, so the host waits for the device. {_use(read, place)}"
        )


class ListOfTensor(_ReadRule):
    """`.tolist()` makes the host wait for the device.

    ## What it does

    Finds `.tolist()` on tensors that may live on a device, in hot code.

    ## Why it costs

    The host waits until the device has worked through everything queued before, copies the tensor, and makes a
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

    No fix: where the host can get the values from is for a reader to find.
    """

    code = "DG413"
    name = "tolist-read"
    origin = "diffusers#12072"
    looks_for = Call("tolist")
    role = "plain"

    def tell(self, read: Read, row: Sequence[Read], place: Place) -> Finding | None:
        """One read on its own; of what was stacked to be read at once it is a maybe."""
        shown = say(place, read.call)
        if isinstance(read.tensor, cst.Call) and place.is_torch(read.tensor, "stack", "cat"):
            read = replace(read, certainty="maybe")
        return _finding(
            place,
            read,
            f"`{shown}` makes the host wait for the device and copies every element to Python. Pass the values along "
            "from where the host knows them, or keep the work on the device.",
        )


class CopyToHost(Rule):
    """A tensor is copied to the CPU in hot code.

    ## What it does

    Finds `.cpu()`, `.to("cpu")` and `.numpy()` on tensors that may live on a device. `.numpy()` works on CPU
    tensors only, so on its own it is a maybe, shown with `--pedantic`.

    ## Why it costs

    The copy waits until the device has worked through everything queued before, and the host waits for the copy.

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

    No fix: where the copy is used is for a reader to see.
    """

    code = "DG414"
    name = "copy-to-host"
    origin = "DeepSpeed#5578"
    looks_for = Call("cpu", "to", "numpy")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        tensor = place.receiver(node)
        if tensor is None or on_host_by_trade(place) or not _copies_to_cpu(node, place):
            return None
        certainty = tensor_certainty(tensor, place, strict=place.last_name(node) != "cpu")
        if certainty is None or waits_inside(tensor, place):
            return None
        if _on_odd_devices(node, place) or _earlier_in_statement(node, place):
            return None
        shown = say(place, node)
        if place.last_name(node) == "numpy" and not node.args:
            return tell(
                place,
                node,
                f"`{shown}` works on CPU tensors only: on a device it needs a copy first, which the host waits for. "
                "Stay with torch in hot code.",
                certainty="maybe",
            )
        foreign = _given_to(node, place)
        if foreign:
            return tell(
                place,
                node,
                f"`{shown}` copies from the device for `{foreign}`, and the host waits for it. Gather what it needs into "
                "one copy, or find an operation of torch that does the work.",
                certainty="maybe",
            )
        return tell(
            place,
            node,
            f"`{shown}` copies from the device, and the host waits for it. Keep the work on the device, or copy once, "
            "outside the hot path.",
            certainty=certainty,
        )


def _earlier_in_statement(call: cst.Call, place: Place) -> bool:
    """Whether the statement copies another tensor before: one place gets one finding."""
    for other, scene in place.calls("cpu", "to"):
        if other is call:
            return False
        if scene.statement is place.statement and isinstance(scene.statement, cst.SimpleStatementLine):
            tensor = place.receiver(other)
            if tensor is not None and _copies_to_cpu(other, place) and tensor_certainty(tensor, place) == "sure":
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
            foreign = as_numpy and not name.startswith(("torch.", "numpy.", "self.")) and place.callee(parent) is None
            return place.text(parent.func) if foreign else ""
        as_numpy = as_numpy or (isinstance(parent, cst.Attribute) and parent.attr.value == "numpy")
        node, parent = parent, place.parent(parent)
    return ""


def _copies_to_cpu(call: cst.Call, place: Place) -> bool:
    last = place.last_name(call)
    for argument in call.args:
        # With non_blocking the host goes on.
        if argument.keyword is not None and argument.keyword.value == "non_blocking":
            return place.text(argument.value) == "False"
    if last == "cpu":
        return not call.args
    if last == "numpy":
        return not call.args or any(a.keyword is not None and a.keyword.value == "force" for a in call.args)
    device = place.argument(call, 0, "device")
    return device is not None and place.text(device) in ('"cpu"', "'cpu'", 'torch.device("cpu")', "torch.device('cpu')")


_WARNING = re.compile(r"warn|error|exception|critical|fatal|check|assert|fail", re.IGNORECASE)
_ODD_DEVICES = re.compile(r"mps|npu|xla|hpu|tpu|deterministic|directml", re.IGNORECASE)
_TEXTS = frozenset({"str", "repr", "format", "print"})


class TextOfTensor(Rule):
    """A tensor is turned into text in hot code.

    ## What it does

    Finds tensors in f-strings, and as arguments of `print`, `str`, `repr`, `format` and `.format(...)`.

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

    No fix: what is to be printed, and how often, is for a reader to decide.
    """

    code = "DG415"
    name = "text-of-tensor"
    origin = "pytorch#126829"
    looks_for = (FString(), Call("print", "str", "repr", "format"))

    def judge(self, node: cst.FormattedString | cst.Call, place: Place) -> Finding | None:
        if on_host_by_trade(place) or _goes_to_a_warning(node, place) or _told_on_failure(node, place):
            return None
        if isinstance(node, cst.FormattedString):
            parts = [p.expression for p in node.parts if isinstance(p, cst.FormattedStringExpression)]
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
        for part in parts:
            if place.on_device(part) and not waits_inside(part, place):
                better = "Format it at the log interval only, or log its shape and dtype, which the host knows."
                if _goes_to_a_check(node, place):
                    better = "Build the text only once the check has failed, or leave the value out of it."
                return tell(
                    place,
                    node,
                    f"{what} the tensor `{say(place, part)}` on every call, so the host waits for the device and copies "
                    f"it. {better}",
                )
        return None


def _given_text(node: cst.CSTNode, place: Place) -> str:
    """The last name of the function that a text is made for."""
    parent = place.parent(node)
    while isinstance(parent, cst.BinaryOperation | cst.ConcatenatedString | cst.IfExp):
        parent = place.parent(parent)
    return place.last_name(parent) if isinstance(parent, cst.Call) else ""


def _told_on_failure(node: cst.CSTNode, place: Place) -> bool:
    """Whether a place is in a function that a check calls when it fails: `check(ok, lambda: f"got {x}")`."""
    parent = place.parent(node) if place.scene.deferred else None
    while parent is not None:
        if isinstance(parent, cst.Lambda):
            return _goes_to_a_check(parent, place)
        parent = place.parent(parent)
    return False


def _goes_to_a_check(node: cst.CSTNode, place: Place) -> bool:
    """Whether a text is what a check says when it fails."""
    return re.search(r"check|assert", _given_text(node, place), re.IGNORECASE) is not None


def _goes_to_a_warning(node: cst.CSTNode, place: Place) -> bool:
    """Whether a text is made for a warning, an error or a check under a condition: those are rare by nature."""
    return bool(place.conditions) and _WARNING.search(_given_text(node, place)) is not None


class ReadPerElement(_ReadRule):
    """A loop reads one tensor after the other, and waits for the device each time.

    ## What it does

    Finds `.item()`, `float()`, `int()` and `.tolist()` of what a loop or comprehension runs over.

    ## Why it costs

    Every read waits for the device. Stacked, all values come in one wait.

    ## Example

    ```python
    counts = [m.sum().item() for m in masks]
    ```

    ## Instead

    ```python
    counts = torch.stack([m.sum() for m in masks]).tolist()
    ```

    ## Fix safety

    Unsafe: stacking fails on an empty list, and needs all values on one device; of mixed dtypes it makes one.
    """

    code = "DG416"
    name = "read-per-element"
    origin = "torchrec#1485"
    role = "each"
    fixes = "unsafe"

    def tell(self, read: Read, row: Sequence[Read], place: Place) -> Finding | None:
        """One read in every round of a loop."""
        shown = say(place, read.call)
        loop = place.loops[-1]
        base = _indexed(read.tensor, loop)
        if base is not None:
            how = f"Read `{say(place, base)}.tolist()` once before the loop and index the list."
        elif isinstance(loop, cst.For):
            how = (
                "Compute it for all rounds first, or collect the tensors, and read them all at once with one "
                "`torch.stack(...).tolist()`."
            )
        else:
            how = "Stack them and read once: `torch.stack([...]).tolist()`."
        return _finding(
            place, read, f"`{shown}` makes the host wait for the device in every round. {how}", _stacked(read, place)
        )


def _indexed(tensor: cst.BaseExpression, loop: cst.CSTNode) -> cst.BaseExpression | None:
    """`x` of `x[i]`, where the loop's variable is the index."""
    if isinstance(tensor, cst.Subscript) and len(tensor.slice) == 1 and isinstance(tensor.slice[0].slice, cst.Index):
        index = tensor.slice[0].slice.value
        targets = target_names(loop)
        if isinstance(index, cst.Name) and index.value in targets and not names_in(tensor.value) & targets:
            return tensor.value
    return None


def _stacked(read: Read, place: Place) -> Fix | None:
    """`[int(x.item()) for …]` with one stack and one read, where each value is one number for sure."""
    kind = place.kind(read.tensor)
    if read.certainty != "sure" or kind.ndim != 0 or read.how == "tolist":
        return None
    element: cst.BaseExpression = read.call
    cast = "" if read.how == "item" else read.how
    parent = place.parent(element)
    if isinstance(parent, cst.Call) and place.name(parent) in ("int", "float") and len(parent.args) == 1 and not cast:
        element, cast = parent, place.last_name(parent)
        parent = place.parent(element)
    if not isinstance(parent, cst.ListComp) or parent.elt is not element or parent.lpar:
        return None
    new = place.text(parent.with_changes(elt=read.tensor))
    text = f"torch.stack({new}).tolist()"
    if cast and cast != kind.dtype:
        text = f"[{cast}(v) for v in {text}]"
    return place.replace(
        parent,
        text,
        safety="unsafe",
        message="Stack and read once; fails on an empty list, needs one device and one dtype",
        imports=("import torch",),
    )


class ReadsInARow(_ReadRule):
    """Several tensors are read one right after the other.

    ## What it does

    Finds two or more `.item()`, `float()` or `int()` reads in one statement, or in statements that follow each
    other, of which none needs what another gave.

    ## Why it costs

    Each read is a wait and a copy of its own. Stacked on the device, they come in one.

    ## Example

    ```python
    low, high = x.min().item(), x.max().item()
    ```

    ## Instead

    ```python
    low, high = torch.stack([x.min(), x.max()]).tolist()
    ```

    ## Fix safety

    Unsafe: stacking needs one device; of mixed dtypes it makes one.
    """

    code = "DG417"
    name = "reads-in-a-row"
    origin = "vLLM#42850"
    role = "row"
    fixes = "unsafe"

    def tell(self, read: Read, row: Sequence[Read], place: Place) -> Finding | None:
        """The first read of a row."""
        names = ", ".join(say(place, r.tensor, 24) for r in row[:4]) + (", …" if len(row) > 4 else "")
        return _finding(
            place,
            read,
            f"{len(row)} reads in a row, each of which makes the host wait for the device. "
            f"`torch.stack([{names}]).tolist()` waits once.",
            _unpacked(row, place),
        )


def _unpacked(row: Sequence[Read], place: Place) -> Fix | None:
    """`a, b = x.item(), y.item()` with one stack and one read."""
    kinds = [place.kind(r.tensor) for r in row]
    if any(r.how != "item" or r.certainty != "sure" for r in row) or any(k.ndim != 0 for k in kinds):
        return None
    whole = place.parent(row[0].call)
    if not isinstance(whole, cst.Tuple) or len({k.dtype for k in kinds}) > 1:
        return None
    if [e.value for e in whole.elements] != [r.call for r in row]:
        return None
    assign = place.parent(whole)
    if not isinstance(assign, cst.Assign) or not all(isinstance(t.target, cst.Tuple) for t in assign.targets):
        return None
    text = f"torch.stack([{', '.join(place.text(r.tensor) for r in row)}]).tolist()"
    return place.replace(
        whole, text, safety="unsafe", message="Read once; needs one device and one dtype", imports=("import torch",)
    )


class SameReadTwice(_ReadRule):
    """The same value is read from the device once more.

    ## What it does

    Finds a read (`.item()`, `float()`, `.tolist()` …) of what was read before, with nothing between that changes it.

    ## Why it costs

    Each read is a wait and a copy of its own, though Python has the value already.

    ## Example

    ```python
    if n.item() > 1:
        x = x / n.item()
    ```

    ## Instead

    ```python
    count = n.item()
    if count > 1:
        x = x / count
    ```

    ## Fix safety

    No fix: the name for the value is for a reader to choose.
    """

    code = "DG418"
    name = "same-read-twice"
    origin = "diffusers#13461"
    role = "again"

    def tell(self, read: Read, row: Sequence[Read], place: Place) -> Finding | None:
        """A read that was made before."""
        shown = say(place, read.call)
        return _finding(
            place,
            read,
            f"`{shown}` was read before, and makes the host wait for the device once more. Keep the first result in "
            "a name.",
        )


class ReadInvariantInLoop(_ReadRule):
    """A loop reads the same value from the device in every round.

    ## What it does

    Finds reads inside loops of tensors that the loop does not change.

    ## Why it costs

    The host waits for the device in every round, for a value that it had after the first.

    ## Example

    ```python
    for layer in self.layers:
        x = layer(x, mask.sum(1).tolist())
    ```

    ## Instead

    ```python
    lengths = mask.sum(1).tolist()
    for layer in self.layers:
        x = layer(x, lengths)
    ```

    ## Fix safety

    No fix: the name for the value is for a reader to choose.
    """

    code = "DG419"
    name = "invariant-read-in-loop"
    origin = "diffusers#12072"
    role = "invariant"

    def tell(self, read: Read, row: Sequence[Read], place: Place) -> Finding | None:
        """A read that gives the same in every round."""
        shown = say(place, read.call)
        return _finding(
            place,
            read,
            f"`{shown}` makes the host wait for the device in every round, for the same value: the loop does not change "
            "it. Read it once before the loop.",
        )


class PythonExtremumOfTensors(Rule):
    """Python's `max`, `min` or `sorted` compares tensors, and waits for the device at each comparison.

    ## What it does

    Finds `max(a, b)`, `min(...)`, `sorted(...)` with tensors among what they compare, and over lists and
    comprehensions of tensors.

    ## Why it costs

    Python asks each comparison for its truth, so the host waits for the device once per element.

    ## Example

    ```python
    largest = max(g.abs().max() for g in grads)
    ```

    ## Instead

    ```python
    largest = torch.stack([g.abs().max() for g in grads]).max()
    ```

    ## Fix safety

    No fix: of empty input and of NaN the two make different things.
    """

    code = "DG420"
    name = "python-extremum-of-tensors"
    origin = "DeepSpeed#4915"
    looks_for = Call("max", "min", "sorted")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        how = place.name(node)
        if how not in ("max", "min", "sorted") or on_host_by_trade(place):
            return None
        if any(a.star or a.keyword is not None for a in node.args) or not node.args:
            return None
        shown = say(place, node)
        if len(node.args) > 1:
            return self._of_arguments(node, how, shown, place)
        given = node.args[0].value
        kind = place.kind(given)
        if kind.on_device:
            better = f"{say(place, given)}.{'sort().values' if how == 'sorted' else how + '()'}"
            return tell(
                place,
                node,
                f"Python's `{shown}` takes the tensor apart and waits for the device at each comparison. `{better}` is "
                "one operation.",
            )
        element = kind.element
        if kind.what == "nested" and kind.sure and element is not None and element.on_device:
            better = "torch.stack(...)" + (".sort().values" if how == "sorted" else f".{how}()")
            return tell(
                place,
                node,
                f"`{shown}` compares one tensor after the other, and the host waits for the device each time. "
                f"`{better}` compares on the device.",
            )
        return None

    def _of_arguments(self, node: cst.Call, how: str, shown: str, place: Place) -> Finding | None:
        kinds = [place.kind(a.value) for a in node.args]
        if not any(k.on_device for k in kinds) or any(k.what == "nested" for k in kinds):
            return None
        if any(waits_inside(a.value, place) for a in node.args):
            return None
        if all(k.is_tensor for k in kinds):
            better = f"torch.{how}imum(...)"
        else:
            better = f".clamp({'min' if how == 'max' else 'max'}=...)"
        return tell(
            place,
            node,
            f"Python's `{shown}` asks a comparison of tensors for its truth, so the host waits for the device. "
            f"`{better}` stays on the device.",
        )


class IterationOverTensor(Rule):
    """A loop takes a tensor apart on the host and reads its elements one by one.

    ## What it does

    Finds loops and comprehensions over a tensor whose elements are read (`.item()`, `int()`, …) in the loop. A
    loop that does not read them waits for nothing, but makes one view per element: it is a maybe, shown
    with `--pedantic`.

    ## Why it costs

    Taking the tensor apart makes a view per element, and each read of one waits for the device.

    ## Example

    ```python
    for n in lengths:
        out.append(int(n))
    ```

    ## Instead

    ```python
    for n in lengths.tolist():
        out.append(n)
    ```

    ## Fix safety

    Unsafe, for `[v.item() for v in x]` alone: of an `x` with more than one dimension `x.tolist()` gives nested lists.
    """

    code = "DG428"
    name = "iteration-over-tensor"
    origin = "speechbrain#2683"
    looks_for = Iterated()
    fixes = "unsafe"

    def judge(self, node: cst.BaseExpression, place: Place) -> Finding | None:
        if not place.on_device(node) or waits_inside(node, place) or on_host_by_trade(place):
            return None
        loop = _loop_over(node, place)
        if loop is None:
            return None
        shown = say(place, node)
        reads = [
            r
            for call, scene in place.calls(*READS)
            if loop in scene.loops and (r := read_of(call, place)) is not None
            and _iterated_by(r, scene, place) is node
        ]  # fmt: skip
        if reads and _zipped_before(node, place):
            return None
        if reads:
            return tell(
                place,
                node,
                f"The loop takes `{shown}` apart, and `{say(place, reads[0].call)}` makes the host wait for the device "
                f"for each element. `{shown}.tolist()` reads them all at once.",
                fix=self._fix(node, loop, reads[0], place),
            )
        return tell(
            place,
            node,
            f"The loop takes `{shown}` apart on the host, one view per element. Work on the whole tensor, or read it "
            "once with `.tolist()` if the values are needed on the host.",
            certainty="maybe",
        )

    def _fix(self, node: cst.BaseExpression, loop: cst.CSTNode, read: Read, place: Place) -> Fix | None:
        if not isinstance(loop, cst.ListComp) or loop.elt is not read.call or read.how != "item":
            return None
        if loop.for_in.ifs or loop.for_in.inner_for_in is not None or loop.for_in.iter is not node or loop.lpar:
            return None
        text = place.text(node)
        if not isinstance(node, cst.Name | cst.Attribute | cst.Call | cst.Subscript):
            text = f"({text})"
        return place.replace(
            loop, f"{text}.tolist()", safety="unsafe", message="Read the tensor once; meant for one dimension"
        )


def _zipped_before(node: cst.BaseExpression, place: Place) -> bool:
    """Whether a zip runs over another tensor before this one: one place gets one finding."""
    parent = place.parent(node)
    if not isinstance(parent, cst.Call) or place.name(parent) != "zip":
        return False
    values = [a.value for a in parent.args]
    return any(place.on_device(v) for v in values[: next(i for i, v in enumerate(values) if v is node)])


def _loop_over(node: cst.BaseExpression, place: Place) -> cst.CSTNode | None:
    """The for loop or comprehension that runs over an expression, directly or through enumerate and zip."""
    outer: cst.CSTNode | None = node
    parent = place.parent(node)
    if isinstance(parent, cst.Call) and place.name(parent) in ("enumerate", "zip"):
        outer, parent = parent, place.parent(parent)
    if isinstance(parent, cst.BaseComp):
        return parent
    if parent is None and isinstance(place.statement, cst.For) and place.statement.iter is outer:
        return place.statement
    return None
