"""``--format gitlab``: a Code Quality report, shown by GitLab in merge requests."""

from __future__ import annotations

from typing import Any

from pytest_dispatchguard.model import Finding, Report

from .fingerprint import fingerprints
from .json_ import dump
from .options import Options
from .wording import cost, heat, ordered, severity, statement

_SEVERITIES = {"error": "major", "warning": "minor", "note": "info"}


def render(report: Report, options: Options) -> str:
    """A JSON array, one entry a finding."""
    findings = ordered(report)
    return dump([_entry(*pair) for pair in zip(findings, fingerprints(findings), strict=True)])


def _entry(finding: Finding, fingerprint: str) -> dict[str, Any]:
    return {
        "description": _description(finding),
        "check_name": finding.code,
        "fingerprint": fingerprint,
        "severity": _SEVERITIES[severity(finding)],
        "location": {"path": finding.path, "lines": {"begin": finding.span.line}},
    }


def _description(finding: Finding) -> str:
    # GitLab shows a description as one line of plain text.
    parts = [f"{finding.code} {finding.rule}: {' '.join(statement(finding).split())}"]
    if finding.price is not None:
        parts.append(cost(finding.price))
    if finding.hot is not None:
        parts.append(f"hot: {heat(finding.hot)}")
    return "; ".join(parts)
