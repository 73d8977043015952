"""The history of budgets as text or JSON: the latest results of all tests, one test over time, and the
commit that moved a counter or the time of a call."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pytest_dispatchguard.model.history import CounterMove, Culprit, Point, Run, Trend, Tried
from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.report import figures as numbers
from pytest_dispatchguard.report.budgets.layers import plain
from pytest_dispatchguard.report.lines import Line, written
from pytest_dispatchguard.visible import one_line

SCHEMA = 1
"""The number of the JSON layout. Fields are added, never renamed."""

_NARROWEST, _WIDEST = 8, 40
"""The width of the chart, in characters."""
_STYLES = {"fail": "red", "error": "red", "undecided": "yellow", "pass": "green"}
_FIGURES = ("ratio", "host_us")


def tests_as_text(known: Sequence[tuple[Point, int]], *, color: bool = False) -> str:
    """The latest result of every subject."""
    if not known:
        return "no test is in the history\n"
    head = ("test", "runs", "last run", "revision", "ratio", "µs a call", "instructions", "verdict")
    tests = Counter(point.kept.node_id for point, _ in known)
    rows = [_row(point, runs, tests[point.kept.node_id] > 1) for point, runs in known]
    shown = [i for i in range(len(head)) if any(row[i] for row in rows)]
    widths = [max(len(row[i]) for row in (head, *rows)) for i in shown]
    lines: list[Line] = []
    for row in (head, *rows):
        cells = [
            row[i].rjust(width) if head[i] in _RIGHT else row[i].ljust(width)
            for i, width in zip(shown, widths, strict=True)
        ]
        lines.append([("  ".join(cells[:-1]) + "  ", ""), (cells[-1], _STYLES.get(row[-1], ""))])
    return written([*lines, *_footnote(point.run for point, _ in known)], color=color)


_RIGHT = ("runs", "ratio", "µs a call", "instructions")


def _row(point: Point, runs: int, several: bool) -> tuple[str, ...]:
    kept = point.kept
    return (
        f"{kept.node_id} ({kept.subject})" if several else kept.node_id,
        str(runs),
        _when(point.run),
        _revision(point.run),
        _number(kept.ratio.value) if kept.ratio else "",
        _number(kept.host_us.value) if kept.host_us else "",
        str(kept.counters.get("instructions", "")),
        kept.verdict,
    )


def trends_as_text(trends: Sequence[Trend], *, color: bool = False, width: int = 100) -> str:
    """A chart per subject: one line per run, with the counters that moved below it."""
    lines: list[Line] = []
    for number, trend in enumerate(trends):
        lines += [[]] if number else []
        lines += _chart(trend, width)
    lines += _footnote(point.run for trend in trends for point in trend.points)
    return written(lines, color=color)


def _chart(trend: Trend, width: int) -> list[Line]:
    name, figures = _drawn(trend)
    ends = [
        end
        for figure in figures
        if figure is not None
        for end in (figure.low, figure.value, figure.high)
        if math.isfinite(end)
    ]
    low, high = (min(ends), max(ends)) if ends else (0.0, 0.0)
    runs = f"{len(trend.points)} run{'s' if len(trend.points) != 1 else ''}"
    between = f"{_number(low)} to {_number(high)}" if low < high else _number(low)
    about = f"{name} {between} in {runs}" if ends else f"{runs}, without figures"
    lines: list[Line] = [
        [(trend.node_id, "bold"), (f"  {trend.subject}", "bold")],
        [(f"{about}; {_machine(trend.points[0].run)}", "")],
    ]
    texts = [_told(figure) for figure in figures]
    revisions = [_revision(point.run) for point in trend.points]
    wide, long = max(map(len, texts)), max(map(len, revisions))
    room = min(_WIDEST, max(_NARROWEST, width - wide - long - 16 - 9 - 8))
    before: Run | None = None
    for point, figure, text, revision, moves in zip(
        trend.points, figures, texts, revisions, trend.moves(), strict=True
    ):
        if before is not None and before.machine != point.run.machine:
            lines.append([(f"from here on: {_machine(point.run)}", "cyan")])
        before, verdict = point.run, point.kept.verdict
        style = _STYLES.get(verdict, "")
        lines.append(
            [
                (f"{_when(point.run)}  {revision:<{long}}  {text:>{wide}}  ", ""),
                (_bar(figure, low, high, room), style),
                (f"  {verdict}", style),
            ]
        )
        if moves:
            lines.append([(f"  ▲ {_moves(moves)}{_at(point.run)}", "yellow")])
    return lines


def _drawn(trend: Trend) -> tuple[str, list[Interval | None]]:
    """What the chart shows: the ratio if one was measured, otherwise the time, otherwise a counter."""
    for name in _FIGURES:
        figures: list[Interval | None] = [getattr(point.kept, name) for point in trend.points]
        if any(figures):
            return ("µs a call" if name == "host_us" else name), figures
    counted = [name for point in trend.points for name in point.kept.counters]
    moved = [move.name for moves in trend.moves() for move in moves]
    # Prefer a counter that moved.
    name = next(iter([*moved, *counted]), "")
    numbers = [point.kept.counters.get(name) for point in trend.points]
    return name, [None if n is None else Interval(n, n, n) for n in numbers]


def _bar(figure: Interval | None, low: float, high: float, room: int) -> str:
    """A figure and its interval on a scale of `room` characters; an unknown end is left open."""
    if figure is None:
        return " " * room

    def at(number: float) -> int:
        share = (min(max(number, low), high) - low) / (high - low) if high > low else 0.0
        return round(share * (room - 1))

    cells = [" "] * room
    first, last = at(figure.low), at(figure.high)
    cells[first : last + 1] = "─" * (last + 1 - first)
    for end, place, sign in ((figure.low, first, "├"), (figure.high, last, "┤")):
        if math.isfinite(end):
            cells[place] = sign
    cells[at(figure.value)] = "●"
    return "".join(cells)


def _told(figure: Interval | None) -> str:
    if figure is None:
        return ""
    value = _number(figure.value)
    if figure.low == figure.high:
        return value
    ends = (_number(end) if math.isfinite(end) else "?" for end in (figure.low, figure.high))
    return f"{value} ({' to '.join(ends)})"


def _number(number: float) -> str:
    return (
        str(int(number))
        if number == int(number)
        else f"{number:.3f}"
        if number < 100
        else f"{number:.1f}"
    )


def _when(run: Run) -> str:
    return run.at[:16].replace("T", " ")


def _revision(run: Run) -> str:
    commit = run.checkout.commit[:9] + ("+" if run.checkout.dirty else "")
    return f"{commit} {run.checkout.branch}".strip()


def _at(run: Run) -> str:
    commit = run.checkout.commit[:9]
    return (
        f" at {commit}{' and what was not committed' if run.checkout.dirty else ''}"
        if commit
        else ""
    )


def _machine(run: Run) -> str:
    return ", ".join(v if name == "cpu" else f"{name} {v}" for name, v in run.machine.items())


def _moves(moves: Sequence[CounterMove]) -> str:
    return ", ".join(f"{move.name} {move.before} → {move.now}" for move in moves)


def _footnote(runs: Any) -> list[Line]:
    dirty = any(run.checkout.dirty for run in runs)
    return [[("+: with changes that were not committed", "")]] if dirty else []


def tests_as_json(known: Sequence[tuple[Point, int]]) -> str:
    """The same as one object."""
    tests = [
        {
            "nodeid": point.kept.node_id,
            "subject": point.kept.subject,
            "number": runs,
            "last": _object(point),
        }
        for point, runs in known
    ]
    return _as_json({"tests": tests})


def trends_as_json(trends: Sequence[Trend]) -> str:
    """The same as one object."""
    tests = [
        {
            "nodeid": trend.node_id,
            "subject": trend.subject,
            "runs": [
                {
                    **_object(point),
                    "moved": {move.name: [move.before, move.now] for move in moves},
                }
                for point, moves in zip(trend.points, trend.moves(), strict=True)
            ],
        }
        for trend in trends
    ]
    return _as_json({"tests": tests})


def _object(point: Point) -> dict[str, Any]:
    kept, checkout = point.kept, point.run.checkout
    intervals = {
        name: getattr(kept, name) for name in ("ratio", "host_us", "extra_us", "device_us")
    }
    return {
        "at": point.run.at,
        "revision": checkout.commit,
        "branch": checkout.branch,
        "dirty": checkout.dirty,
        "machine": dict(point.run.machine),
        "verdict": kept.verdict,
        "reason": kept.reason,
        **{name: None if one is None else plain(one) for name, one in intervals.items()},
        "reference_us": kept.reference_us,
        "counters": dict(kept.counters),
    }


def culprit_as_text(found: Culprit) -> str:
    """The commit that moved a counter, or the time of a call."""
    test = f"{found.node_id} ({found.subject})"
    if found.change is None:
        moved = f"moved {found.counter} of {test}: {found.before} → {found.now}"
        head = f"measured at {len(found.tried)} commits:"
    else:
        times = f"{numbers.figure(found.before, 'µs')} → {numbers.figure(found.now, 'µs')}"
        moved = f"changed the time of {test}: {times}, {change_as_text(found.change)}"
        head = f"compared with {found.good[:12]} by turns, at {len(found.tried)} commits:"
    lines = [
        f"{found.commit[:12]} {moved}",
        f"  {found.date}  {found.author}",
        f"  {found.title}",
        head,
        *(f"  {one.commit[:12]}  {_took(one)}" for one in found.tried),
    ]
    return "\n".join(map(one_line, lines)) + "\n"


def _took(tried: Tried) -> str:
    """What was measured at a commit."""
    if tried.change is None:
        missing = f"not timed: {tried.reason}" if tried.reason else "not counted"
        return missing if tried.number is None else str(tried.number)
    took = "" if tried.number is None else numbers.figure(tried.number, "µs")
    doubt = f": {tried.reason}" if tried.reason else ""
    return f"{took}  {change_as_text(tried.change)}{doubt}"


def change_as_text(change: Interval) -> str:
    """How many times the time at another commit a call takes."""
    low, high = (f"{end:.3f}" if math.isfinite(end) else "?" for end in (change.low, change.high))
    return f"{change.value:.3f} times ({low} to {high})"


def culprit_as_json(found: Culprit) -> str:
    """The same as one object."""
    tried = [{**asdict(one), "change": one.change and plain(one.change)} for one in found.tried]
    change = found.change and plain(found.change)
    row = {"nodeid": found.node_id, **asdict(found), "tried": tried, "change": change}
    del row["node_id"]
    return _as_json({"culprit": row})


def _as_json(fields: dict[str, Any]) -> str:
    return json.dumps({"schema": SCHEMA, **fields}, indent=1) + "\n"
