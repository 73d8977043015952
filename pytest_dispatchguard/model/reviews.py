"""What a change does to findings, budgets and calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_dispatchguard.model.compiled import Guards
from pytest_dispatchguard.model.findings import Finding, RuleInfo
from pytest_dispatchguard.model.history import CounterMove
from pytest_dispatchguard.model.measurements import CostlyLine, Interval
from pytest_dispatchguard.model.verdicts import Outcome


@dataclass(frozen=True, slots=True)
class BudgetChange:
    """What became of the budget of one subject."""

    node_id: str
    subject: str
    verdict: Outcome
    reason: str = ""
    moved: tuple[CounterMove, ...] = ()
    change: Interval | None = None
    """How many times dearer it is; None where that was not measured."""
    lines: tuple[CostlyLine, ...] = ()
    """What runs more instructions than it did, the dearest first."""
    guards: tuple[Guards, ...] = ()
    """Those that were not there."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Lines next to each other that a code host shows of a change, and takes comments on."""

    first: int
    last: int
    old_path: str = ""
    """Of the file before; empty for a new one."""
    same: Mapping[int, int] = field(default_factory=dict)
    """Of lines in it that did not change, the numbers before by the numbers now."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A finding, and the lines of the change that a comment on it stands at."""

    finding: Finding
    first: int
    last: int
    shown: Stretch


@dataclass(frozen=True, slots=True)
class Review:
    """What a change adds to the findings of a project and takes from them, and what it does to budgets."""

    base: str
    """The revision that it is held against, as it was named."""
    remarks: tuple[Remark, ...]
    """New findings at lines of the change."""
    others: tuple[Finding, ...]
    """New findings elsewhere, of which no line of the change can be named as the cause."""
    fixed: tuple[Finding, ...]
    """Findings that are gone, with their places before."""
    budgets: tuple[BudgetChange, ...] | None = None
    """Those that did not stay as they were; None where nobody asked."""
    kept: int = 0
    """How many budgets stayed as they were."""
    notes: tuple[str, ...] = ()
    prefix: str = ""
    """From the top of the repository to the project, for whoever knows files from there: empty, or with a
    slash at its end."""

    @property
    def new(self) -> tuple[Finding, ...]:
        """All new findings."""
        return (*(remark.finding for remark in self.remarks), *self.others)

    strict: bool = False
    """Whether notes are something to answer for."""
    rules: tuple[RuleInfo, ...] = ()
    """Those of the new findings."""

    @property
    def bad(self) -> bool:
        """Whether there is something to answer for."""
        found = any(self.strict or f.certainty != "note" for f in self.new)
        return found or any(b.verdict in ("fail", "error") for b in self.budgets or ())


@dataclass(frozen=True, slots=True)
class Gain:
    """What a change makes of the cost of one call."""

    name: str
    """The call, or the test and its subject."""
    before: Mapping[str, int]
    """Counters; `syncs` are waits for the device."""
    after: Mapping[str, int]
    varying: tuple[str, ...] = ()
    """Counters that differ from call to call."""
    us: float | None = None
    """Microseconds before; None where it was not timed."""
    change: Interval | None = None
    """How many times that it takes after."""
    note: str = ""

    def moved(self, counter: str) -> int:
        """By how much a counter surely changed; 0 where that is not known."""
        if counter in self.varying or counter not in self.before or counter not in self.after:
            return 0
        return self.after[counter] - self.before[counter]

    @property
    def moved_us(self) -> Interval | None:
        """By how many microseconds the call changed; None where it was not timed."""
        if self.us is None or self.change is None:
            return None
        ends = (self.change.value, self.change.low, self.change.high)
        return Interval(*((end - 1) * self.us for end in ends))


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of trying a change in a copy of the work tree."""

    name: str
    """The finding with its place, or the file of the patch."""
    kept: bool
    """Whether the tests are as before, the change surely pays, and costs nothing."""
    reason: str = ""
    """Why it is not kept."""
    tests: int | None = None
    """How many had the same outcome as before; None where none were run."""
    gains: tuple[Gain, ...] = ()
    files: tuple[str, ...] = ()
    """What it changes, relative to the work tree."""
    output: str = ""
    """The end of what the tests printed, where one has another outcome."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of all changes."""

    changes: tuple[Verified, ...]
    together: Verified | None = None
    """All that are kept, at once; None where there are none, or the only one is all."""
    notes: tuple[str, ...] = ()
    applied: tuple[str, ...] | None = None
    """The files that were written; None where that was not asked for."""
