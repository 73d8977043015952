"""Verdicts as part of an HTML page: a table with a bar for each ratio and a line for earlier runs; below
each failure its explanation, costly lines and layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pytest_dispatchguard.model.measurements import CostlyLine, Interval
from pytest_dispatchguard.model.verdicts import Verdict
from pytest_dispatchguard.report.budgets import paces
from pytest_dispatchguard.report.budgets.layers import as_svg, drawn
from pytest_dispatchguard.report.budgets.verdicts import costly, reasons, table_of
from pytest_dispatchguard.report.charts import svg
from pytest_dispatchguard.report.html.elements import Html, el, joined, wide
from pytest_dispatchguard.report.wording import count

Trends = Mapping[tuple[str, str], Sequence[float]]
"""Figures of earlier runs by test and subject, the oldest first."""

SIGNS = {"pass": "✓", "fail": "✗", "error": "✗", "undecided": "?", "skipped": "–"}  # noqa: RUF001 - a dash
"""Signs that every font has."""

_WIDE, _HIGH = 120.0, 16.0
_ROOM = 1.15
"""How far a bar's scale extends beyond its values."""


def section(verdicts: Sequence[Verdict], trends: Trends) -> Html:
    """The table of budgets."""
    table = table_of(verdicts)
    head = [*table.head, *(["earlier runs"] if trends else [])]
    body: list[Html] = []
    for row, notes, verdict in zip(table.rows, table.notes, table.verdicts, strict=True):
        cells = [_cell(title, cell, verdict) for title, cell in zip(table.head, row, strict=True)]
        if trends:
            cells.append(
                _filled(
                    "earlier runs", sparkline(trends.get((verdict.node_id, verdict.subject), ()))
                )
            )
        body.append(el("tr", *cells, role="row", class_=verdict.verdict))
        under = _explanation(verdict) or joined(*(el("p", note) for note in notes))
        if under:
            whole = el("td", under, colspan=len(head), role="cell")
            body.append(el("tr", whole, role="row", class_="under"))
    titles = [el("th", title, scope="col", role="columnheader") for title in head]
    filled = el(
        "table",
        el("thead", el("tr", *titles, role="row"), role="rowgroup"),
        el("tbody", *body, role="rowgroup"),
        role="table",
        aria_labelledby="budgets-title",
    )
    return el(
        "section",
        el("h2", "Budgets", id="budgets-title"),
        wide("Table of budgets", filled) if body else el("p", "There are none."),
        *(el("p", line) for line in paces.of_run(verdicts)),
        id="budgets",
        aria_labelledby="budgets-title",
    )


def _cell(title: str, cell: str, verdict: Verdict) -> Html:
    if title == "test":
        return el("th", el("code", cell), scope="row", role="rowheader")
    if title == "verdict":
        return _filled(title, joined(f"{SIGNS[verdict.verdict]} {cell}"))
    if title == "ratio" and cell and verdict.measured is not None and verdict.measured.ratio:
        return _filled(title, joined(cell, _range(verdict.measured.ratio, verdict)))
    return _filled(title, joined(cell))


def _filled(title: str, content: Html) -> Html:
    """A cell that repeats its title on narrow screens."""
    return el("td", content, role="cell", data_label=title if content else None)


def _range(ratio: Interval, verdict: Verdict) -> Html:
    """A ratio with its interval on a scale from zero, and its limit as a line; nothing if there is none."""
    most = next((limit.most for limit in verdict.limits if limit.name == "ratio"), None)
    most = (verdict.recorded or {}).get("ratio") if most is None else most
    if most is None:
        return Html()
    ends = drawn(ratio)
    per = _WIDE / (_ROOM * max(ends.high, most, 1e-9))
    low, high = max(ends.low, 0.0) * per, ends.high * per
    colour = "vermilion" if ratio.value > most else "blue"
    middle, at = _HIGH / 2, most * per
    parts = (
        svg.line("grey", (0, middle), (_WIDE, middle)),
        svg.shape("rect", fill=colour, x=low, y=middle - 4, width=max(high - low, 2), height=8),
        svg.shape("circle", fill="ink", cx=ends.value * per, cy=middle, r=2.5),
        svg.line("whole", (at, 0), (at, _HIGH), stroke_width=2),
    )
    return _drawing(parts, "")


def sparkline(figures: Sequence[float]) -> Html:
    """Figures over runs, with the last one marked; nothing if there are none."""
    known = [figure for figure in figures if math.isfinite(figure)]
    if not known:
        return Html()
    low, high = min(known), max(known)
    step = (_WIDE - 8) / max(len(known) - 1, 1)
    scale = (_HIGH - 6) / (high - low) if high > low else 0.0
    points = [
        (4 + at * step, (_HIGH - 3 - (figure - low) * scale) if scale else _HIGH / 2)
        for at, figure in enumerate(known)
    ]
    x, y = points[-1]
    parts = (
        svg.line("blue", *points, stroke_width=1.5),
        svg.shape("circle", fill="blue", cx=x, cy=y, r=3),
    )
    runs = count(len(known), "run")
    told = f"{runs}, from {known[0]:.3g} to {known[-1]:.3g}, between {low:.3g} and {high:.3g}"
    return _drawing(parts, told)


def _drawing(parts: Sequence[str], told: str) -> Html:
    """A small drawing; if it only repeats the text beside it, screen readers skip it."""
    size = {"viewBox": f"0 0 {_WIDE:g} {_HIGH:g}", "width": f"{_WIDE:g}", "height": f"{_HIGH:g}"}
    says = {"role": "img", "aria_label": told} if told else {"aria_hidden": "true"}
    return joined(" ", el("svg", Html("".join(parts)), class_="small", **size, **says))


def _explanation(verdict: Verdict) -> Html:
    """Why a verdict is not a pass, in a collapsed section; nothing for a pass."""
    if verdict.verdict in ("pass", "skipped"):
        return Html()
    name = f"{verdict.node_id}, {verdict.subject}"
    parts = [wide(f"Explanation of {name}", el("pre", reasons(verdict)))]
    parts += _lines(verdict.lines)
    if verdict.layers is not None:
        drawing = svg.inside(as_svg([verdict.layers], {}))
        parts.append(wide(f"Layers of {name}", el("figure", Html(drawing.rstrip("\n")))))
    short = verdict.reason.strip().split("\n")[0] or "no reason is given"
    return el("details", el("summary", el("b", "Why: "), short), *parts)


def _lines(lines: Sequence[CostlyLine]) -> list[Html]:
    more, shown = costly(lines)
    if not shown:
        return []
    numbers = [line.extra or line.instructions for _, _, line in shown]
    rows = [
        el(
            "tr",
            el("td", number, _bar(size / max(*numbers, 1)), class_="figure"),
            el("td", el("code", place)),
            el("td", el("code", line.text)),
        )
        for (number, place, line), size in zip(shown, numbers, strict=True)
    ]
    titles = [el("th", title, scope="col") for title in ("instructions", "place", "line")]
    caption = el("caption", more[0].upper() + more[1:])
    return [
        el("table", caption, el("thead", el("tr", *titles)), el("tbody", *rows), class_="lines")
    ]


def _bar(part: float) -> Html:
    bar = svg.shape("rect", fill="blue", y=3, width=max(part, 0.0) * _WIDE, height=_HIGH - 6, rx=2)
    return _drawing((bar,), "")
