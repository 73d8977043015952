"""``--format gitlab``: a Code Quality report, shown by GitLab in merge requests."""

from __future__ import annotations

from functools import cache
from typing import Any

from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.model.reports import Report
from pytest_dispatchguard.report.fingerprint import fingerprints
from pytest_dispatchguard.report.formats.json_ import dump
from pytest_dispatchguard.report.formats.markdown import shown_fix
from pytest_dispatchguard.report.options import Options, Sources
from pytest_dispatchguard.report.wording import costs, heat, ordered, severity, statement

_SEVERITIES = {"error": "major", "warning": "minor", "note": "info", "hint": "info"}


def render(report: Report, options: Options) -> str:
    """A JSON array, one entry per finding."""
    findings = ordered(report)
    sources = cache(options.source)
    pairs = zip(findings, fingerprints(findings), strict=True)
    return dump([_entry(finding, name, sources) for finding, name in pairs])


def _entry(finding: Finding, fingerprint: str, sources: Sources) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "description": _description(finding),
        "check_name": finding.code,
        "fingerprint": fingerprint,
        "severity": _SEVERITIES[severity(finding)],
        "location": {"path": finding.path, "lines": {"begin": finding.span.line}},
    }
    if finding.fix is not None:
        # Code Climate's field for a longer explanation, in Markdown.
        body = shown_fix(finding, finding.fix, sources(finding.path))
        entry["content"] = {"body": "\n".join(body)}
    return entry


def _description(finding: Finding) -> str:
    # GitLab shows a description as one line of plain text.
    parts = [f"{finding.code} {finding.rule}: {' '.join(statement(finding).split())}"]
    if costs(finding):
        parts.append(costs(finding))
    if finding.hot is not None:
        parts.append(f"hot: {heat(finding.hot)}")
    return "; ".join(parts)
