"""DG43x: the host waits for the device, or frees cached memory, because the code says so."""

from __future__ import annotations

import re
from collections.abc import Iterable

import libcst as cst

from pytest_dispatchguard import Call, Certainty, Finding, Fix, Place, Rule, nodes

from .host_code import works_on_host

_DEVICES = frozenset({"cuda", "xpu", "mps", "npu", "hpu", "mtia", "accelerator", "musa", "mlu"})
_MEASURING = re.compile(
    r"profil|bench|sweep|tuning|autotune|calibrat|timing|timer|timeit|throughput|measur|debug|verbose|elapsed|wall_clock|"
    r"(?:report|log|print|show)_times?\b|_t0\b",
    re.IGNORECASE,
)
_ASKED_FOR = re.compile(
    r"gc|garbage|empty|clear|free|flush|collect|low_?mem|offload|oom", re.IGNORECASE
)
_MAKES_ROOM = re.compile(r"offload|sleep|wake_up|release|(?:^|_)free(?:_|$)", re.IGNORECASE)
"""Functions that are there to give memory back, by their names."""
_COLLECTOR = re.compile(r"Garbage_?Collect|garbage_collect|GC(?![a-z])")
"""What collects garbage when it is due, in place of Python."""
_REASON = re.compile(
    r"\b(?:hang|dead-?lock|stall|race|work-?around|bug|crash|corrupt|because|otherwise|without|need|must|"
    r"require|avoid|prevent|ensure|make sure|so that|illegal memory)",
    re.IGNORECASE,
)
"""Says why somebody wants the host to wait."""


def _on_device_module(name: str) -> bool:
    """Whether a dotted name is of torch's module of a device: `torch.cuda.synchronize`."""
    parts = name.split(".")
    return len(parts) >= 3 and parts[0] == "torch" and parts[1] in _DEVICES


_MEETING = frozenset({"barrier", "monitored_barrier"})
_ASKED_TO_WAIT = re.compile(r"sync|block|wait", re.IGNORECASE)


def _explained(place: Place) -> bool:
    """Whether a comment at the statement gives a reason for it."""
    statement = place.statement
    lines = (
        *getattr(statement, "leading_lines", ()),
        getattr(statement, "trailing_whitespace", None),
    )
    comments = [
        line.comment.value for line in lines if line is not None and line.comment is not None
    ]
    return any(_REASON.search(comment) for comment in comments)


def _measured(place: Place) -> bool:
    """Whether the place measures time or memory, where waiting is the point."""
    if works_on_host(place) or _MEASURING.search(place.qualname):
        return True
    return any(_MEASURING.search(place.text(test)) for test, _ in place.conditions)


def _meant(place: Place) -> bool:
    """Whether what stands beside a statement says that all are to wait here: a barrier of processes, or a
    line that is printed then to tell how far the device is."""
    if "barrier" in place.function.name.value.lower():
        return True
    block = list(place.block)
    at = block.index(place.statement) if place.statement in block else len(block)
    return bool(
        _calls(block[max(0, at - 1) : at + 2], place) & _MEETING
        or "print" in _calls(block[at + 1 : at + 2], place)
    )


_CLOCKS = frozenset({"time", "perf_counter", "perf_counter_ns", "monotonic", "elapsed_time"})


def _clocked(place: Place) -> bool:
    """Whether a clock is read beside a statement: the wait is there for what it measures."""
    block = list(place.block)
    at = block.index(place.statement) if place.statement in block else len(block)
    return bool(_calls(block[max(0, at - 1) : at + 2], place) & _CLOCKS)


_STREAM_OR_EVENT = re.compile(r"(?:^|[._])(?:\w*_)?(?:stream|event)s?$", re.IGNORECASE)


def _of_stream_or_event(inner: cst.BaseExpression | None, place: Place) -> bool:
    """Whether a stream or an event is waited for, by its name, in a file that works with torch, or by what it
    was made with."""
    if inner is None or "torch" not in place.imports:
        return False
    made = place.value_of(inner) if isinstance(inner, cst.Name) else None
    if isinstance(made, cst.Call) and place.last_name(made) in ("Event", "Stream"):
        return _on_device_module(place.name(made))
    return _STREAM_OR_EVENT.search(place.dotted(inner)) is not None


def _calls(statements: Iterable[cst.CSTNode], place: Place) -> set[str]:
    """What simple statements call, by the last word of its name."""
    return {
        place.last_name(found)
        for statement in statements
        if isinstance(statement, cst.SimpleStatementLine)
        for found in nodes.walk(statement)
        if isinstance(found, cst.Call)
    }


