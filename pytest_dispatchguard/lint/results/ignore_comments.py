"""Writes `# dispatchguard: ignore[CODE]` comments, each where it suppresses its finding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from pytest_dispatchguard.config.config import UNPARSABLE
from pytest_dispatchguard.edits import apply_edits, split_lines
from pytest_dispatchguard.lint.results.fixes import Repaired
from pytest_dispatchguard.lint.results.suppressions import UNUSED, read
from pytest_dispatchguard.model.findings import Edit, Finding, Span

_FAR = 12
"""How many lines around a finding are tried. A longer statement has to be suppressed by hand."""
NOT_SUPPRESSIBLE = (UNPARSABLE, UNUSED)
"""Rules that no comment suppresses: the file cannot be parsed, or the comment itself is wrong."""


def ignore_comment(text: str, finding: Finding) -> Edit | None:
    """The edit that adds `# dispatchguard: ignore[CODE]`, or the code to an existing comment.

    None if there is no place where the comment would suppress the finding.
    """
    lines = split_lines(text, keepends=False)
    newline = "\r\n" if "\r\n" in text else "\n"
    for edit in (*_added_to_comment(text, finding), *_new_comment(lines, finding, newline)):
        if _suppresses(text, edit, finding):
            return edit
    return None


def _added_to_comment(text: str, finding: Finding) -> Iterator[Edit]:
    for directive in read(text).directives:
        at = directive.codes_span
        if directive.kind == "ignore" and at is not None and finding.span.line in directive.lines:
            place = Span(at.line, at.end_column, at.line, at.end_column)
            separator = directive.separator if len(directive.codes) > 1 else ", "
            yield Edit(finding.path, place, f"{separator}{finding.code}")


def _new_comment(lines: Sequence[str], finding: Finding, newline: str) -> Iterator[Edit]:
    """At the end of the line, or of a later line of the statement; otherwise on its own line above."""
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


def _suppresses(text: str, edit: Edit, finding: Finding) -> bool:
    span = finding.span
    if edit.replacement.endswith("\n"):
        span = replace(span, line=span.line + 1, end_line=span.end_line + 1)
    moved = replace(finding, span=span)
    known = {finding.code: True}
    after = read(apply_edits(text, [edit]))
    return bool(after.apply([moved], path=finding.path, ran=known, known=known).suppressed)


def add_ignore_comments(
    findings: Iterable[Finding], read_text: Callable[[str], str | None]
) -> Repaired:
    """Add comments for the findings. Return the changed files, and how many findings each now suppresses.

    A finding is left alone if there is no place for its comment.
    """
    by_file: dict[str, list[Finding]] = {}
    for finding in findings:
        in_notebook = finding.cell is not None  # notebooks are not rewritten
        if finding.code not in NOT_SUPPRESSIBLE and not in_notebook:
            by_file.setdefault(finding.path, []).append(finding)
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    counts: dict[str, int] = {}
    for rel, found in by_file.items():
        text = read_text(rel)
        if text is None:
            continue
        made, count = _commented(text, found)
        if count:
            before[rel], after[rel], counts[rel] = text, made, count
    return Repaired(before, after, counts)


def _commented(text: str, findings: Iterable[Finding]) -> tuple[str, int]:
    # From the end of the file up: a comment on its own line moves only the lines below, which are done.
    left = sorted(findings, key=lambda f: f.sort_key, reverse=True)
    count = 0
    while left:
        finding = left.pop(0)
        edit = ignore_comment(text, finding)
        if edit is None:
            continue
        text = apply_edits(text, [edit])
        count += 1
        if edit.replacement.endswith("\n"):
            left = [_below(f, edit.span.line) for f in left]
    return text, count


def _below(finding: Finding, line: int) -> Finding:
    """The finding, moved down if a line was inserted above it."""
    span = finding.span
    if span.line < line:
        return finding
    return replace(finding, span=replace(span, line=span.line + 1, end_line=span.end_line + 1))
