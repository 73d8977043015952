"""One pass of a check: lint the files, then set aside what the baseline accepts, what the change does not
touch, what is not shown, and what costs too little. Fixing takes several passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_dispatchguard import prices
from pytest_dispatchguard.config.config import selected
from pytest_dispatchguard.lint import engine
from pytest_dispatchguard.lint.pipeline.outcome import Outcome, unreadable_input
from pytest_dispatchguard.lint.pipeline.survey import Texts
from pytest_dispatchguard.lint.request import Request, Traces
from pytest_dispatchguard.lint.results.reported import is_shown
from pytest_dispatchguard.lint.session import Session
from pytest_dispatchguard.lint.sources.files import Discovery, Source, Unreadable, read_source
from pytest_dispatchguard.model.findings import Finding

if TYPE_CHECKING:
    from pytest_dispatchguard.lint.results import baseline as baselines
    from pytest_dispatchguard.lint.sources import git_diff
    from pytest_dispatchguard.model.prices import PriceTable

# Baselines and git are imported where they are used: most runs need neither.


@dataclass(frozen=True, slots=True)
class Check:
    """What all passes of one check have in common."""

    request: Request
    session: Session
    discovery: Discovery
    stdin: Source | Unreadable | None
    changes: git_diff.Changes | None
    """Against the base of `--diff-base`."""
    accepted: baselines.Baseline | None
    prices: PriceTable | None
    """The project's own, as measured on its machine."""
    traces: Traces | None = None

    @property
    def texts(self) -> dict[str, str]:
        """Texts in place of those on disk: standard input."""
        return {self.stdin.rel: self.stdin.text} if isinstance(self.stdin, Source) else {}

    def is_cheap(self, finding: Finding) -> bool:
        """Whether a finding costs less than asked for; one without a price does not."""
        told = finding.price is not None or finding.traced is not None
        return told and finding.us < self.request.min_cost

    def speaking(self) -> set[str]:
        """The codes of the rules that may report something."""
        config = self.session.config
        return {i.code for i in self.session.catalog.infos if selected(config, i.code, i.default)}

    def checked_files(self, outcome: Outcome) -> set[str]:
        """The files of which the outcome knows all findings."""
        return {f.rel for f in self.discovery.targets} - outcome.unread


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass found."""

    outcome: Outcome
    findings: tuple[Finding, ...]
    """What is shown, with prices."""
    match: baselines.Match | None
    untouched: tuple[Finding, ...]
    """Outside of the lines that the change touches."""
    hidden: tuple[Finding, ...]
    """Notes and "maybe" findings that were not asked for."""
    cheap: tuple[Finding, ...]


def one_pass(check: Check, texts: Mapping[str, str]) -> Pass:
    """Lint once, with these texts in place of those on disk."""
    config = check.session.config
    outcome = _lint(check, texts)
    match = _match(check, outcome)
    found = outcome.findings if match is None else match.new
    touched, untouched = _by_change(check, found, texts)
    shown = prices.priced(
        (f for f in touched if is_shown(config, f)), check.session.catalog.prices, check.prices
    )
    return Pass(
        outcome,
        tuple(f for f in shown if not check.is_cheap(f)),
        match,
        tuple(untouched),
        tuple(f for f in touched if not is_shown(config, f)),
        tuple(f for f in shown if check.is_cheap(f)),
    )


def _lint(check: Check, texts: Mapping[str, str]) -> Outcome:
    session = check.session
    if isinstance(check.stdin, Unreadable):
        return unreadable_input(session.config, session.catalog.infos, check.stdin)
    outcome = engine.run(session, check.discovery, texts=texts, progress=check.request.progress)
    if check.traces is None:
        return outcome
    # What is silenced has its share of what was measured, too.
    found = (*outcome.findings, *outcome.suppressed)
    told = tuple(check.traces.measured(found, Texts(check.discovery, texts)))
    number = len(outcome.findings)
    return replace(outcome, findings=told[:number], suppressed=told[number:])


def _match(check: Check, outcome: Outcome) -> baselines.Match | None:
    """Match all findings with the baseline, so that those not shown this time keep their entries."""
    renewed = check.request.write_baseline and not outcome.problems
    if check.accepted is None or renewed:
        return None
    from pytest_dispatchguard.lint.results import baseline as baselines

    return baselines.match(
        outcome.findings,
        check.accepted,
        checked=check.checked_files(outcome),
        ran=check.speaking(),
        root=check.session.config.root,
    )


def _by_change(
    check: Check, findings: Sequence[Finding], texts: Mapping[str, str]
) -> tuple[Sequence[Finding], Sequence[Finding]]:
    """The findings on changed lines, and the others."""
    if check.changes is None:
        return findings, ()
    from pytest_dispatchguard.lint.sources.git_diff import touches

    lines = changed_lines(check.discovery, check.changes, texts)
    hit = [touches(lines, f.path, f.span.line, f.span.end_line) for f in findings]
    pairs = list(zip(findings, hit, strict=True))
    return [f for f, touched in pairs if touched], [f for f, touched in pairs if not touched]


def changed_lines(
    discovery: Discovery, changes: git_diff.Changes, texts: Mapping[str, str]
) -> dict[str, git_diff.Ranges]:
    """The changed lines by file, moved to where they are in texts that stand in for those on disk."""
    from pytest_dispatchguard.lint.sources import git_diff

    files = {f.rel: f for f in discovery.targets}
    lines = dict(changes.lines)
    for rel, text in texts.items():
        source = read_source(files[rel].path, rel) if rel in files else None
        lines[rel] = (
            git_diff.carried(changes.lines.get(rel, ()), source.text, text)
            if isinstance(source, Source)
            else git_diff.ALL
        )
    return lines
