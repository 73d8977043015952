"""``--format rdjson``: for reviewdog, which makes review comments and suggestions from it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from pytest_dispatchguard.edits import split_lines
from pytest_dispatchguard.model.findings import Finding, Span
from pytest_dispatchguard.model.reports import Report
from pytest_dispatchguard.report.formats.json_ import dump
from pytest_dispatchguard.report.options import Options, Sources
from pytest_dispatchguard.report.suggestions import one_edit
from pytest_dispatchguard.report.wording import (
    HOME,
    NAME,
    details,
    docs_url,
    ordered,
    severity,
    statement,
)

_SEVERITIES = {"error": "ERROR", "warning": "WARNING", "note": "INFO", "hint": "INFO"}


def render(report: Report, options: Options) -> str:
    """One JSON object with a diagnostic for each finding."""
    sources = cache(options.source)
    lines = cache(_numbered)
    return dump(
        {
            "source": {"name": NAME, "url": HOME},
            "severity": "WARNING",
            "diagnostics": [_diagnostic(f, sources, lines) for f in ordered(report)],
        }
    )


def _diagnostic(
    finding: Finding, sources: Sources, numbered: Callable[[str], dict[int, str]]
) -> dict[str, Any]:
    text = sources(finding.path)
    if text is not None:
        lines = numbered(text)
    else:
        lines = {finding.span.line: finding.source} if finding.source else {}
    diagnostic: dict[str, Any] = {
        "message": "\n".join((statement(finding), *details(finding))),
        "location": {"path": finding.path, "range": _range(finding.span, lines)},
        "severity": _SEVERITIES[severity(finding)],
        "code": {"value": finding.code, "url": docs_url(finding.code)},
    }
    edit = one_edit(finding, text)
    if edit is not None:
        place = _range(edit.span, lines)
        if "column" in place["start"] and "column" in place["end"]:
            diagnostic["suggestions"] = [{"range": place, "text": edit.replacement}]
    return diagnostic


def _numbered(text: str) -> dict[int, str]:
    return dict(enumerate(split_lines(text), start=1))


def _range(span: Span, lines: dict[int, str]) -> dict[str, Any]:
    return {
        "start": _position(span.line, span.column, lines),
        "end": _position(span.end_line, span.end_column, lines),
    }


def _position(line: int, column: int, lines: dict[int, str]) -> dict[str, int]:
    # reviewdog counts bytes of UTF-8; a column of 1 is the same in bytes and characters.
    if column == 1:
        return {"line": line, "column": 1}
    if line not in lines:
        return {"line": line}
    before = lines[line][: column - 1]
    return {"line": line, "column": len(before.encode("utf-8", "surrogatepass")) + 1}
