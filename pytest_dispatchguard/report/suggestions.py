"""A fix as what a reviewer applies with one click: one stretch of text, or whole lines, for another."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_dispatchguard.edits import apply_edits, offsets, split_lines
from pytest_dispatchguard.model.findings import Edit, Finding, Span

FARTHEST = 30
"""Lines that one suggestion may span: a reviewer sees all of it in one box."""
_ENDS = ("\n", "\r")


@dataclass(frozen=True, slots=True)
class Lines:
    """Whole lines in place of others."""

    first: int
    last: int
    """The last of the lines that are replaced."""
    text: tuple[str, ...]
    """The new lines, without their ends; none where the old ones only go."""


def one_edit(finding: Finding, text: str | None) -> Edit | None:
    """The whole fix of a finding as one edit of its file, or None.

    Reviewers apply suggestions one by one, and half a fix is none: edits of several places become
    one that also holds what lies between them.
    """
    fix = finding.fix
    if fix is None or any(edit.path != finding.path for edit in fix.edits):
        return None
    if len(fix.edits) == 1:
        return fix.edits[0]
    first = min((edit.span for edit in fix.edits), default=None)
    if text is None or first is None:
        return None
    last = max(fix.edits, key=lambda edit: (edit.span.end_line, edit.span.end_column)).span
    span = Span(first.line, first.column, last.end_line, last.end_column)
    if span.end_line - span.line >= FARTHEST:
        return None
    try:
        start, end = offsets(text, span)
        after = apply_edits(text, fix.edits)
    except ValueError:
        return None
    return Edit(finding.path, span, after[start : len(after) - (len(text) - end)])


def whole_lines(finding: Finding, text: str | None) -> Lines | None:
    """The whole fix of a finding as lines in place of lines, as code hosts take suggestions; None where it
    is no such thing."""
    edit = one_edit(finding, text)
    if edit is None or text is None:
        return None
    lines = split_lines(text)
    first, last = edit.span.line, edit.span.end_line
    goes_on = edit.replacement and not edit.replacement.endswith(_ENDS)
    if edit.span.end_column == 1 and last > first and not (goes_on or edit.span.column > 1):
        last -= 1  # up to the end of the line before
    if first > len(lines):
        first -= 1  # what is added after the last line is added to it
    last = min(last, len(lines))
    if not 1 <= first <= last or last - first >= FARTHEST:
        return None
    try:
        start, end = offsets(text, edit.span)
        before = sum(map(len, lines[: first - 1]))
        after = sum(map(len, lines[:last]))
    except ValueError:
        return None
    if not before <= start <= end <= after:
        return None
    new = f"{text[before:start]}{edit.replacement}{text[end:after]}"
    if new and new.endswith(_ENDS) != text[:after].endswith(_ENDS):
        return None  # lines cannot say whether the file's last one is ended
    return Lines(first, last, tuple(split_lines(new, keepends=False)))


def in_words(finding: Finding, text: str | None) -> list[str]:
    """The lines of a fix for formats that have no suggestions; nothing where there is none to show."""
    lines = whole_lines(finding, text)
    if lines is None:
        return []
    which = (
        f"line {lines.first}"
        if lines.first == lines.last
        else f"lines {lines.first} to {lines.last}"
    )
    return [f"replace {which} with:", *lines.text] if lines.text else [f"remove {which}"]
