"""``--format json``: one object for programs, the same for the static and the runtime linter."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, get_args

from pytest_dispatchguard.model.findings import (
    SCHEMA,
    Certainty,
    Edit,
    Elsewhere,
    Finding,
    Fix,
    Hot,
    Price,
    Span,
    Traced,
)
from pytest_dispatchguard.model.reports import Report
from pytest_dispatchguard.report.budgets.operations import as_objects
from pytest_dispatchguard.report.options import Options
from pytest_dispatchguard.report.wording import fixable, ordered


def render(report: Report, options: Options) -> str:
    """The report as indented JSON in ASCII: readable by any program under any locale."""
    return dump(as_object(report))


def dump(value: object) -> str:
    """JSON as all formats here write it."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def as_object(report: Report) -> dict[str, Any]:
    """The report as plain dicts and lists."""
    summary = report.summary
    safe, unsafe = fixable(report.findings)
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "findings": [finding_object(finding) for finding in ordered(report)],
        "summary": {
            "findings": len(report.findings),
            "files": summary.files,
            "functions": summary.functions,
            "hot_functions": summary.hot_functions,
            "fixable": {"safe": safe, "unsafe": unsafe},
            "fixed": summary.fixed,
            "suppressed": summary.suppressed,
            "baselined": summary.baselined,
            "unheard": summary.unheard,
            "unnoted": summary.unnoted,
            "by_certainty": {level: len(report.of(level)) for level in get_args(Certainty)},
            "cheap": summary.cheap,
            "notes": list(report.notes),
        },
    }
    if report.missing:
        found["summary"]["missing"] = [asdict(one) for one in report.missing]
    if report.operations is not None:
        found["operations"] = as_objects(report.operations)
    return found


def finding_object(finding: Finding) -> dict[str, Any]:
    """A finding as a plain dict."""
    return {
        "code": finding.code,
        "rule": finding.rule,
        "path": finding.path,
        **_place(finding.span),
        "function": finding.function,
        "message": finding.message,
        "certainty": finding.certainty,
        "hot": None if finding.hot is None else hot_object(finding.hot),
        "price_us": None if finding.price is None else finding.price.us,
        "price": None if finding.price is None else _price(finding.price),
        "fix": None if finding.fix is None else _fix(finding.fix),
        "elsewhere": None if finding.elsewhere is None else _elsewhere(finding.elsewhere),
        "cell": None
        if finding.cell is None
        else {"number": finding.cell.number, "line": finding.cell.line},
        "traced": None if finding.traced is None else traced_object(finding.traced),
    }


def traced_object(traced: Traced) -> dict[str, Any]:
    """How long a place took in a trace, as a plain dict."""
    return {
        "us": traced.us,
        "times": traced.times,
        "idle_us": traced.idle_us,
        "device": traced.device or None,
        "steps": traced.steps,
        "shared": traced.shared,
    }


def _price(price: Price) -> dict[str, Any]:
    return {
        "us": price.us,
        "low": price.low,
        "high": price.high,
        "waits": price.waits,
        "machine": price.machine or None,
    }


def hot_object(hot: Hot) -> dict[str, Any]:
    """Why a place is hot, as a plain dict."""
    return {
        "root": hot.root,
        "path": list(hot.path),
        "reason": hot.reason,
        "loop": hot.loop,
        "per": hot.per,
        "seen": hot.seen,
        "users": hot.users,
    }


def _fix(fix: Fix) -> dict[str, Any]:
    return {
        "safety": fix.safety,
        "message": fix.message,
        "edits": [_edit(edit) for edit in fix.edits],
    }


def _elsewhere(place: Elsewhere) -> dict[str, Any]:
    return {"path": place.path, **_place(place.span), "function": place.function}


def _edit(edit: Edit) -> dict[str, Any]:
    return {"path": edit.path, **_place(edit.span), "replacement": edit.replacement}


def _place(span: Span) -> dict[str, int]:
    return {
        "line": span.line,
        "column": span.column,
        "end_line": span.end_line,
        "end_column": span.end_column,
    }
