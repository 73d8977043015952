"""The devices that calls are timed on: an accelerator goes on working after a call has returned."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from pytest_dispatchguard.runtime.torch_private import lazy_backend

KINDS = ("cpu", "cuda", "hpu", "lazy", "maia", "mps", "mtia", "npu", "xpu")
"""Device types that are known without torch; other backends are known once they are loaded."""
LAZY = "lazy"
"""The lazy device, whose tensors only record a trace: the time is that of building it."""


class Mark(Protocol):
    """A mark in the queue of a device, such as an event."""

    def passed(self) -> bool:
        """Whether the device has reached it."""

    def until(self, later: Any) -> float:
        """Nanoseconds of device time to a later mark; the device has reached both."""


class Queue(Protocol):
    """The queue of work of a device."""

    def hold(self, nanoseconds: float) -> bool:
        """Delays the work that follows by about this long; False if that cannot be done."""

    def mark(self) -> Mark:
        """Puts a mark at the end of the current stream."""

    def syncs(self, run: Callable[[], object]) -> int | None:
        """How often a call makes the host wait, as the device reports; None if it does not report that."""


class Device(Protocol):
    """A device that calls run on."""

    name: str
    most_calls: int
    """The most calls in a block: fewer than the queue holds, else calls wait for each other."""
    block_ns: int
    """The least time of a block."""
    queue: Queue | None
    """None if work is done when a call returns, or if its end cannot be observed."""

    def wait(self) -> None:
        """Waits until the device is idle."""


class _Host:
    name = "cpu"
    most_calls = 10_000
    block_ns = 20_000
    queue: Queue | None = None

    def wait(self) -> None:
        """Does nothing: calls on the host are done when they return."""


HOST: Device = _Host()


class _Lazy:
    """Dropped results drop their part of the trace. What a call leaves, such as a write to a tensor, is
    computed between blocks, else the trace would grow from block to block."""

    name = LAZY
    most_calls = 1_000
    block_ns = 200_000  # executing the trace slows the next block down by some 2.5 µs
    queue: Queue | None = None

    def wait(self) -> None:
        lazy_backend.lazy_trace_executed()


class Accelerator:
    """The current accelerator of torch."""

    most_calls = 50
    block_ns = 100_000  # longer than on the host: each block pays for a wait

    def __init__(self, kind: str) -> None:
        torch = sys.modules["torch"]
        self.name = kind
        generic = getattr(torch, "accelerator", None)
        self.wait: Callable[[], None] = (generic or torch.cuda).synchronize
        # torch.Event came before torch.accelerator, but knew less at first.
        event = partial(torch.Event, kind) if generic else torch.cuda.Event
        queue = _Events(partial(event, enable_timing=True), torch.cuda if kind == "cuda" else None)
        self.queue: Queue | None = queue if _tells_time(queue, self.wait) else None


class _Events:
    """The queue of an accelerator, by torch's events. Only CUDA can be delayed and reports waits."""

    def __init__(self, event: Callable[[], Any], cuda: Any) -> None:
        self._event = event
        self._cuda: Any = cuda if hasattr(cuda, "_sleep") else None
        self._cycles_per_ns = 0.0

    def mark(self) -> _Recorded:
        event = self._event()
        event.record()  # on the current stream, whichever the user has chosen
        return _Recorded(event)

    def hold(self, nanoseconds: float) -> bool:
        if self._cuda is None:
            return False
        if not self._cycles_per_ns:
            self._cycles_per_ns = self._pace()
        self._cuda._sleep(int(nanoseconds * self._cycles_per_ns))
        return True

    def _pace(self) -> float:
        cycles = 1_000_000
        self._cuda._sleep(cycles)  # an idle device is slow at first
        first = self.mark()
        self._cuda._sleep(cycles)
        last = self.mark()
        self._cuda.synchronize()
        return cycles / max(first.until(last), 1.0)

    def syncs(self, run: Callable[[], object]) -> int | None:
        if self._cuda is None:
            return None
        before = self._cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            self._cuda.set_sync_debug_mode("warn")
            try:
                run()
            finally:
                self._cuda.set_sync_debug_mode(before)
        return sum("called a synchronizing" in str(warning.message) for warning in told)


class _Recorded:
    def __init__(self, event: Any) -> None:
        self._event = event

    def passed(self) -> bool:
        return bool(self._event.query())

    def until(self, later: _Recorded) -> float:
        return float(self._event.elapsed_time(later._event)) * 1e6


def _tells_time(queue: Queue, wait: Callable[[], None]) -> bool:
    """Whether the events of an accelerator measure time: not all backends can."""
    try:
        first, last = queue.mark(), queue.mark()
        wait()
        first.until(last)
    except (RuntimeError, NotImplementedError, TypeError):
        return False
    return True


def here(kind: str | None = None) -> Device:
    """The device of a test: its `overhead_device`, else the accelerator if this process uses it."""
    if kind == "cpu":
        return HOST
    if kind == LAZY:
        return _Lazy()
    present = accelerator()
    if present is not None and (kind == present or _in_use(present)):
        return Accelerator(present)
    return HOST


def accelerator() -> str | None:
    """The type of accelerator that torch finds, such as ``cuda``; None before torch is imported. The
    accelerator is not initialized, as forked children could not use it after that."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    kind = _kind(torch)
    if kind is None:
        return None
    # torch.accelerator.is_available() may initialize CUDA's driver; device_count() asks NVML.
    count = getattr(getattr(torch, kind, None), "device_count", None)
    present = count() > 0 if count is not None else torch.accelerator.is_available()
    return kind if present else None


def _kind(torch: Any) -> str | None:
    """The type of accelerator that this torch is built for."""
    if not hasattr(torch, "accelerator"):
        return "cuda"
    try:
        device = torch.accelerator.current_accelerator()
    except RuntimeError:  # torch 2.6 raises where there is none
        return None
    return None if device is None or device.type == "cpu" else str(device.type)


def _in_use(kind: str) -> bool:
    module = getattr(sys.modules["torch"], kind, None)
    is_initialized = getattr(module, "is_initialized", None)
    return bool(is_initialized()) if is_initialized is not None else True


def named(text: str) -> tuple[str, ...]:
    """Parses device types such as ``cpu,cuda``; raises ValueError for unknown ones."""
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not words:
        raise ValueError("names no device: say cpu, or cpu,cuda")
    for word in words:
        if word not in KINDS and word != _imported_kind():
            raise ValueError(f"{word!r} is no kind of device: say {', '.join(KINDS)}")
    return words


def axis(words: Sequence[str] | None) -> list[tuple[str, str]]:
    """The devices that tests run on, each with the reason why it cannot be used, or an empty string. Imports
    torch if an accelerator may be among them."""
    if words is not None and set(words) == {"cpu"}:
        return [("cpu", "")]
    present = ["cpu"]
    if _imported_kind() is not None:
        kind = accelerator()
        present += [kind] if kind is not None else []
    # The lazy device is only checked when the process that runs the test starts it.
    able = {*present, LAZY}
    return [(w, "" if w in able else f"no {w} device here") for w in words or present]


def started(kind: str) -> str:
    """Starts the device of a test if needed; returns why that fails, or an empty string."""
    why = lazy_backend.lazy_backend_started() if kind == LAZY else ""
    return f"no {kind} device here: {why}" if why else ""


def _imported_kind() -> str | None:
    """Imports torch and returns its type of accelerator; None also if torch is not installed."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return None
    return _kind(torch)
