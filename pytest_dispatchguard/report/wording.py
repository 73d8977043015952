"""Phrases that all formats share: why a place is hot, what it costs, how severe it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pytest_dispatchguard.model.findings import (
    Certainty,
    Finding,
    Fix,
    Hot,
    Price,
    Ran,
    Traced,
    tally,
)
from pytest_dispatchguard.model.reports import Report

NAME = "dispatchguard"
HOME = "https://pytest-dispatchguard.readthedocs.io/"

UNPARSED = "DG001"
"""A file that does not parse: the only finding that means the run itself is incomplete."""

Severity = Literal["error", "warning", "note", "hint"]

_WIDE = 2.0
"""If the most expensive form of a pattern costs this many times the cheapest, both prices are shown."""
_MOST_ROOTS = 5
_SEVERITIES: Mapping[Certainty, Severity] = {"sure": "warning", "note": "note", "maybe": "hint"}


def ordered(report: Report) -> list[Finding]:
    """The findings in the order of the report: by place, or the most expensive first."""
    if report.ranked:
        return list(report.findings)
    return sorted(report.findings, key=lambda finding: finding.sort_key)


def docs_url(code: str) -> str:
    """The page of a rule."""
    return f"{HOME}rules/{code}/"


def severity(finding: Finding) -> Severity:
    """How severe a finding is."""
    if finding.code == UNPARSED:
        return "error"
    return _SEVERITIES[finding.certainty]


def count(number: int, singular: str, plural: str | None = None) -> str:
    """``1 file``, ``2 files``."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def heat(hot: Hot, path: Sequence[str] | None = None) -> str:
    """Why a place is hot, in one line; ``path`` replaces the functions on the path."""
    way = " -> ".join((hot.path or (hot.root,)) if path is None else path)
    return f"{hot.reason}: {way} {heat_notes(hot)}".rstrip()


def heat_notes(hot: Hot) -> str:
    """What follows the path from the root: loop, step, calls seen; empty if none applies."""
    notes = []
    if hot.loop:
        notes.append("in a loop")
    if hot.per == "step":
        notes.append("once per step")
    if hot.seen == 0:
        notes.append("not seen to run")
    elif hot.seen is not None and len(hot.path) > 1:
        unit = "call" if hot.seen == 1 else "calls"
        notes.append(f"seen: {hot.seen:g} {unit} per {hot.root.rpartition('.')[2]}")
    return f"({', '.join(notes)})" if notes else ""


def cost(price: Price) -> str:
    """``≈ 2.6 µs per call on EPYC``, ``≈ 0.3 to 8 µs per call on this machine``, ``waits for the device``."""
    parts = []
    if price.waits:
        parts.append(f"waits for the device{f' {price.waits} times' if price.waits > 1 else ''}")
    if price.us is not None:
        low, high = price.low or price.us, price.high or price.us
        wide = high > _WIDE * low
        told = f"{microseconds(low)} to {microseconds(high)}" if wide else microseconds(price.us)
        parts.append(f"≈ {told} µs per call on {price.machine or 'this machine'}")
    return ", ".join(parts)


def costs(finding: Finding) -> str:
    """What a place costs: as long as it took in a trace, else by its pattern; empty where unknown."""
    if finding.traced is not None:
        return _traced(finding.traced)
    return "" if finding.price is None else cost(finding.price)


def _traced(traced: Traced) -> str:
    """``0.9 ms a step, measured on NVIDIA A100 (2 waits; the device is idle for 0.7 ms)``."""
    often = f"{traced.times:.3g} {'wait' if traced.times == 1 else 'waits'}"
    idle = f"; the device is idle for {duration(traced.idle_us)}" if traced.idle_us else ""
    told = f"{in_trace(traced)}, measured on {traced.device or 'a device'} ({often}{idle})"
    if traced.shared > 1:
        told += f", by any of {traced.shared} findings in this function, which the trace does not tell apart"
    return told