class Synchronize(Rule):
    """The host waits for the whole device: `synchronize()`.

    ## What it does

    Finds `torch.cuda.synchronize()` (and that of other devices, of `torch.accelerator` and of streams)
    in hot code, but where processes meet at a barrier, or a line is printed after it. An event or a stream
    that is waited for is a note, and so is a wait beside a clock or under a condition.

    ## Why it costs

    The host stops until the device has finished everything, and the queue runs empty.

    ## Example

    ```python
    torch.cuda.synchronize()
    ```

    ## Instead

    ```python
    torch.cuda.current_stream().wait_stream(side_stream)
    ```

    ## Fix safety

    No fix: only the author knows what the barrier guards.
    """

    code = "DG431"
    name = "wait-for-device"
    origin = "tensordict#1545"
    looks_for = Call("synchronize")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A barrier that measures nothing."""
        name = place.name(node)
        inner = node.func.value if isinstance(node.func, cst.Attribute) else None
        of_stream = isinstance(inner, cst.Call) and place.last_name(inner).endswith("_stream")
        waits = _of_stream_or_event(inner, place)
        if not (_on_device_module(name) or of_stream or waits) or _measured(place):
            return None
        if _meant(place):
            return None
        if any(
            holds and _ASKED_TO_WAIT.search(shown := place.text(test)) and "overlap" not in shown
            for test, holds in place.conditions
        ):
            return None  # whoever sets that wants the wait
        return place.finding(
            node,
            f"`{place.short(node)}` stops the host until the device has finished everything "
            "queued. If one stream depends on another, use `wait_stream` or an event; reads wait by "
            "themselves.",
            certainty="note"
            if _explained(place) or waits or _clocked(place) or place.conditions
            else "sure",
        )


class ThrowAwayMemory(Rule):
    """Cached device memory is given back, or the garbage collector run, in hot code.

    ## What it does

    Finds `torch.cuda.empty_cache()` (and that of other devices) and `gc.collect()` in hot code, one of a
    function; under a condition it is a note. Functions that are there to make room, by their names
    (`offload_model`, `release_memory`), are left alone.

    ## Why it costs

    `empty_cache` waits for the device, and the next allocations have to go to the driver again.
    `gc.collect` walks all Python objects there are.

    ## Example

    ```python
    def training_step(self, batch):
        loss = self.loss(batch)
        torch.cuda.empty_cache()
        return loss
    ```

    ## Instead

    ```python
    def training_step(self, batch):
        return self.loss(batch)
    ```

    ## Fix safety

    Unsafe: the fix takes the call out, and one of the kind right beside it. Where memory is so scarce that
    it only fits without its fragments, a step may run out of it then. None is offered where one of them
    stands under a condition.
    """

    code = "DG432"
    name = "throw-away-memory"
    origin = "peft#2894"
    looks_for = Call("empty_cache", "collect")
    fixes = "unsafe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """The first such call of a function, or the first that waits for the device."""
        name = place.name(node)
        if _measured(place) or _one_before(node, place):
            return None
        if any(_ASKED_FOR.search(place.text(test)) for test, _ in place.conditions):
            return None
        if _MAKES_ROOM.search(place.function.name.value):
            return None
        certainty: Certainty = "note" if place.conditions else "sure"
        if name == "gc.collect":
            if _of_the_young(node) or _COLLECTOR.search(place.qualname):
                return None
            return place.finding(
                node,
                "`gc.collect()` walks all Python objects on every call. Remove it, or run it only "
                "every few hundred steps.",
                certainty=certainty,
                fix=_taken_out(node, place),
            )
        if _gives_back(name):
            return place.finding(
                node,
                f"`{place.short(node)}` waits for the device and frees memory that the next call has "
                "to allocate from the driver again. Remove it, or run it only every few hundred steps.",
                certainty=certainty,
                fix=_taken_out(node, place),
            )
        return None


def _taken_out(node: cst.Call, place: Place) -> Fix | None:
    """Its statement gone, and those right beside it that do nothing else either."""
    if place.conditions or not _throws(place.statement, place):
        return None
    block = list(place.block)
    first = last = block.index(place.statement)
    while first and _throws(block[first - 1], place):
        first -= 1
    while last + 1 < len(block) and _throws(block[last + 1], place):
        last += 1
    run = block[first : last + 1]
    others = any(
        (_gives_back(place.name(call)) or place.name(call) == "gc.collect")
        and scene.function is place.function
        and scene.statement not in run
        for call, scene in place.calls("empty_cache", "collect")
    )
    gone = [place.without(one) for one in run]
    if others or len(run) == len(block) > 1 or any(edit is None for edit in gone):
        return None
    message = "Take it out; where memory is scarce, a step may then run out of it"
    return place.edits([], safety="unsafe", message=message, more=filter(None, gone))


def _throws(statement: cst.CSTNode | None, place: Place) -> bool:
    """Whether a statement does nothing but give memory back, or collect garbage."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return False
    said = statement.body[0]
    return (
        isinstance(said, cst.Expr)
        and isinstance(said.value, cst.Call)
        and (_gives_back(place.name(said.value)) or place.name(said.value) == "gc.collect")
    )


def _gives_back(name: str) -> bool:
    """Whether a function gives cached memory of a device back."""
    return name.rpartition(".")[2] == "empty_cache" and _on_device_module(name)


def _of_the_young(node: cst.Call) -> bool:
    """Whether only objects made lately are collected, as Python does by itself: `gc.collect(1)`."""
    given = [a.value for a in node.args]
    return len(given) == 1 and isinstance(given[0], cst.Integer) and given[0].evaluated_value < 2


def _one_before(node: cst.Call, place: Place) -> bool:
    """Whether the function throws memory away in another way before (`elif is_xpu: …`), or, in the same block
    as `gc.collect()`, gives memory of a device back: one place, one finding."""
    collects = place.name(node) == "gc.collect"
    before = True
    for call, scene in place.calls("empty_cache", "collect"):
        if call is node:
            before = False
        elif scene.function is place.function:
            gives_back = _on_device_module(place.name(call))
            beside = scene.block == place.block
            if collects and gives_back and beside:
                return True
            if before and gives_back:
                return True
            if before and place.name(call) == "gc.collect" and (collects or not beside):
                return True
    return False
