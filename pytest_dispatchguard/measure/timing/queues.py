"""What only an accelerator makes one ask of a call: does a block of it fit into the device's queue, does it
wait for the device by itself, and how long does the device work on it.

All three are answered by holding the device back for a while, so that the host has asked for a whole block
before the device begins with it: then the block fits, nothing in it has waited, and the device works on it
without gaps. None of this happens in blocks whose host time is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import repeat

from pytest_dispatchguard.measure.timing.calling import Block
from pytest_dispatchguard.measure.timing.devices import Device, Queue
from pytest_dispatchguard.measure.timing.intervals import median

_LEAST_HOLD_NS = 200_000
_TIMES_HOLD = 3
"""How long a device is delayed, as a multiple of the host time of a block: the host may be disturbed."""
_MOST_HOLD = 24
_LONGEST_HOLD_NS = 1_000_000_000
"""On devices with a display, the driver kills kernels that run for seconds."""
_TRIES = 3
_SLOW_NS = 10_000_000
"""A block that takes so long is hardly disturbed: holding for little longer than it will do."""
_LITTLE_LONGER = 1.5

Prepare = Callable[[], object]


@dataclass(slots=True)
class Watched:
    """The subject or the reference, measured on a device with a queue."""

    block: Block
    loops: int
    block_ns: float
    """What a block takes on the host."""
    waits: bool = False
    """Whether a single call waits for the device."""
    syncs: int | None = None
    """How often a call waits, as the device reports; None if it does not report that."""

    def said(self, who: str) -> str:
        """The note for the report; empty if there is none."""
        if self.syncs:
            often = "once" if self.syncs == 1 else f"{self.syncs} times"
            return (
                f"{who} waits for the device {often} in each call: its host time holds device time"
            )
        if self.waits:
            return (
                f"{who} waits for the device by itself, or fills its queue with one call: "
                "its host time holds device time"
            )
        return ""


def watched(
    block: Block, loops: int, block_ns: float, device: Device, queue: Queue, prepare: Prepare
) -> Watched:
    """Shortens a block until it fits into the device's queue."""
    tried = loops
    while not _fits(block, tried, block_ns * tried / loops, device, queue, prepare):
        if tried == 1:
            return Watched(block, loops, block_ns, waits=True)
        tried //= 2
    return Watched(block, tried, block_ns * tried / loops)


def _fits(
    block: Block, loops: int, block_ns: float, device: Device, queue: Queue, prepare: Prepare
) -> bool:
    """Whether the host is done with a block while the device has not begun with it. True where the device
    cannot be held, or not for as long as one call takes, and so nobody knows."""
    hold = _hold_ns(block_ns, _TIMES_HOLD)
    if hold is None:
        return loops == 1
    for _ in range(1 if block_ns > _SLOW_NS else _TRIES):
        prepare()
        device.wait()
        held = queue.hold(hold)
        first = queue.mark()
        block(repeat(None, loops))
        begun = first.passed()
        device.wait()
        if not held or not begun:
            return True
        hold *= 2
    return False


def _hold_ns(block_ns: float, times: float) -> float | None:
    """For how long a device is held back from a block; None from one that takes too long for that."""
    wanted = max(_LEAST_HOLD_NS, block_ns * (times if block_ns <= _SLOW_NS else _LITTLE_LONGER))
    return wanted if wanted <= _LONGEST_HOLD_NS else None


@dataclass(slots=True)
class DeviceTimes:
    """How long the device works on the calls of one side."""

    side: Watched
    device: Device
    queue: Queue
    prepare: Prepare
    dense: list[float] = field(default_factory=list)
    """Nanoseconds of a call, marks included, in blocks that the device worked through without a pause."""
    loose: list[float] = field(default_factory=list)
    """The same of blocks that it began before the host had asked for all of them."""
    nothing: list[float] = field(default_factory=list)
    """Nanoseconds between two marks with nothing between them, of one call's share."""
    held: bool = False
    """Whether the device can be held back from these calls."""
    hold: float = float(_TIMES_HOLD)

    def __post_init__(self) -> None:
        self.held = not self.side.waits and self.queue.hold(0)

    @property
    def blocks(self) -> int:
        """How many were measured."""
        return len(self.dense) + len(self.loose)

    def block(self) -> None:
        """Measures one block, and holds the device longer where it was not long enough."""
        took, in_time = self._took(self.side.loops)
        (self.dense if in_time else self.loose).append(took / self.side.loops)
        if not in_time:
            self.hold = min(self.hold * 2, _MOST_HOLD)

    def empty(self) -> None:
        """Measures the marks alone."""
        self.nothing.append(self._took(0)[0] / self.side.loops)

    def _took(self, loops: int) -> tuple[float, bool]:
        self.prepare()
        self.device.wait()
        wanted = _hold_ns(self.side.block_ns, self.hold)
        held = self.held and wanted is not None and self.queue.hold(wanted)
        first = self.queue.mark()
        self.side.block(repeat(None, loops))
        last = self.queue.mark()
        in_time = held and not first.passed()
        self.device.wait()
        return first.until(last), in_time

    def values(self) -> list[float]:
        """Nanoseconds of device time of a call."""
        nothing = median(sorted(self.nothing))
        return [max(took - nothing, 0.0) for took in self.dense or self.loose]

    def said(self) -> str:
        """The note about device time; empty if there is none."""
        return "" if self.dense else "device time holds the gaps between what the host asks for"
