"""Why a device had nothing to do: the host had waited for it, launched too late, or waited for data."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Protocol

Cause = Literal["waits", "late", "input", "queued"]


class Waited(Protocol):
    """A time in which the host waited."""

    start: float
    end: float
    left: float
    """Of its length, what accounts for no gap yet."""


@dataclass(frozen=True, slots=True)
class Launched:
    """The call that gave the device what ends a gap."""

    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a gap, and its cause."""

    start: float
    end: float
    cause: Cause
    wait: Waited | None = None

    @property
    def us(self) -> float:
        """How long it is."""
        return self.end - self.start


def explained(
    start: float,
    end: float,
    launched: Launched | None,
    waits: Iterable[Waited],
    inputs: Iterable[tuple[float, float]] = (),
    *,
    closes: bool = True,
) -> Iterator[Part]:
    """Divides a gap in a device's queue by cause. `waits` and `inputs` are those of the thread that
    launched what comes after the gap, in order. Without a launch (`closes` false: the gap ends because the
    step does) what no wait explains is the host's, which gave the device nothing.

    A wait accounts for no more than what is left of its length: without it the host would have been that
    much earlier. One that begins with the launch or later, as the copy that it waits for itself, has not
    delayed that."""
    if launched is not None and launched.end <= start:
        yield Part(start, end, "queued")
        return
    if launched is None and closes:
        yield Part(start, end, "queued")
        return
    at = start
    for wait in waits:
        if wait.end < start or at >= end:
            continue
        if launched is not None and wait.start >= launched.start:
            break
        began = max(at, wait.start)
        if began >= end:
            break
        # One in which the gap begins has kept the host for all of its length.
        until = min(end, began + wait.left)
        if until <= began:
            continue
        if began > at:
            yield from _late(at, began, inputs)
        yield Part(began, until, "waits", wait)
        at = until
    if at < end:
        yield from _late(at, end, inputs)


def _late(start: float, end: float, inputs: Iterable[tuple[float, float]]) -> Iterator[Part]:
    at = start
    for began, ended in inputs:
        if ended <= at or began >= end:
            continue
        if began > at:
            yield Part(at, began, "late")
            at = began
        until = min(ended, end)
        yield Part(at, until, "input")
        at = until
    if at < end:
        yield Part(at, end, "late")


class Windows:
    """The steps of a trace: windows in time that do not overlap, in order."""

    def __init__(self, windows: Sequence[tuple[float, float, str]]) -> None:
        self.starts = [start for start, _, _ in windows]
        self.ends = [end for _, end, _ in windows]
        self.names = [name for _, _, name in windows]

    def __len__(self) -> int:
        return len(self.starts)

    def at(self, time: float) -> int | None:
        """The number of the window that a moment lies in."""
        found = bisect_right(self.starts, time) - 1
        return found if found >= 0 and time < self.ends[found] else None

    def shares(self, start: float, end: float) -> Iterator[tuple[int, float]]:
        """The windows that a span of time touches, and for how long."""
        number = max(0, bisect_right(self.starts, start) - 1)
        while number < len(self.starts) and self.starts[number] < end:
            us = min(end, self.ends[number]) - max(start, self.starts[number])
            if us > 0:
                yield number, us
            number += 1


def windows(
    steps: Iterable[tuple[float, float, str]],
    optimized: Iterable[float],
    first: float,
    last: float,
) -> tuple[Windows, bool]:
    """The steps of a trace, and whether the profiler marked them. Else they go from one step of an
    optimizer to the next, or all is one."""
    marked: list[tuple[float, float, str]] = []
    for start, end, name in sorted(steps):
        if end > start and (not marked or start >= marked[-1][1]):
            marked.append((start, end, name))
    if marked:
        return Windows(marked), True
    ends = sorted(set(optimized))
    if len(ends) > 1:
        return Windows([(a, b, f"step {n}") for n, (a, b) in enumerate(pairwise(ends))]), False
    return Windows([(first, last, "trace")] if last > first else []), False