def in_trace(traced: Traced) -> str:
    """``0.9 ms a step``."""
    return f"{duration(traced.us)} {'a step' if traced.steps else 'in the trace'}"


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """The most expensive first; findings without a price last."""
    return sorted(findings, key=lambda finding: (-finding.rank, finding.sort_key))


NOTES = "Notes: these cost host time; whether to change them is yours to decide."


def noted(report: Report) -> list[list[Finding]]:
    """The notes grouped by function, the most expensive functions first, in each by place."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in sorted(report.of("note"), key=lambda note: note.sort_key):
        groups.setdefault((finding.path, finding.function), []).append(finding)
    return sorted(
        groups.values(), key=lambda group: (-sum(f.rank for f in group), group[0].sort_key)
    )


def alike(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Findings that a text would describe in the same words, in the order of the first of each: a line that
    is written again, or a file that was copied."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        fix = "" if finding.fix is None else remedy(finding.fix)
        words = (finding.code, statement(finding), costs(finding), fix)
        groups.setdefault(words, []).append(finding)
    return list(groups.values())


def dearest_files_first(findings: Iterable[Finding]) -> list[Finding]:
    """Findings by place, but the most expensive files first, because a long report is cut off at its end."""
    found = list(findings)
    costs: Counter[str] = Counter()
    for finding in found:
        costs[finding.path] += int(finding.rank * 1000)
    return sorted(found, key=lambda finding: (-costs[finding.path], finding.sort_key))


def accounts(findings: Sequence[Finding]) -> list[tuple[str, list[str]]]:
    """The total cost of findings, as titled lists; none if there is nothing to add up."""
    made = [
        ("Waits for the device while the program ran", waited(findings)),
        ("What the flagged lines cost in one call of", bill(findings)),
    ]
    return [(title, lines) for title, lines in made if lines]


def waited(findings: Iterable[Finding]) -> list[str]:
    """How often a program waited: a line for each of its loops, then what happened once."""
    loops: dict[tuple[bool, str], list[Ran]] = {}
    for finding in findings:
        for ran in finding.ran:
            loops.setdefault((ran.steps, ran.loop), []).append(ran)
    order = sorted(loops.items(), key=lambda row: (not row[0][0], not row[0][1], row[0][1]))
    return [f"{_loop(found[0])}: {_waits(found)}" for _, found in order]


def _loop(ran: Ran) -> str:
    if not ran.loop:
        return "once, outside of loops"
    if not ran.rounds:
        return f"in the loop at {ran.loop}"
    unit = "step" if ran.steps else "round"
    each = f"in each of {ran.rounds} {unit}s" if ran.rounds > 1 else f"in the only {unit}"
    return f"{each} of the loop at {ran.loop}"


def _waits(found: Sequence[Ran]) -> str:
    times = sum(ran.times for ran in found)
    told = times / found[0].rounds if found[0].rounds else times
    return f"{told:.3g} {'wait' if told == 1 else 'waits'} ({count(len(found), 'place')})"


def bill(findings: Iterable[Finding]) -> list[str]:
    """What the flagged lines cost in one call of each root, one line each, the most expensive first.
    Waits seen in a running program are counted separately."""
    roots: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.ran:
            continue
        if finding.certainty != "note" and finding.price is not None and finding.hot is not None:
            roots.setdefault(finding.hot.root, []).append(finding)
    rows = sorted(roots.items(), key=lambda row: (-sum(f.rank for f in row[1]), row[0]))
    lines = [f"{root}: {_in_all(found)}" for root, found in rows[:_MOST_ROOTS]]
    if len(rows) > _MOST_ROOTS:
        lines.append(f"… and {count(len(rows) - _MOST_ROOTS, 'more entry point')}")
    return lines


def _in_all(findings: Sequence[Finding]) -> str:
    us = waits = 0.0
    least = False
    for finding in findings:
        assert finding.price is not None and finding.hot is not None
        us += (finding.price.us or 0.0) * finding.times
        waits += finding.price.waits * finding.times
        least |= finding.hot.loop and not finding.hot.seen
    parts = [f"≈ {microseconds(us)} µs"] if us else []
    if waits:
        parts.append(f"{waits:.3g} {'wait' if waits == 1 else 'waits'} for the device")
    told = ("at least " if least else "") + " and ".join(parts)
    return f"{told} ({tally(findings)})"


def microseconds(us: float) -> str:
    """At least two significant digits, more only for whole microseconds; never an exponent."""
    if us >= 9.95:
        return f"{us:,.0f}"
    return f"{us:.1f}" if us >= 0.95 else f"{us:.2f}"


def duration(us: float) -> str:
    """A time with three digits: ``91.8 µs``, ``1.84 ms``, ``1.05 s``."""
    from pytest_dispatchguard.report.figures import (
        figure,  # of traces alone: most reports need none
    )

    if us < 0.05:
        return "0 µs"
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size * 0.9995:
            return figure(us / size, unit)
    return figure(us, "µs")


def remedy(fix: Fix) -> str:
    """What a fix does, and whether it preserves behavior on every input."""
    return fix.message if fix.safety == "safe" else f"{fix.message} (unsafe)"


def details(finding: Finding) -> list[str]:
    """The lines under a message, for formats that have no fields for them."""
    lines = []
    if finding.hot is not None:
        lines.append(f"hot: {heat(finding.hot)}")
    if costs(finding):
        lines.append(costs(finding))
    if finding.fix is not None:
        lines.append(f"fix: {remedy(finding.fix)}")
    return lines


def statement(finding: Finding) -> str:
    """The message, marked if it is a note or a maybe."""
    if finding.certainty == "sure":
        return finding.message
    return f"({finding.certainty}) {finding.message}"


def fixable(findings: Sequence[Finding]) -> tuple[int, int]:
    """How many findings have a safe fix, and how many an unsafe one."""
    safe = sum(f.fix is not None and f.fix.safety == "safe" for f in findings)
    unsafe = sum(f.fix is not None and f.fix.safety == "unsafe" for f in findings)
    return safe, unsafe


def place(finding: Finding) -> str:
    """The position of a finding in its file; in a notebook, by cell."""
    cell = finding.cell
    line = str(finding.span.line) if cell is None else f"cell {cell.number}:{cell.line}"
    return f"{line}:{finding.span.column}"


def headline(report: Report) -> str:
    """How much was found, and where: the first line of a summary."""
    summary = report.summary
    hot = f"{count(summary.hot_functions, 'hot function')} of {summary.functions}"
    if not report.findings and report.missing:
        return "Nothing found, but the run is incomplete."
    if not report.findings and not summary.files:
        # A program that is watched has no files to check.
        return "Nothing was found." if report.ranked else "No files were checked."
    if not report.findings:
        return f"All clear: {count(summary.files, 'file')} ({hot})."
    told = tally(report.findings)
    touched = len({finding.path for finding in report.findings})
    files = f"{touched} of {summary.files}" if summary.files > touched else str(touched)
    noun = "file" if max(touched, summary.files) == 1 else "files"
    return f"{told} in {files} {noun} ({hot})."


def footing(report: Report) -> str:
    """Fixed, fixable, suppressed, baselined: the second line of a summary; may be empty."""
    safe, unsafe = fixable(report.findings)
    summary = report.summary
    parts = []
    if summary.fixed:
        parts.append(f"{summary.fixed} fixed")
    if safe:
        parts.append(f"{safe} fixable with --fix")
    if unsafe:
        parts.append(f"{unsafe}{' more' if safe else ' fixable'} with --unsafe-fixes")
    if summary.suppressed:
        parts.append(f"{summary.suppressed} suppressed")
    if summary.baselined:
        parts.append(f"{summary.baselined} in the baseline")
    if summary.cheap:
        parts.append(f"{summary.cheap} cheaper than --min-cost")
    if summary.unnoted:
        parts.append(f"{count(summary.unnoted, 'note')} (see --notes)")
    if summary.unheard:
        parts.append(f"{summary.unheard} uncertain (see --pedantic)")
    return ", ".join(parts) + "." if parts else ""
