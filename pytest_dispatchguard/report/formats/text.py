"""``--format text``: for people at a terminal; in color through rich, otherwise plain and stable."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING
from unicodedata import combining, east_asian_width

from pytest_dispatchguard.edits import excerpt, split_lines
from pytest_dispatchguard.model.findings import Finding, Fix, Hot
from pytest_dispatchguard.model.reports import Report
from pytest_dispatchguard.report.diff import lines_changed_by
from pytest_dispatchguard.report.lines import Line, written
from pytest_dispatchguard.report.options import Options, Sources
from pytest_dispatchguard.report.wording import (
    NOTES,
    accounts,
    alike,
    costs,
    count,
    footing,
    headline,
    heat,
    in_trace,
    noted,
    place,
    ranked,
    remedy,
    statement,
)
from pytest_dispatchguard.visible import one_line

if TYPE_CHECKING:
    from pytest_dispatchguard.model.operations import OperationsAt

MOST_CHANGED = 12
"""How many changed lines to show under a fix; ``--diff`` shows all."""

_TAB = 4
_MARKS = {"safe": "[*]", "unsafe": "[unsafe fix]"}
"""What stands behind the code of a note that has a fix."""


def render(report: Report, options: Options) -> str:
    """Findings file by file, the totals, then notes about the run."""
    return written(list(_lines(report, options)), color=options.color)


def _lines(report: Report, options: Options) -> Iterator[Line]:
    sources = cache(options.source)
    told = report.of("sure", "maybe")
    for finding, *others in alike(told if report.ranked else ranked(told)):
        yield from finding_lines(finding, sources, options)
        if others:
            yield [(f"  {len(others)} more like it:", "dim")]
        for other in others:
            yield [("  ", ""), *_where(other, options)]
        yield []
    yield from _notes(report, options)
    yield [(headline(report), "bold" if told else "bold green")]
    if footing(report):
        yield [(footing(report), "")]
    for note in report.notes:
        yield [("note: ", "bold"), (_one_line(note), "")]
    for title, lines in accounts(report.findings):
        yield [(title, "bold")]
        yield from ([(f"  {_one_line(line)}", "magenta")] for line in lines)
    if report.operations is not None:
        yield from _operations(report.operations)


def _notes(report: Report, options: Options) -> Iterator[Line]:
    """A line per note, grouped by function, the most expensive first."""
    groups = noted(report)
    if not groups:
        return
    yield [(NOTES, "bold")]
    others = {first: rest for first, *rest in alike(note for group in groups for note in group)}
    left = report.most_notes
    told = 0
    for group in groups:
        if left is not None and left <= 0:
            break
        shown = [note for note in group if note in others][:left]
        if not shown:
            continue
        first = shown[0]
        reason = f"  {first.hot.reason}" if first.hot is not None else ""
        head = f"{_one_line(options.shown(first.path))} {first.function}".rstrip()
        yield [
            (f"  {head}", "bold"),
            (_shortened(reason, max(options.width - len(head) - 2, 8))[0], "dim"),
        ]
        for finding in shown:
            yield _note(finding, options.width)
            told += 1 + len(others[finding])
            for other in others[finding]:
                yield [("      also ", "dim"), *_where(other, options)]
        left = None if left is None else left - len(shown)
    rest = len(report.of("note")) - told
    if rest > 0:
        yield [(f"  … and {count(rest, 'more note')}: --notes shows all, --no-notes none", "dim")]
    yield []


def _where(finding: Finding, options: Options) -> Line:
    return [(_one_line(options.shown(finding.path)), ""), (f":{place(finding)}", "dim")]


def _note(finding: Finding, width: int) -> Line:
    where = f"    {place(finding)} "
    mark = "" if finding.fix is None else _MARKS[finding.fix.safety]
    measured = "" if finding.traced is None else f"{in_trace(finding.traced)}: "
    message, cut = _shortened(
        measured + _visible(_one_line(finding.message)),
        max(width - len(where) - len(finding.code) - len(mark) - 2, 20),
    )
    return [
        (where, "dim"),
        (finding.code, "yellow"),
        (mark, "cyan"),
        (f" {message}{'…' if cut else ''}", ""),
    ]


def _operations(lines: Sequence[OperationsAt]) -> Iterator[Line]:
    from pytest_dispatchguard.report.budgets import operations

    yield []
    yield [(operations.title(lines), "bold")]
    table = [operations.HEAD, *operations.rows(lines)]
    wide = [
        max(map(_cells, column)) for column in zip(*(row.columns for row in table), strict=True)
    ]
    for row in table if len(table) > 1 else ():
        cells = [
            _cell(text, wide[number], right=number < 2) for number, text in enumerate(row.columns)
        ]
        style = "dim" if row is operations.HEAD else ""
        yield [("  ".join(["", *cells, row.operations]), style)]
        for remark in row.remarks:
            yield [(" " * (wide[0] + wide[1] + 6), ""), (remark, "yellow")]
    if operations.rest(lines):
        yield [(f"  {operations.rest(lines)}", "")]


def _cell(text: str, wide: int, *, right: bool = False) -> str:
    room = " " * (wide - _cells(text))
    return room + text if right else text + room


def finding_lines(finding: Finding, sources: Sources, options: Options) -> Iterator[Line]:
    """One finding: its place and message, why it is hot, what it costs, its line, its fix."""
    width = options.width
    safe = finding.fix is not None and finding.fix.safety == "safe"
    message, *more = statement(finding).splitlines() or [""]
    yield [
        (_one_line(options.shown(finding.path)), "bold"),
        (f":{place(finding)}", "dim"),
        (" ", ""),
        (finding.code, "bold red"),
        ("[*]" if safe else "", "cyan"),
        (f" {message}", ""),
    ]
    for line in more:
        yield [(f"  {line}", "")]
    if finding.hot is not None:
        yield [(f"  hot: {_fitted_heat(finding.hot, width - len('  hot: '))}", "dim")]
    if costs(finding):
        yield [(f"  {_one_line(costs(finding))}", "magenta")]
    yield from _excerpt(finding, sources(finding.path), width)
    if finding.fix is not None:
        yield from _fix(finding, finding.fix, sources(finding.path), width)


def _fitted_heat(hot: Hot, width: int) -> str:
    """The path from the root, shortened in the middle to fit the line."""
    told = heat(hot)
    path = hot.path
    keep = len(path) - 1
    while _cells(told) > width and keep >= 2:
        head, tail = (keep + 1) // 2, keep // 2
        told = heat(hot, (*path[:head], "…", *path[-tail:]))
        keep -= 1
    return told


def _excerpt(finding: Finding, text: str | None, width: int) -> Iterator[Line]:
    span = finding.span
    source = finding.source
    if text is not None:
        lines = _source_lines(text)
        source = lines[span.line - 1] if span.line <= len(lines) else ""
    source = source.rstrip("\r\n")
    if not source or source.isspace():
        return
    before, marked, after = map(_visible, excerpt(source, span, max(width, 20)))
    number = str(span.line)
    gutter = " " * len(number)
    room = max(width - len(number) - len("  |  "), 20)
    before, marked, after = _cropped(before, marked.rstrip(), after, room)
    yield [(f"  {number} | ", "blue"), (before + marked + after, "")]
    carets = "^" * max(_cells(marked), 1)
    yield [(f"  {gutter} | ", "blue"), (" " * _cells(before), ""), (carets, "bold red")]


@lru_cache(maxsize=16)
def _source_lines(text: str) -> list[str]:
    return split_lines(text)


def _cropped(before: str, marked: str, after: str, room: int) -> tuple[str, str, str]:
    """Cut a long line at its ends, so that the marked part is visible."""
    indent = len(before) - len(before.lstrip())
    if _cells(before + marked + after) <= room:
        return before, marked, after
    if _cells(before + marked) > room:
        before = before[indent:]
        spare = room - min(_cells(marked), room // 2) - 1
        if _cells(before) > spare:
            kept = _fitting(reversed(before), spare - 1)
            before = f"…{before[len(before) - kept :]}"
    marked, cut = _shortened(marked, room - _cells(before) - 1)
    if cut:
        return before, f"{marked}…", ""
    after, cut = _shortened(after, room - _cells(before + marked) - 1)
    return before, marked, f"{after}…" if cut else after


def _shortened(text: str, room: int) -> tuple[str, bool]:
    if _cells(text) <= room:
        return text, False
    return text[: _fitting(text, room)], True


def _fitting(text: Iterable[str], room: int) -> int:
    """How many of the first characters fit."""
    used = itertools.accumulate(map(_cells, text))
    return sum(1 for _ in itertools.takewhile(lambda cells: cells <= room, used))


def _fix(finding: Finding, fix: Fix, text: str | None, width: int) -> Iterator[Line]:
    message, *more = remedy(fix).splitlines() or [""]
    yield [("  fix: ", "bold green"), (message, "green")]
    for line in more:
        yield [(f"       {line}", "green")]
    if text is None:
        return
    try:
        edits = [edit for edit in fix.edits if edit.path == finding.path]
        rows = lines_changed_by(_source_lines(text), edits)
    except ValueError:
        # The file has changed since it was judged.
        return
    numbers = max((len(str(number)) for _, number, _ in rows), default=0)
    for sign, number, line in rows[:MOST_CHANGED]:
        shown, cut = _shortened(_visible(line).rstrip(), max(width - numbers - 7, 20))
        style = "red" if sign == "-" else "green"
        piece = f"{sign} {shown}{'…' if cut else ''}"
        yield [(f"  {number:>{numbers}} ", "blue"), (piece, style)]
    if len(rows) > MOST_CHANGED:
        yield [(f"  … {len(rows) - MOST_CHANGED} more changed lines: see --diff", "dim")]


def _visible(text: str) -> str:
    """Text that stays on its line and cannot control the terminal."""
    return one_line(text.replace("\t", " " * _TAB))


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


def _cells(text: str) -> int:
    """How many terminal columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_cells_of, text))


@lru_cache(maxsize=1024)
def _cells_of(char: str) -> int:
    return 0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1
