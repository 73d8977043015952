"""Applies edits to the text of a file, and shows the change as a unified diff."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pytest_dispatchguard.edits import apply_edits, split_lines
from pytest_dispatchguard.model.findings import Edit, Finding, Span
from pytest_dispatchguard.visible import one_line

_START = re.compile(r"([-+])(\d+)")


def unified(path: str, before: str, after: str, *, context: int = 3) -> str:
    """A diff for ``git apply`` and ``patch -p1``; empty if nothing changes."""
    from difflib import (
        unified_diff,
    )  # importing it takes milliseconds, and most reports do not need it

    old, new = _patch_lines(before), _patch_lines(after)
    head, tail = _alike(old, new)
    # Skip equal lines at both ends of a long file, except for the context.
    skip = max(head - context, 0)
    stop = max(tail - context, 0)
    rows = unified_diff(
        old[skip : len(old) - stop],
        new[skip : len(new) - stop],
        _header(f"a/{path}"),
        _header(f"b/{path}"),
        n=context,
    )
    return "".join(
        row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n"
        for row in (_moved(row, skip) if row.startswith("@@") else row for row in rows)
    )


def _header(name: str) -> str:
    """A file name as both tools accept it: quoted if it would end its line or control a terminal."""
    if re.search(r"[\x00-\x1f\x7f]", name):
        return '"' + re.sub(r'[\x00-\x1f\x7f"\\]', _quoted, name) + '"'
    # A name ends at a space unless a tab follows it.
    return f"{name}\t" if " " in name else name


def _quoted(match: re.Match[str]) -> str:
    return f"\\{match[0]}" if match[0] in '"\\' else f"\\{ord(match[0]):03o}"


def _moved(header: str, lines: int) -> str:
    return _START.sub(lambda match: f"{match[1]}{int(match[2]) + lines}", header)


def _alike(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """How many lines are equal at the beginning, and at the end of the rest."""
    shorter = min(len(old), len(new))
    head = 0
    while head < shorter and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shorter - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return head, tail


def _patch_lines(text: str) -> list[str]:
    # Patches know only this line ending: a lone carriage return stays inside its line.
    return re.findall(r"[^\n]*\n|[^\n]+\Z", text)


def diff_of_edits(path: str, source: str, edits: Iterable[Edit], *, context: int = 3) -> str:
    """The change that edits make to the text of one file, as a unified diff."""
    after = apply_edits(source, (edit for edit in edits if edit.path == path))
    return unified(path, source, after, context=context)


def by_finding(path: str, source: str, fixed: Iterable[Finding]) -> str:
    """What the fixes of findings change in a file, one after the other: a heading for each finding, and the
    diff that its fix makes of the text that those before it leave. ``git apply`` and ``patch -p1`` pass over
    the headings."""
    found: list[str] = []
    edits: set[Edit] = set()
    text = source
    for finding in fixed:
        assert finding.fix is not None
        edits.update(finding.fix.edits)
        after = apply_edits(source, edits)
        heading, diff = f"{heading_of(finding)}\n", unified(path, text, after)
        if diff or not found:
            found += heading, diff
        else:  # the same edits as those of the finding before
            found.insert(-1, heading)
        text = after
    return "".join(found)


def heading_of(finding: Finding) -> str:
    """The line above the diff of a fix. No tool takes it for a part of a diff."""
    place = f"{finding.path}:{finding.span.line}:{finding.span.column}"
    fix = finding.fix
    star = "" if fix is None else "[*] " if fix.safety == "safe" else "[unsafe] "
    return one_line(f"# {place} {finding.code} {star}{'' if fix is None else fix.message}".rstrip())


def lines_changed_by(lines: Sequence[str], edits: Sequence[Edit]) -> list[tuple[str, int, str]]:
    """The lines of a file that edits remove and add; raises ValueError if their positions do not exist."""
    rows: list[tuple[str, int, str]] = []
    added = 0
    for near in _neighbours(edits):
        first, last = near[0].span.line, max(edit.span.end_line for edit in near)
        if not 1 <= first <= last <= len(lines) + 1:
            raise ValueError(f"no lines {first} to {last} in a text of {len(lines)} lines")
        before = "".join(lines[first - 1 : last])
        after = apply_edits(before, (replace(e, span=_higher(e.span, first - 1)) for e in near))
        old, new = split_lines(before), split_lines(after)
        for sign, number, line in _between(old, new):
            rows.append((sign, number + first - 1 + (added if sign == "+" else 0), line))
        added += len(new) - len(old)
    return rows


def _neighbours(edits: Iterable[Edit]) -> list[list[Edit]]:
    """Edits from the first to the last, those together that have a line in common."""
    found: list[list[Edit]] = []
    last = 0
    for edit in sorted(edits, key=lambda e: (e.span.line, e.span.column)):
        if found and edit.span.line <= last:
            found[-1].append(edit)
        else:
            found.append([edit])
        last = max(last, edit.span.end_line)
    return found


def _between(old: Sequence[str], new: Sequence[str]) -> list[tuple[str, int, str]]:
    """The removed and added lines, without context: sign, line number, text."""
    head, tail = _alike(old, new)
    old, new = old[head : len(old) - tail], new[head : len(new) - tail]
    rows: list[tuple[str, int, str]] = []
    for i1, i2, j1, j2 in _replaced(old, new):
        rows += (("-", head + n + 1, old[n].rstrip("\r\n")) for n in range(i1, i2))
        rows += (("+", head + n + 1, new[n].rstrip("\r\n")) for n in range(j1, j2))
    return rows


def _replaced(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """The lines from one to before another of a text, and those that another text has for them."""
    if set(old).isdisjoint(new):  # most edits are that small, and `difflib` is slow to import
        yield 0, len(old), 0, len(new)
        return
    from difflib import SequenceMatcher

    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new).get_opcodes():
        if tag != "equal":
            yield i1, i2, j1, j2


def _higher(span: Span, lines: int) -> Span:
    return replace(span, line=span.line - lines, end_line=span.end_line - lines)
