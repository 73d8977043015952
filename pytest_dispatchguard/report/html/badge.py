"""A project in a few words: a badge for its page, and figures for dashboards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from pytest_dispatchguard.model.reports import Report
from pytest_dispatchguard.model.verdicts import Verdict
from pytest_dispatchguard.report.formats.json_ import dump
from pytest_dispatchguard.report.wording import count, fixable

SCHEMA = 1
"""The number of the layout of the figures. Fields are added, never renamed."""

_COLORS = {"good": "#2e7d32", "open": "#9a6700", "bad": "#b3261e"}
"""Dark enough for white text."""
_NAMES = {"good": "brightgreen", "open": "yellow", "bad": "red"}
"""The same colors by their names in shields.io."""
_WIDE = 6.6
"""The approximate width of a character in a font of eleven pixels."""


@dataclass(frozen=True, slots=True)
class Badge:
    """A label, a message, and a state: ``good``, ``open`` or ``bad``."""

    label: str
    message: str
    state: str


def badge(report: Report | None, verdicts: Sequence[Verdict] | None) -> Badge:
    """About budgets if there are any, otherwise about findings."""
    if verdicts:
        counts = Counter[str](verdict.verdict for verdict in verdicts)
        bad = counts["fail"] + counts["error"]
        judged = len(verdicts) - counts["skipped"]
        if bad:
            return Badge("overhead", f"{bad} of {count(judged, 'budget')} failing", "bad")
        if counts["undecided"]:
            return Badge("overhead", f"{counts['undecided']} of {judged} undecided", "open")
        return Badge("overhead", f"{count(judged, 'budget')} kept", "good")
    number = 0 if report is None else sum(f.certainty == "sure" for f in report.findings)
    return Badge(
        "overhead",
        count(number, "finding") if number else "no findings",
        "bad" if number else "good",
    )


def as_endpoint(found: Badge) -> str:
    """The JSON from which shields.io makes a badge."""
    color = _NAMES[found.state]
    return dump(
        {"schemaVersion": 1, "label": found.label, "message": found.message, "color": color}
    )


def as_svg(found: Badge) -> str:
    """A self-contained image."""
    left, right = (round(len(text) * _WIDE) + 12 for text in (found.label, found.message))
    label, message = escape(found.label), escape(found.message)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f'aria-label="{label}: {message}"><title>{label}: {message}</title>'
        f'<clipPath id="r"><rect width="{left + right}" height="20" rx="3"/></clipPath>'
        f'<g clip-path="url(#r)"><rect width="{left}" height="20" fill="#444"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{_COLORS[found.state]}"/></g>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f'<text x="{left / 2}" y="14" textLength="{left - 12}">{label}</text>'
        f'<text x="{left + right / 2}" y="14" textLength="{right - 12}">{message}</text></g></svg>\n'
    )


def as_figures(
    report: Report | None,
    verdicts: Sequence[Verdict] | None,
    machine: Mapping[str, str],
    version: str,
) -> str:
    """The figures of a page, as JSON for dashboards."""
    return dump(
        {
            "schema": SCHEMA,
            "version": version,
            "findings": None if report is None else _of_findings(report),
            "budgets": None if verdicts is None else _of_budgets(verdicts, machine),
        }
    )


def _of_findings(report: Report) -> dict[str, Any]:
    found = report.findings
    safe, unsafe = fixable(found)
    priced = [f.price for f in found if f.price is not None]
    return {
        "total": len(found),
        "notes": sum(f.certainty == "note" for f in found),
        "uncertain": sum(f.certainty == "maybe" for f in found),
        "fixable": {"safe": safe, "unsafe": unsafe},
        "waits": sum(price.waits for price in priced),
        "us": round(sum(price.us or 0.0 for price in priced), 3),
        "by_code": dict(sorted(Counter(f.code for f in found).items())),
        "by_file": dict(sorted(Counter(f.path for f in found).items())),
        "hot_functions": report.summary.hot_functions,
        "functions": report.summary.functions,
        "files": report.summary.files,
    }


def _of_budgets(verdicts: Sequence[Verdict], machine: Mapping[str, str]) -> dict[str, Any]:
    counts = Counter[str](verdict.verdict for verdict in verdicts)
    return {
        "total": len(verdicts),
        "machine": dict(machine),
        **{name: counts[name] for name in ("pass", "fail", "undecided", "skipped", "error")},
        "tests": [
            {
                "nodeid": v.node_id,
                "subject": v.subject,
                "verdict": v.verdict,
                "ratio": None
                if v.measured is None or v.measured.ratio is None
                else v.measured.ratio.value,
                "counters": dict(v.counters),
            }
            for v in sorted(verdicts, key=lambda v: (v.node_id, v.subject))
        ],
    }
