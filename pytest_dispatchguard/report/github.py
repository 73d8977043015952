"""``--format github``: workflow commands that GitHub Actions shows as annotations on the diff."""

from __future__ import annotations

from pytest_dispatchguard.model import Finding, Report

from .options import Options
from .wording import details, ordered, severity, statement

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def render(report: Report, options: Options) -> str:
    """One command a line."""
    lines = [_command(finding) for finding in ordered(report)]
    lines += (f"::notice::{escape_data(note)}" for note in report.notes)
    return "".join(f"{line}\n" for line in lines)


def escape_data(text: str) -> str:
    """A command's message: what would end the line, and the sign that escapes."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """The value of a command's property: what would also end the value."""
    return escape_data(text).replace(":", "%3A").replace(",", "%2C")


def _command(finding: Finding) -> str:
    span = finding.span
    properties = {"file": finding.path, "line": span.line, "endLine": span.end_line}
    # GitHub rejects columns on an annotation of several lines.
    if span.line == span.end_line:
        properties |= {"col": span.column, "endColumn": span.end_column}
    properties["title"] = f"{finding.code} {finding.rule}"
    told = ",".join(f"{key}={escape_property(str(value))}" for key, value in properties.items())
    message = "\n".join((statement(finding), *details(finding)))
    return f"::{_COMMANDS[severity(finding)]} {told}::{escape_data(message)}"
