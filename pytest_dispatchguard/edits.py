"""Places in a text, and edits made to it: what the linter does to files and what reports show."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pytest_dispatchguard.model.findings import Edit, Span

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_END = re.compile(r"\r\n|\r|\n")
_OTHER_ENDS = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""What ends a line to `str.splitlines`, and to no parser."""
_CUT = "…"


def split_lines(source: str, *, keepends: bool = True) -> list[str]:
    """The lines of a Python file, with their ends or without; no empty line follows the last end."""
    if not any(end in source for end in _OTHER_ENDS):
        return source.splitlines(keepends)
    if keepends and "\r" in source:
        return _LINE.findall(source)
    if keepends:
        *ended, last = source.split("\n")
        whole = [f"{line}\n" for line in ended]
        return [*whole, last] if last else whole
    lines = _END.split(source) if "\r" in source else source.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def offsets(source: str, span: Span) -> tuple[int, int]:
    """Where a span begins and ends in a text; ValueError where the text has no such place."""
    lines = split_lines(source)
    return _offset(lines, span.line, span.column), _offset(lines, span.end_line, span.end_column)


def _offset(lines: list[str], line: int, column: int) -> int:
    past = line == len(lines) + 1 and (not lines or lines[-1].endswith(("\n", "\r")))
    text = "" if past else lines[line - 1] if 0 < line <= len(lines) else None
    if text is None or not 1 <= column <= len(text) + 1:
        raise ValueError(f"no line {line} with a column {column} in a text of {len(lines)} lines")
    return sum(map(len, lines[: line - 1])) + column - 1


def apply_edits(source: str, edits: Iterable[Edit]) -> str:
    """The text after all edits, whose places are those of the text before.

    ValueError where edits overlap or lie outside the text; the same edit twice is one edit.
    """
    lines = split_lines(source)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    pieces: list[str] = []
    done = 0
    last: Edit | None = None
    for edit in sorted(set(edits), key=lambda edit: (edit.span, edit.replacement)):
        start = _offset(lines, edit.span.line, edit.span.column)
        end = _offset(lines, edit.span.end_line, edit.span.end_column)
        if end < start or start < done or (last is not None and last.span == edit.span):
            raise ValueError(f"edits overlap at line {edit.span.line}, column {edit.span.column}")
        pieces += source[done:start], edit.replacement
        done, last = end, edit
    return "".join((*pieces, source[done:]))


def excerpt(source: str, span: Span, most: int) -> tuple[str, str, str]:
    """What stands in the line on which a span begins before it, in it and after it; of each no more than
    `most` characters, and a mark of what is left out."""
    start = min(span.column - 1, len(source))
    end = span.end_column - 1 if span.end_line == span.line else len(source)
    end = max(min(end, len(source)), start)
    before, inside, after = (
        source[max(start - most, 0) : start],
        source[start : min(end, start + most)],
        source[end : end + most],
    )
    return (
        _CUT + before if start > most else before,
        inside + _CUT if end - start > most else inside,
        after + _CUT if len(source) - end > most else after,
    )
