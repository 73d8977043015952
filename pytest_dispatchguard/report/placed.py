"""Renames the files of a report relative to a directory above the project."""

from __future__ import annotations

from dataclasses import replace

from pytest_dispatchguard.model.findings import Elsewhere, Finding, Fix
from pytest_dispatchguard.model.reports import Report
from pytest_dispatchguard.report.options import Sources


def placed(report: Report, above: str) -> Report:
    """The report with `above`, which ends in a slash, before every path."""
    return replace(report, findings=tuple(_finding(f, above) for f in report.findings))


def sources_of(sources: Sources, above: str) -> Sources:
    """The texts of files, by the names that `placed` gives them."""
    return lambda path: sources(path.removeprefix(above))


def _finding(finding: Finding, above: str) -> Finding:
    return replace(
        finding,
        path=above + finding.path,
        fix=None if finding.fix is None else _fix(finding.fix, above),
        elsewhere=None if finding.elsewhere is None else _elsewhere(finding.elsewhere, above),
    )


def _fix(fix: Fix, above: str) -> Fix:
    return replace(fix, edits=tuple(replace(edit, path=above + edit.path) for edit in fix.edits))


def _elsewhere(place: Elsewhere, above: str) -> Elsewhere:
    return replace(place, path=above + place.path)
