"""Budget runs over time, and the commits that moved counters or times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.model.verdicts import Outcome


@dataclass(frozen=True, slots=True)
class CounterMove:
    """A counter of a subject that is not what it was."""

    name: str
    before: int
    now: int


@dataclass(frozen=True, slots=True)
class Checkout:
    """The state of the code that was measured."""

    commit: str = ""
    """Empty where there is no git."""
    branch: str = ""
    """Empty where none is checked out."""
    dirty: bool | None = None
    """Whether files that git knows were not as they are in the commit; None where nobody knows."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run of budgets: when, of what code, on what machine."""

    at: str
    """In UTC: ``2026-01-31T12:00:00.000000Z``."""
    machine: Mapping[str, str]
    checkout: Checkout = Checkout()

    @property
    def versions(self) -> dict[str, str]:
        """What counters hold for: all that is known but the processor."""
        return {name: version for name, version in self.machine.items() if name != "cpu"}


@dataclass(frozen=True, slots=True)
class Kept:
    """What a run found of one subject, as the history keeps it."""

    node_id: str
    subject: str
    verdict: Outcome
    counters: Mapping[str, int]
    reason: str = ""
    ratio: Interval | None = None
    """None where it was not measured, as in the next four."""
    host_us: Interval | None = None
    extra_us: Interval | None = None
    device_us: Interval | None = None
    reference_us: float | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """One subject in one run."""

    run: Run
    kept: Kept

    def moved(self, before: Point | None) -> tuple[CounterMove, ...]:
        """The counters that are not what they were; none where they hold for other versions of Python and
        torch."""
        if before is None or before.run.versions != self.run.versions:
            return ()
        was = before.kept.counters
        return tuple(
            CounterMove(name, was[name], now)
            for name, now in self.kept.counters.items()
            if was.get(name, now) != now
        )


@dataclass(frozen=True, slots=True)
class Trend:
    """One subject from run to run, the oldest first; at least one."""

    points: tuple[Point, ...]

    @property
    def node_id(self) -> str:
        """The test."""
        return self.points[0].kept.node_id

    @property
    def subject(self) -> str:
        """Of the test."""
        return self.points[0].kept.subject

    def moves(self) -> tuple[tuple[CounterMove, ...], ...]:
        """For each point, the counters that moved since the last one that has any, of the same versions."""
        return tuple(
            point.moved(before) for point, before in zip(self.points, self.befores(), strict=True)
        )

    def befores(self) -> tuple[Point | None, ...]:
        """For each point, the last one before it that has counters of the same versions."""
        last: dict[str, Point] = {}
        found = []
        for point in self.points:
            key = repr(sorted(point.run.versions.items()))
            found.append(last.get(key))
            if point.kept.counters:
                last[key] = point
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Tried:
    """A commit that was measured while another was searched for."""

    commit: str
    number: float | None
    """What the counter was there, or the microseconds of a call; None where that could not be measured."""
    change: Interval | None = None
    """How many times what a call took at the good commit; None where counters are followed."""
    reason: str = ""
    """Why it could not be timed, or decides nothing; empty otherwise."""


@dataclass(frozen=True, slots=True)
class Culprit:
    """The commit that moved a counter, or the time of a call."""

    node_id: str
    subject: str
    counter: str
    """Its name, or `time`."""
    before: float
    """What it was at the good commit: of a counter a whole number, of time microseconds of a call."""
    now: float
    commit: str
    author: str
    date: str
    title: str
    """The first line of its message."""
    tried: tuple[Tried, ...] = ()
    change: Interval | None = None
    """How many times what it was before a call takes now; None where a counter moved."""
    good: str = ""
    """The commit that others were compared with by turns; empty where a counter moved."""
