"""Timings and instruction counts of one call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """A measured figure, and what it lies between as surely as was asked."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Interval:
        """So many times the figure; the factor is above 0."""
        return Interval(self.value * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True, slots=True)
class Beside:
    """What calls took in one process, in microseconds."""

    subject_us: float
    controls: Mapping[str, float]
    """By name: control calls, which no revision of a project changes."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How the machine's pace differs from that of an earlier run, as control calls show it."""

    change: Interval
    """How many times what they took there they take here. The interval is for any other call: it has the
    spread among control calls in it."""
    each: Mapping[str, float]
    """The same by control call."""
    apart: float = 0.0
    """By how much, as a logarithm, two control calls certainly differ in that."""
    subject: Interval | None = None
    """How many times what it took the subject takes, the change of the control calls divided out."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one call of a subject takes, from blocks of calls in all processes that measured it."""

    subject_us: Interval
    reference_us: Interval | None = None
    """None where the subject has no reference, as in the next three."""
    ratio: Interval | None = None
    extra_us: Interval | None = None
    device_us: Interval | None = None
    """How long the device works on it; None on the CPU."""
    control: float = 1.0
    """The reference against itself, from blocks among the others."""
    pairs: int = 0
    processes: int = 0
    grows: float = 0.0
    """By what part a call got slower while it was measured, the reference's pace taken off."""
    note: str = ""
    """What the device makes of the times, in words."""
    apart: float = 0.0
    """By how much the ratio (the time, where there is no reference) may be another in a run at another time,
    as a logarithm."""
    beside: tuple[Beside, ...] = ()
    """Of each process that timed control calls."""


@dataclass(frozen=True, slots=True)
class CostlyLine:
    """A line of source, and how many instructions of one call it answers for."""

    path: str
    line: int
    instructions: int
    text: str = ""
    extra: int | None = None
    """How many of them its base does not run; None where there is no base."""


@dataclass(frozen=True, slots=True)
class Sized:
    """What one call takes at one size."""

    size: int
    whole_us: Interval
    kernels_us: Interval | None = None
    """None where kernels could not be told apart."""
    ratio: Interval | None = None
    """How many times what its reference takes; None where there is none."""

    @property
    def overhead(self) -> float | None:
        """What part of a call is no kernel; None where that cannot be told."""
        if self.kernels_us is None or not self.whole_us.value:
            return None
        return min(1.0, max(0.0, 1 - self.kernels_us.value / self.whole_us.value))


@dataclass(frozen=True, slots=True)
class Scaling:
    """How a call grows with its size: what it takes whatever the size, and what comes on top."""

    subject: str
    sizes: tuple[Sized, ...]
    fixed_us: float | None = None
    """None where the times fit no such form."""
    slope_us: float = 0.0
    power: float = 1.0
    """A call of size n takes ``fixed_us + slope_us * n ** power``."""
    dominates: float | None = None
    """The size from which kernels take more than all else; None where they do at none that was measured, or
    cannot be told apart."""
    error: float = 0.0
    """By what part of a time the form is off, at most."""
