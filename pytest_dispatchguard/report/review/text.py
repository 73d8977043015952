"""A review at a terminal: new findings as a check shows them, what is gone, budgets that moved, totals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.model.reviews import BudgetChange, Review
from pytest_dispatchguard.report.formats.text import finding_lines
from pytest_dispatchguard.report.lines import Line, written
from pytest_dispatchguard.report.options import Options
from pytest_dispatchguard.report.review.wording import causes, headline
from pytest_dispatchguard.report.wording import bill, costs, count, place

_MOST_GONE = 20
_STYLES = {"fail": "bold red", "error": "bold red", "undecided": "yellow"}


def render(review: Review, options: Options) -> str:
    """The whole review; the line that sums it up comes last, above the prompt."""
    return written(list(_lines(review, options)), color=options.color)


def _lines(review: Review, options: Options) -> Iterator[Line]:
    yield from _new([remark.finding for remark in review.remarks], options)
    if review.others:
        yield [("On lines outside of the change:", "bold")]
        yield []
        yield from _new(review.others, options)
    if review.fixed:
        yield from _gone(review.fixed, options)
        yield []
    if review.budgets is not None:
        yield from _budgets(review.budgets, review.kept)
        yield []
    yield [
        (headline(review), "bold" if review.bad else "bold green"),
        (f" (compared with {review.base})", "dim"),
    ]
    for note in review.notes:
        yield [("note: ", "bold"), (note, "")]
    lines = bill(review.new)
    if lines:
        yield [("What the new lines cost in a call of each root:", "bold")]
        yield from ([(f"  {line}", "magenta")] for line in lines)


def _new(findings: Sequence[Finding], options: Options) -> Iterator[Line]:
    sources = cache(options.source)
    for finding in findings:
        yield from finding_lines(finding, sources, options)
        yield []


def _gone(findings: Sequence[Finding], options: Options) -> Iterator[Line]:
    yield [("Resolved:", "bold")]
    for finding in findings[:_MOST_GONE]:
        where = f" in {finding.function}" if finding.function else ""
        price = f": {costs(finding)}" if costs(finding) else ""
        yield [
            (f"  {options.shown(finding.path)}", ""),
            (f":{place(finding)}", "dim"),
            (f" {finding.code}", "green"),
            (f"{where}{price}", ""),
        ]
    if len(findings) > _MOST_GONE:
        yield [(f"  … and {len(findings) - _MOST_GONE} more", "dim")]


def _budgets(changes: Sequence[BudgetChange], kept: int) -> Iterator[Line]:
    yield [("Budgets:", "bold")]
    for change in changes:
        subject = f" ({change.subject})" if change.subject else ""
        moved = [f"{move.name} {move.before} → {move.now}" for move in change.moved]
        if change.change is not None:
            moved.append(f"{change.change.value:.3f} times the time")
        yield [
            (f"  {change.node_id}{subject} ", ""),
            (change.verdict, _STYLES.get(change.verdict, "green")),
            (f"  {', '.join(moved)}".rstrip(), ""),
        ]
        yield from ([(f"    {cause}", "dim")] for cause in causes(change))
    if kept or not changes:
        more = " more" if changes else ""
        yield [(f"  {count(kept, 'budget')}{more} unchanged" if kept else "  none", "dim")]
