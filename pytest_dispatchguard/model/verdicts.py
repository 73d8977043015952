"""Budgets and what became of them: limits, bases and verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pytest_dispatchguard.model.compiled import Compiled
from pytest_dispatchguard.model.layers import Layers
from pytest_dispatchguard.model.measurements import CostlyLine, Interval, Measurement, Pace

ROUGHLY = {"native_instructions": 0.005}
"""Counters that do not repeat to the unit, and by which share of themselves they may differ between two
revisions of the same code: the state of the heap alone moves a call by up to 0.3%."""


def has_moved(name: str, before: float, now: float) -> bool:
    """Whether a counter differs by more than it may without reason."""
    return abs(now - before) > ROUGHLY.get(name, 0) * before


Outcome = Literal["pass", "fail", "undecided", "skipped", "error"]


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that a call may cost, in one figure."""

    name: str
    value: float
    tolerance: float = 0
    recorded: bool = False
    """Whether the budget file says so, and no marker or setting."""

    @property
    def said(self) -> str:
        """The limit in words."""
        return f"{'recorded' if self.recorded else 'allowed'} {self.shown}"

    @property
    def most(self) -> float:
        """What is just allowed."""
        return self.value + self.tolerance

    @property
    def shown(self) -> str:
        """The limit as people write it."""
        parts = (self.value, self.tolerance) if self.tolerance else (self.value,)
        return " + ".join(str(int(p)) if p == int(p) else f"{p:g}" for p in parts)


@dataclass(frozen=True, slots=True)
class Base:
    """The same subject in another revision, or in a run of before."""

    name: str
    """``origin/main``, or what the run is called."""
    counters: Mapping[str, int]
    measured: Measurement | None = None
    """None where it was not timed."""
    change: Interval | None = None
    """How many times dearer the subject is than there, each held against its own reference."""
    note: str = ""
    """Why there is nothing to compare with; empty where there is."""
    untimed: str = ""
    """Why it could not be timed, though times were to decide; empty where it could."""
    implied_us: Interval | None = None
    """What the instructions by which counters differ are estimated to take, where times cannot tell: by what
    an instruction takes on this machine, and never measured."""
    lines: tuple[CostlyLine, ...] = ()
    layers: Layers | None = None
    """Where its time goes; None where nobody asked."""
    compiled: Compiled | None = None
    """None where it runs no compiled code."""
    earlier: bool = False
    """Whether it was measured at another time, in another run, and not by turns with what is held against
    it."""
    pace: Pace | None = None
    """How the machine's pace differs from that of an earlier run; None where control calls were not timed
    in both."""
    other: tuple[str, ...] = ()
    """What else is different from an earlier run: the processor, Python, torch."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came out for one subject of one test."""

    node_id: str
    subject: str
    verdict: Outcome
    counters: Mapping[str, int]
    limits: tuple[Limit, ...] = ()
    reason: str = ""
    """Why, in words; empty where there is nothing to say."""
    recorded: Mapping[str, float] | None = None
    """What the budget file has for it; None where it has nothing."""
    lines: tuple[CostlyLine, ...] = ()
    """Where a subject that costs too much spends it, the dearest first."""
    measured: Measurement | None = None
    """What it takes; None where only counters were asked for."""
    base: Base | None = None
    """What it is compared with; None where that was not asked for."""
    varying: tuple[str, ...] = ()
    """Counters that differ from call to call."""
    form: str = ""
    """How the call is made: ``f(a0, axis=k0)``."""
    layers: Layers | None = None
    """Where its time goes; None where nobody asked, as of a subject that keeps its budget."""
    reference_layers: Layers | None = None
    """The same of its reference."""
    compiled: Compiled | None = None
    """What torch compiled of it; None where it runs no compiled code."""
