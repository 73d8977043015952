"""``--format github``: workflow commands that GitHub Actions shows as annotations on the diff."""

from __future__ import annotations

from functools import cache

from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.model.reports import Report
from pytest_dispatchguard.report.options import Options, Sources
from pytest_dispatchguard.report.suggestions import in_words
from pytest_dispatchguard.report.wording import details, ordered, severity, statement
from pytest_dispatchguard.visible import visible

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice", "hint": "notice"}


def render(report: Report, options: Options) -> str:
    """One command per line."""
    sources = cache(options.source)
    lines = [_command(finding, sources) for finding in ordered(report)]
    lines += (f"::notice::{escape_data(note)}" for note in report.notes)
    return "".join(f"{line}\n" for line in lines)


def escape_data(text: str) -> str:
    """The message of a command, with line ends and the escape character escaped. Control characters are
    made visible, because the log of a step behaves like a terminal."""
    return (
        visible(text, keep="\n\r\t").replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    )


def escape_property(text: str) -> str:
    """The value of a command's property, which needs more escaping."""
    return escape_data(text).replace(":", "%3A").replace(",", "%2C")


def _command(finding: Finding, sources: Sources) -> str:
    span = finding.span
    properties = {"file": finding.path, "line": span.line, "endLine": span.end_line}
    # GitHub rejects columns on an annotation of several lines.
    if span.line == span.end_line:
        properties |= {"col": span.column, "endColumn": span.end_column}
    properties["title"] = f"{finding.code} {finding.rule}"
    where = ",".join(f"{key}={escape_property(str(value))}" for key, value in properties.items())
    told = in_words(finding, sources(finding.path)) if finding.fix is not None else []
    message = "\n".join((statement(finding), *details(finding), *told))
    return f"::{_COMMANDS[severity(finding)]} {where}::{escape_data(message)}"
