"""Writes the comments that silence findings, as many as a file needs, each where it covers its finding."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from pytest_dispatchguard.config.config import UNPARSABLE
from pytest_dispatchguard.edits import apply_edits
from pytest_dispatchguard.lint.results.fixes import Repaired
from pytest_dispatchguard.lint.results.ignore_comment import silence
from pytest_dispatchguard.model.findings import Finding

NEVER = (UNPARSABLE, "DG002")
"""What no comment silences: a file that cannot be read, and a comment that is itself at fault."""


def silenced(findings: Iterable[Finding], read: Callable[[str], str | None]) -> Repaired:
    """The files with comments for their findings, and how many were silenced in each. One for which there is
    no place stays as it is."""
    by_file: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.code not in NEVER and finding.cell is None:  # notebooks are not rewritten
            by_file.setdefault(finding.path, []).append(finding)
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    counts: dict[str, int] = {}
    for rel, found in by_file.items():
        text = read(rel)
        if text is None:
            continue
        made, count = _commented(text, found)
        if count:
            before[rel], after[rel], counts[rel] = text, made, count
    return Repaired(before, after, counts)


def _commented(text: str, findings: Iterable[Finding]) -> tuple[str, int]:
    # From the end of the file: a comment on a line of its own moves only what is below it, which is done.
    left = sorted(findings, key=lambda f: f.sort_key, reverse=True)
    count = 0
    while left:
        finding = left.pop(0)
        edit = silence(text, finding)
        if edit is None:
            continue
        text = apply_edits(text, [edit])
        count += 1
        if edit.replacement.endswith("\n"):
            left = [_below(f, edit.span.line) for f in left]
    return text, count


def _below(finding: Finding, line: int) -> Finding:
    """The finding where a line was put in above it."""
    span = finding.span
    if span.line < line:
        return finding
    return replace(finding, span=replace(span, line=span.line + 1, end_line=span.end_line + 1))
