"""``--format html``: everything known about a project on one self-contained page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from pytest_dispatchguard.model.findings import tally
from pytest_dispatchguard.model.operations import OperationsAt
from pytest_dispatchguard.model.reports import Report
from pytest_dispatchguard.model.verdicts import Verdict
from pytest_dispatchguard.report.budgets import operations
from pytest_dispatchguard.report.html import budgets as html_budgets
from pytest_dispatchguard.report.html import findings as html_findings
from pytest_dispatchguard.report.html.elements import (
    Html,
    el,
    embedded,
    prose,
    wide,
)
from pytest_dispatchguard.report.html.shell import document
from pytest_dispatchguard.report.options import Options, Sources
from pytest_dispatchguard.report.wording import NAME, accounts, count, fixable, footing, headline


@dataclass(frozen=True, slots=True)
class Known:
    """What a page is made of; unknown parts are left out."""

    version: str
    report: Report | None = None
    verdicts: Sequence[Verdict] | None = None
    machine: Mapping[str, str] = field(default_factory=dict)
    """The machine on which the verdicts were measured."""
    trends: html_budgets.Trends = field(default_factory=dict)
    sources: Sources = field(default=lambda path: None)


def render(report: Report, options: Options) -> str:
    """A page of findings."""
    return page(Known(report.version, report, sources=options.source))


def page(known: Known) -> str:
    """The page. Without its script it is still readable, except for the rows that the script adds."""
    report, verdicts = known.report, known.verdicts
    findings = html_findings.in_order(report.findings) if report is not None else []
    sources = cache(known.sources)
    parts = [("summary", "Summary", _summary(known))]
    if verdicts is not None:
        budgets = html_budgets.section(verdicts, known.trends)
        parts.append(("budgets", "Budgets", budgets))
    if waiting := html_findings.sync_map(findings):
        parts.append(("waits", "Waits", waiting))
    if report is not None and report.operations is not None:
        parts.append(("operations", "Operations", _operations(report.operations)))
    if report is not None:
        parts.append(("findings", "Findings", html_findings.section(findings, sources)))
    told = embedded([]) if report is None else html_findings.data(findings, sources)
    return document(_title(known), parts, told)


def _title(known: Known) -> str:
    parts = [] if known.report is None else [tally(known.report.findings)]
    parts += [] if known.verdicts is None else [count(len(known.verdicts), "budget")]
    return f"{NAME}: {', '.join(parts)}" if parts else NAME


def _summary(known: Known) -> Html:
    report = known.report
    told: list[Html] = []
    if report is not None:
        told.append(el("p", headline(report)))
        told += [el("p", footing(report))] if footing(report) else []
        told += [el("p", el("b", "Note: "), prose(note), class_="note") for note in report.notes]
        for title, lines in accounts(report.findings):
            told += el("p", title), el("ul", *(el("li", line) for line in lines))
    figures = [
        el("div", el("dt", name), el("dd", str(number)))
        for name, number in [*_of_report(report), *_of_verdicts(known.verdicts)]
    ]
    about = [
        el("div", el("dt", name), el("dd", value))
        for name, value in [*known.machine.items(), (NAME, known.version)]
    ]
    return el(
        "section",
        el("h1", _title(known), id="summary-title"),
        el("dl", *figures, class_="figures"),
        *told,
        el("dl", *about, class_="about", aria_label="Machine and versions"),
        id="summary",
        aria_labelledby="summary-title",
    )


def _of_report(report: Report | None) -> list[tuple[str, int]]:
    if report is None:
        return []
    safe, unsafe = fixable(report.findings)
    return [
        ("findings", len(report.of("sure"))),
        ("notes", len(report.of("note"))),
        ("files with findings", len({finding.path for finding in report.findings})),
        ("device waits and copies", sum(map(html_findings.waits, report.findings))),
        ("with a fix", safe + unsafe),
        ("uncertain", len(report.of("maybe"))),
    ]


def _of_verdicts(verdicts: Sequence[Verdict] | None) -> list[tuple[str, int]]:
    counts = Counter[str](verdict.verdict for verdict in verdicts or ())
    return [
        (f"{html_budgets.SIGNS[word]} {word}", counts[word])
        for word in html_budgets.SIGNS
        if counts[word]
    ]


def _operations(lines: Sequence[OperationsAt]) -> Html:
    rows = [
        el(
            "tr",
            *(el("td", cell) for cell in (row.per_call, row.calls)),
            *(el("td", el("code", cell)) for cell in (row.place, row.function)),
            el("td", row.operations, *(el("p", remark) for remark in row.remarks)),
        )
        for row in operations.rows(lines)
    ]
    head = (*operations.HEAD.columns, operations.HEAD.operations)
    titles = [el("th", title, scope="col") for title in head]
    table = el("table", el("thead", el("tr", *titles)), el("tbody", *rows))
    return el(
        "section",
        el("h2", "Operations", id="operations-title"),
        el("p", operations.title(lines)),
        wide("Table of operations", table) if rows else "",
        el("p", operations.rest(lines)) if operations.rest(lines) else "",
        id="operations",
        aria_labelledby="operations-title",
    )
