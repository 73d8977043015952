"""Traces as one page, which asks nothing of any network."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.model.trace_changes import TraceComparison
from pytest_dispatchguard.model.traces import Step, Told, Trace
from pytest_dispatchguard.report.charts import charts, svg
from pytest_dispatchguard.report.html.elements import Html, diff, el, joined, link, prose, wide
from pytest_dispatchguard.report.html.shell import document
from pytest_dispatchguard.report.options import Sources
from pytest_dispatchguard.report.traces import changes
from pytest_dispatchguard.report.traces.options import Options
from pytest_dispatchguard.report.traces.rows import (
    COSTS,
    RANKS,
    WAITS,
    Cost,
    Waited,
    Waits,
    costs_of,
    often,
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
from pytest_dispatchguard.report.wording import NAME, docs_url, remedy, statement
from pytest_dispatchguard.visible import one_line

_MOST_BARS = 12
"""Steps that are drawn one by one; of more, neighbours are drawn together."""
_PARTS = ("busy", "idle: waits", "idle: late launches", "idle: data loader", "idle: queued")
_WORDS = frozenset({"place", "finding", "remarks", "file", "what", "figure"})
"""Columns whose cells may be broken into lines."""


def render(told: Sequence[Told], comparison: TraceComparison | None, options: Options) -> str:
    """The page."""
    parts: list[tuple[str, str, Html]] = []
    if comparison is not None:
        parts.append(_part("changes", "What changed", *_comparison(comparison, told, options)))
        told = told[-1:]
    waits = waits_of(told, linted=options.linted)
    parts.insert(0, ("summary", "Summary", _summary(told, waits, comparison, options)))
    if drawn := _device(told):
        parts.append(_part("device", "The device", *drawn))
    if tables := _waits(waits, options):
        parts.append(_part("waits", "Waits for the device", *tables))
    if costs := costs_of(told):
        parts.append(_part("overhead", "Overhead by place", *_costs(costs, options)))
    return document(_title(told), parts, "[]")


def _title(told: Sequence[Told]) -> str:
    names = [one.trace.path for one in told]
    return f"{NAME}: {names[0] if len(names) == 1 else f'{len(names)} traces'}"


def _part(name: str, title: str, *content: Html) -> tuple[str, str, Html]:
    section = el(
        "section",
        el("h2", title, id=f"{name}-title"),
        *content,
        id=name,
        aria_labelledby=f"{name}-title",
    )
    return name, title, section


def _summary(
    told: Sequence[Told], waits: Waits, comparison: TraceComparison | None, options: Options
) -> Html:
    lines: list[str] = []
    if comparison is not None:
        lines.append(changes.headline(comparison))
    if len(told) == 1:
        lines.append(_capital(sentence(told[0], waits, options.shown)))
        lines += [_capital(about(told[0].trace)), _capital(lead(told[0].trace))]
    else:
        lines += [together(told), *map(_capital, stragglers(told))]
        lines += [
            f"{one.trace.path} is damaged: {one.trace.damage}" for one in told if one.trace.damage
        ]
    content = [el("p", prose(line)) for line in lines if line]
    traces = [one.trace for one in told]
    for hint in hints(traces, options.root, linted=options.linted):
        content.append(el("p", el("b", "Hint: "), prose(hint), class_="note"))
    figures = [
        el("div", el("dt", name), el("dd", figure)) for name, figure in _figures(told, waits)
    ]
    return el(
        "section",
        el("h1", _title(told), id="summary-title"),
        el("dl", *figures, class_="figures"),
        *content,
        id="summary",
        aria_labelledby="summary-title",
    )


def _capital(line: str) -> str:
    return line[:1].upper() + line[1:]


def _figures(told: Sequence[Told], waits: Waits) -> list[tuple[str, str]]:
    traces = [one.trace for one in told]
    seen = [trace for trace in traces if trace.devices and trace.us and not trace.damage]
    found = [("steps", str(sum(len(trace.steps) for trace in traces)))]
    if len(traces) > 1:
        found.insert(0, ("traces", str(len(traces))))
    if seen:
        idle = sum(trace.idle_share for trace in seen) / len(seen)
        host = sum(trace.share(sum(trace.causes.values())) for trace in seen) / len(seen)
        found += [("device idle", percent(idle)), ("because of the host", percent(host))]
    found.append(("waits a step", often(sum(one.times for one in waits.all))))
    if waits.unknown:
        found.append(("places not known to the linter", str(len(waits.unknown))))
    return found


def _device(told: Sequence[Told]) -> list[Html]:
    """What the device does in each step, or at each rank, and how much is queued over time."""
    drawn = []
    if len(told) == 1:
        trace = told[0].trace
        if parts_of_a_step(trace):
            rows = [(label, _parts(steps)) for label, steps in _grouped(trace.steps)]
            drawn.append(_bars("What the device does in each step", rows))
        drawn += _depths(trace)
        return drawn
    rows = [
        (_name(one.trace), [dict(parts_of_a_step(one.trace)).get(name, 0.0) for name in _PARTS])
        for one in told
        if parts_of_a_step(one.trace)
    ]
    if rows:
        drawn.append(_bars("What each device does in a step, the mean", rows))
    cells = [(*row, one.trace.path) for row, one in zip(rank_rows(told), told, strict=True)]
    drawn.append(
        _table("Table of ranks", (*RANKS, "file"), [list(map(_text, row)) for row in cells])
    )
    return drawn


def _name(trace: Trace) -> str:
    return trace.path if trace.rank is None else f"rank {trace.rank}"


def _grouped(steps: Sequence[Step]) -> list[tuple[str, Sequence[Step]]]:
    """Steps to draw together: as many neighbours as leave room for all."""
    size = -(-len(steps) // _MOST_BARS)
    groups = [steps[at : at + size] for at in range(0, len(steps), size)]
    return [
        (group[0].name if size == 1 else f"{group[0].name} to {group[-1].name}, the mean", group)
        for group in groups
    ]


def _parts(steps: Sequence[Step]) -> list[float]:
    """Of each of `_PARTS`, how long, the mean."""
    sums = [0.0] * len(_PARTS)
    for step in steps:
        own = step.us - step.idle_us, step.waits_us, step.late_us, step.input_us, step.queued_us
        sums = [a + b for a, b in zip(sums, own, strict=True)]
    return [one / len(steps) for one in sums]


def _bars(title: str, rows: Sequence[tuple[str, Sequence[float]]]) -> Html:
    longest = max(sum(parts) for _, parts in rows)
    unit, size = next(
        (unit, size)
        for unit, size in (("s", 1e6), ("ms", 1e3), ("µs", 1.0))
        if longest >= size or size == 1
    )
    categories = [
        charts.Category(
            one_line(label), tuple(Interval(*[us / size] * 3) if us > 0 else None for us in parts)
        )
        for label, parts in rows
    ]
    drawing = charts.bars(svg.Caption(title), _PARTS, categories, stacked=True, unit=unit)
    return _figure(title, drawing)


def _depths(trace: Trace) -> list[Html]:
    if not any(depth.launches for depth in trace.depths):
        return []
    points = tuple(
        (depth.at_us / 1e3, Interval(*[float(depth.launches)] * 3)) for depth in trace.depths
    )
    title = "How much is queued: launches whose kernels have not begun"
    drawing = charts.lines(
        svg.Caption(title),
        [charts.Series("launches", points)],
        x_label="ms from the first event of the trace",
        y_label="launches",
    )
    return [_figure(title, drawing)]


def _figure(title: str, drawing: str) -> Html:
    return wide(title, el("figure", Html(svg.inside(drawing).rstrip("\n"))))


def _waits(waits: Waits, options: Options) -> list[Html]:
    told: list[Html] = []
    for title, rows in waits.tables:
        told.append(el("p", el("b", title), f": {waiting(rows)}"))
        told.append(_wait_table(title, rows, options))
    if outside(waits.outside):
        told.append(el("p", outside(waits.outside)))
    return told


def _wait_table(title: str, rows: Sequence[Waited], options: Options) -> Html:
    cells = []
    for one in rows[: options.top]:
        place = [el("code", one.place(options.shown))]
        place += [el("p", one.around)] if one.line.file else []
        found = joined(*(_finding(finding, options.sources) for finding in one.findings))
        cells.append([*map(_text, wait_cells(one)), _text(one.kind), joined(*place), found])
    table = _table(f"Table: {title}", (*WAITS, "for", "place", "finding"), cells)
    return joined(table, _rest(len(rows) - len(cells)))


def _finding(finding: Finding, sources: Sources) -> Html:
    page = link(docs_url(finding.code), f"{finding.code}")
    told = el("p", page, f" line {finding.span.line}: ", prose(statement(finding)))
    if finding.fix is None:
        return told
    return joined(told, el("p", "Fix: ", prose(remedy(finding.fix))), diff(finding, sources))


def _costs(costs: Sequence[Cost], options: Options) -> list[Html]:
    cells = [
        [
            *map(_text, cost.cells),
            el("code", cost.place(options.shown)),
            joined(
                *(el("p", remark) for remark in cost.remarks),
                *(_finding(finding, options.sources) for finding in cost.findings),
            ),
        ]
        for cost in costs[: options.top]
    ]
    table = _table("Table of overhead", (*COSTS, "place", "remarks"), cells)
    return [el("p", "Over the whole trace."), table, _rest(len(costs) - len(cells))]


def _rest(left: int) -> Html:
    return el("p", f"… and {left} more: --top shows more.") if left > 0 else Html()


def _comparison(comparison: TraceComparison, told: Sequence[Told], options: Options) -> list[Html]:
    figures = [list(map(_text, row)) for row in changes.figure_rows(comparison)]
    rows = changes.wait_rows(comparison, told, options.shown)[: options.top]
    parts = [_table("Table of figures", changes.FIGURES, figures)]
    if rows:
        waits = [list(map(_text, row)) for row in rows]
        parts.append(_table("Table of waits that changed", changes.WAITS, waits))
        parts.append(_rest(len(comparison.waits) - len(rows)))
    if changes.caveat(comparison):
        parts.append(el("p", prose(changes.caveat(comparison)), class_="note"))
    return parts


def _text(words: str) -> Html:
    return joined(words)


def _table(label: str, head: Sequence[str], rows: Sequence[Sequence[Html]]) -> Html:
    """A table without its empty columns."""
    shown = [i for i in range(len(head)) if any(row[i] for row in rows)]
    titles = [el("th", head[i], scope="col") for i in shown]
    body = [
        el("tr", *(el("td", row[i], class_=None if head[i] in _WORDS else "num") for i in shown))
        for row in rows
    ]
    return wide(label, el("table", el("thead", el("tr", *titles)), el("tbody", *body)))
