"""A lint run's result, from which every report format is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_dispatchguard.model.findings import Certainty, Finding, RuleInfo

if TYPE_CHECKING:
    from pytest_dispatchguard.model.operations import OperationsAt


@dataclass(frozen=True, slots=True)
class Summary:
    """The numbers under a report."""

    files: int = 0
    functions: int = 0
    hot_functions: int = 0
    suppressed: int = 0
    baselined: int = 0
    fixed: int = 0
    unheard: int = 0
    """What is only maybe so, and told with `--pedantic`."""
    unnoted: int = 0
    """Notes that are not told, because nobody wants notes."""
    cheap: int = 0
    """What costs less than is asked for."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A process that ran tests and ended before it could tell of them."""

    worker: str
    tests: int
    """Of which there is no record."""

    def said(self) -> str:
        """In a line."""
        tests = "1 test" if self.tests == 1 else f"{self.tests} tests"
        return f"{self.worker} ended before it could tell: {tests} that ran there left no record"


@dataclass(frozen=True, slots=True)
class Report:
    """All that a lint run has to tell: what every report format is made from."""

    findings: tuple[Finding, ...]
    summary: Summary
    rules: tuple[RuleInfo, ...]
    version: str
    notes: tuple[str, ...] = field(default=())
    """Lines for people that are no findings: stale baseline entries, files passed over."""
    operations: tuple[OperationsAt, ...] | None = None
    """What lines asked of the dispatcher; None where nobody wanted to know."""
    ranked: bool = False
    """Whether the findings are in the order of what they cost, the dearest first."""
    most_notes: int | None = None
    """How many notes a page for people shows; None for all."""
    missing: tuple[Missing, ...] = ()
    """What of a run that was watched is not in it."""

    def of(self, *levels: Certainty) -> tuple[Finding, ...]:
        """The findings of some levels, in order."""
        return tuple(f for f in self.findings if f.certainty in levels)
