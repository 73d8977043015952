"""Traces for people at a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.model.trace_changes import TraceComparison
from pytest_dispatchguard.model.traces import Depth, Told, Trace
from pytest_dispatchguard.report.lines import Line, written
from pytest_dispatchguard.report.traces import changes
from pytest_dispatchguard.report.traces.options import Options
from pytest_dispatchguard.report.traces.rows import (
    COSTS,
    RANKS,
    WAITS,
    Waited,
    costs_of,
    outside,
    parts_of_a_step,
    rank_rows,
    sentence,
    stragglers,
    together,
    wait_cells,
    waiting,
    waits_of,
)
from pytest_dispatchguard.report.traces.wording import about, hints, lead, percent
from pytest_dispatchguard.report.wording import count, duration, remedy, statement

_STYLES = {
    "busy": "green",
    "idle: waits": "red",
    "idle: late launches": "yellow",
    "idle: data loader": "magenta",
}
_WIDEST = 40
"""Characters of the bar of a whole step."""
_BLOCKS = " ▁▂▃▄▅▆▇█"
_MARGIN = "  "


def render(told: Sequence[Told], comparison: TraceComparison | None, options: Options) -> str:
    """The verdict, then waits, then overhead, then what would tell more."""
    return written(list(_lines(told, comparison, options)), color=options.color)


def _lines(
    told: Sequence[Told], comparison: TraceComparison | None, options: Options
) -> Iterator[Line]:
    if comparison is not None:
        yield from _comparison(
            comparison, changes.wait_rows(comparison, told, options.shown), options
        )
        told = told[-1:]  # the other is told by what became of it
        yield []
    waits = waits_of(told, linted=options.linted)
    if len(told) == 1:
        trace = told[0].trace
        yield [(f"{trace.path}: ", "bold"), (sentence(told[0], waits, options.shown), "bold")]
        yield from _about(trace)
    else:
        yield [(together(told), "bold")]
        yield from _ranks(told, options)
    for title, rows in waits.tables:
        yield from _waits(title, rows, options)
    if outside(waits.outside):
        yield []
        yield [(outside(waits.outside), "dim")]
    yield from _costs(told, options)
    for hint in hints([one.trace for one in told], options.root, linted=options.linted):
        yield []
        yield [("hint: ", "bold"), (hint, "")]


def _about(trace: Trace) -> Iterator[Line]:
    yield [(_MARGIN + about(trace), "")]
    if lead(trace):
        yield [(_MARGIN + lead(trace), "")]
    parts = parts_of_a_step(trace)
    if not parts:
        return
    yield []
    wide = max(len(name) for name, _ in (*parts, ("queued over time", 0)))
    times = [duration(us) for _, us in parts]
    whole = sum(us for _, us in parts)
    for (name, us), time in zip(parts, times, strict=True):
        cells = (
            f"{_MARGIN}{name:<{wide}}  {time:>{max(map(len, times))}}  {percent(us / whole):>4}  "
        )
        bar = "█" * round(us / whole * _WIDEST) or ("▏" if us > 0 else "")
        yield [(cells, ""), (bar, _STYLES.get(name, "dim"))]
    line = _queue(trace.depths)
    if line:
        yield [(f"{_MARGIN}{'queued over time':<{wide}}  ", ""), (line, "cyan")]


def _queue(depths: Sequence[Depth]) -> str:
    """How many launches are queued over time, as a line of blocks; empty where there are never any."""
    most = max((depth.launches for depth in depths), default=0)
    if not most:
        return ""
    first, last = depths[0].at_us, depths[-1].at_us
    deepest = [0] * _WIDEST
    for depth in depths:
        at = int((depth.at_us - first) / max(last - first, 1e-9) * (_WIDEST - 1))
        deepest[at] = max(deepest[at], depth.launches)
    return "".join(_BLOCKS[-(-launches * 8 // most)] for launches in deepest)


def _ranks(told: Sequence[Told], options: Options) -> Iterator[Line]:
    rows = [(*row, one.trace.path) for row, one in zip(rank_rows(told), told, strict=True)]
    yield from _table((*RANKS, "file"), rows)
    for one in told:
        if one.trace.damage:
            yield [(f"{_MARGIN}{one.trace.path} is damaged: {one.trace.damage}", "red")]
    for line in stragglers(told):
        yield [(_MARGIN + line, "yellow")]


def _waits(title: str, rows: Sequence[Waited], options: Options) -> Iterator[Line]:
    yield []
    yield [(f"{title}: ", "bold"), (waiting(rows), "bold")]
    shown = rows[: options.top]
    table = [(*wait_cells(row), row.kind, row.place(options.shown)) for row in shown]
    lines = list(_table((*WAITS, "for", "place"), table))
    yield lines[0]
    for row, line in zip(shown, lines[1:], strict=True):
        yield line
        if row.line.file:
            yield [(f"{_MARGIN * 3}{row.around}", "dim")]
        if row.findings and _is_last(row, shown):
            yield from _findings(row.findings, options.shown)
    yield from _rest(len(rows) - len(shown))


def _is_last(row: Waited, rows: Sequence[Waited]) -> bool:
    """Whether a row is the last of its findings: these are told once."""
    place = row.line, row.findings
    return next(one for one in reversed(rows) if (one.line, one.findings) == place) is row


def _findings(findings: Sequence[Finding], shown: Callable[[str], str]) -> Iterator[Line]:
    for finding in findings:
        safe = finding.fix is not None and finding.fix.safety == "safe"
        yield [
            (f"{_MARGIN * 3}{shown(finding.path)}:{finding.span.line} ", "dim"),
            (finding.code, "bold red" if finding.certainty == "sure" else "yellow"),
            ("[*]" if safe else "", "cyan"),
            (f" {' '.join(statement(finding).split())}", ""),
        ]
        if finding.fix is not None:
            yield [(f"{_MARGIN * 4}fix: ", "bold green"), (remedy(finding.fix), "green")]


def _costs(told: Sequence[Told], options: Options) -> Iterator[Line]:
    costs = costs_of(told)
    if not costs:
        return
    yield []
    yield [("Overhead by place, over the whole trace", "bold")]
    shown = costs[: options.top]
    lines = list(
        _table((*COSTS, "place"), [(*one.cells, one.place(options.shown)) for one in shown])
    )
    yield lines[0]
    for cost, line in zip(shown, lines[1:], strict=True):
        yield line
        for remark in cost.remarks:
            yield [(_MARGIN * 3 + remark, "yellow")]
        if cost.findings:
            yield from _findings(cost.findings, options.shown)
    yield from _rest(len(costs) - len(shown))


def _rest(left: int) -> Iterator[Line]:
    if left > 0:
        yield [(f"{_MARGIN}… and {count(left, 'place')} more: --top shows more", "dim")]


def _comparison(
    comparison: TraceComparison, rows: Sequence[Sequence[str]], options: Options
) -> Iterator[Line]:
    worse = comparison.worse
    yield [(changes.headline(comparison), "bold red" if worse else "bold")]
    yield from _table(changes.FIGURES, changes.figure_rows(comparison))
    if not rows:
        return
    yield []
    yield [("What became of waits", "bold")]
    shown = rows[: options.top]
    yield from _table(changes.WAITS, shown)
    yield from _rest(len(rows) - len(shown))
    if changes.caveat(comparison):
        yield [(_MARGIN + changes.caveat(comparison), "yellow")]


_LEFT = frozenset(
    {"for", "place", "file", "what", "figure", "steps before and after", "difference"}
)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[Line]:
    """Columns one below the other; the last has what room it needs."""
    shown = [i for i in range(len(head)) if any(row[i] for row in rows)]
    wide = {i: max(len(row[i]) for row in (head, *rows)) for i in shown}
    for row in (head, *rows):
        cells = [
            row[i].ljust(wide[i]) if head[i] in _LEFT else row[i].rjust(wide[i]) for i in shown
        ]
        yield [(_MARGIN + "  ".join(cells).rstrip(), "dim" if row is head else "")]
