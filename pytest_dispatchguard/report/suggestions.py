"""A fix as a suggestion that a reviewer applies with one click: one edit, or a replacement of whole lines."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_dispatchguard.edits import apply_edits, offsets, split_lines
from pytest_dispatchguard.model.findings import Edit, Finding, Span

FARTHEST = 30
"""The most lines that one suggestion may span, so that a reviewer sees all of it."""
_ENDS = ("\n", "\r")


@dataclass(frozen=True, slots=True)
class Lines:
    """A replacement of whole lines."""

    first: int
    last: int
    """The last of the replaced lines."""
    text: tuple[str, ...]
    """The new lines, without line endings; none if the old ones are only removed."""


def one_edit(finding: Finding, text: str | None) -> Edit | None:
    """The whole fix of a finding as one edit of its file, or None.

    Reviewers apply suggestions one by one, and half a fix is no fix, so several edits become one that
    includes the text between them.
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
    """The whole fix of a finding as a replacement of lines, which is what code hosts accept; None if that
    is impossible."""
    edit = one_edit(finding, text)
    if edit is None or text is None:
        return None
    lines = split_lines(text)
    first, last = edit.span.line, edit.span.end_line
    goes_on = edit.replacement and not edit.replacement.endswith(_ENDS)
    if edit.span.end_column == 1 and last > first and not (goes_on or edit.span.column > 1):
        last -= 1  # up to the end of the previous line
    if first > len(lines):
        first -= 1  # text after the last line is added to that line
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
        return None  # lines cannot express whether the last one ends in a newline
    return Lines(first, last, tuple(split_lines(new, keepends=False)))


def in_words(finding: Finding, text: str | None) -> list[str]:
    """The lines of a fix for formats without suggestions; empty if there is nothing to show."""
    lines = whole_lines(finding, text)
    if lines is None:
        return []
    which = (
        f"line {lines.first}"
        if lines.first == lines.last
        else f"lines {lines.first} to {lines.last}"
    )
    return [f"replace {which} with:", *lines.text] if lines.text else [f"remove {which}"]
