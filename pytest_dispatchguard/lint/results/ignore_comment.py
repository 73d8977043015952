"""Writes the comment that silences a finding, at a place where it does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pytest_dispatchguard.edits import apply_edits, split_lines
from pytest_dispatchguard.lint.results.suppressions import read
from pytest_dispatchguard.model.findings import Edit, Finding, Span

_FAR = 12
"""Lines around a finding that are tried: a statement that is longer is silenced by hand."""


def silence(text: str, finding: Finding) -> Edit | None:
    """The edit that puts `# dispatchguard: ignore[CODE]` where it covers a finding, or adds the code to the
    comment that is there; None where no place was found."""
    lines = split_lines(text, keepends=False)
    newline = "\r\n" if "\r\n" in text else "\n"
    for edit in (*_joined(text, finding), *_written(lines, finding, newline)):
        if _silences(text, edit, finding):
            return edit
    return None


def _joined(text: str, finding: Finding) -> Iterator[Edit]:
    for directive in read(text).directives:
        at = directive.codes_span
        if directive.kind == "ignore" and at is not None and finding.span.line in directive.lines:
            place = Span(at.line, at.end_column, at.line, at.end_column)
            separator = directive.separator if len(directive.codes) > 1 else ", "
            yield Edit(finding.path, place, f"{separator}{finding.code}")


def _written(lines: Sequence[str], finding: Finding, newline: str) -> Iterator[Edit]:
    """At the end of the line or of one below it, in the same statement; else on a line of its own above."""
    comment = f"# dispatchguard: ignore[{finding.code}]"
    first = finding.span.line
    for number in range(first, min(first + _FAR, len(lines) + 1)):
        line = lines[number - 1]
        code = line.rstrip()
        if not code.endswith("\\"):
            end = Span(number, len(code) + 1, number, len(line) + 1)
            yield Edit(finding.path, end, f"  {comment}")
    for number in range(min(first, len(lines)), max(first - _FAR, 0), -1):
        line = lines[number - 1]
        indent = line[: len(line) - len(line.lstrip())]
        above = Span(number, 1, number, 1)
        yield Edit(finding.path, above, f"{indent}{comment}{newline}")


def _silences(text: str, edit: Edit, finding: Finding) -> bool:
    span = finding.span
    if edit.replacement.endswith("\n"):
        span = replace(span, line=span.line + 1, end_line=span.end_line + 1)
    moved = replace(finding, span=span)
    known = {finding.code: True}
    after = read(apply_edits(text, [edit]))
    return bool(after.apply([moved], path=finding.path, ran=known, known=known).suppressed)
