"""Charts as SVG text: where the time of one call goes, figures over a size, figures side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import fsum

from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.report.charts import svg
from pytest_dispatchguard.report.charts.axes import LARGEST, finite
from pytest_dispatchguard.report.charts.lines import Mark, Series, lines
from pytest_dispatchguard.report.charts.rows import Bar, Row, drawn_rows, tick
from pytest_dispatchguard.report.charts.svg import Caption
from pytest_dispatchguard.report.figures import figure, number

__all__ = ["Caption", "Category", "Layer", "Mark", "Series", "bars", "legend", "lines", "waterfall"]

_NOTHING = "\u2013"
_KEY = 22.0
"""The width of a color or tick in the legend, with the space after it."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One part of a call, its time, and its own parts."""

    label: str
    takes: Interval
    parts: tuple[Layer, ...] = ()


@dataclass(frozen=True, slots=True)
class Category:
    """Something measured in several ways: a value per series, None if there is none."""

    label: str
    values: tuple[Interval | None, ...]
    published: tuple[float | None, ...] = ()
    """The value published by a source, for each series, or for all together if they are stacked."""


def waterfall(
    caption: Caption,
    layers: Sequence[Layer],
    whole: Layer,
    rest: Layer | None = None,
    *,
    unit: str = "µs",
) -> str:
    """The layers of a call, each beginning where the previous one ended; then the rest that cannot be
    attributed, and the whole as measured."""
    of, start = whole.takes.value, fsum(layer.takes.value for layer in layers)
    rows = list(_layers(layers, 0.0, of, unit))
    if rest is not None:
        rows.append(_layer(rest, start, of, unit, "grey"))
    rows.append(replace(_layer(whole, 0.0, of, unit, "whole"), gap=20.0))
    return _page_of_rows(caption, rows, unit, linked=True)


def _layers(
    layers: Sequence[Layer], start: float, whole: float, unit: str, depth: int = 0
) -> Iterator[Row]:
    for layer in layers:
        row = _layer(layer, start, whole, unit, "sky" if depth else "blue")
        yield replace(row, depth=depth, thick=10.0) if depth else row
        yield from _layers(layer.parts, start, whole, unit, depth + 1)
        start += layer.takes.value


def _layer(layer: Layer, start: float, whole: float, unit: str, colour: str) -> Row:
    value = layer.takes.value
    below = value < 0
    tip = f"{layer.label}: {_figures(layer.takes, unit)}"
    share = f"{number(round(100 * value / whole))}%" if whole > 1 / LARGEST else ""
    bar_colour = "vermilion" if below else colour
    bar = Bar(start, layer.takes, bar_colour, tip, hatched=below or colour == "grey")
    return Row(layer.label, (bar,), figure(value, unit), share)


def bars(
    caption: Caption,
    series: Sequence[str],
    categories: Sequence[Category],
    *,
    stacked: bool = False,
    source: str = "",
    unit: str = "µs",
) -> str:
    """Categories with a bar per series: below each other, or stacked end to end. ``source`` names the
    source of the published values."""
    made = _stack if stacked else _group
    rows = [row for category in categories for row in made(series, category, unit)]
    return _page_of_rows(caption, rows, unit, series if len(series) > 1 else (), source)


def _group(series: Sequence[str], category: Category, unit: str) -> Iterator[Row]:
    published = category.published or (None,) * len(series)
    of_each = zip(series, category.values, published, strict=True)
    for at, (name, value, theirs) in enumerate(of_each):
        row = Row(category.label, (), _NOTHING, tick=theirs)
        if value is not None:
            bar = _bar(0.0, f"{category.label}, {name}", value, at, unit)
            row = replace(row, bars=(bar,), said=figure(value.value, unit))
        yield replace(row, label="", gap=4.0) if at else row


def _stack(series: Sequence[str], category: Category, unit: str) -> Iterator[Row]:
    made: list[Bar] = []
    ends = {False: 0.0, True: 0.0}
    for at, (name, value) in enumerate(zip(series, category.values, strict=True)):
        if value is not None:
            below = value.value < 0
            bar = _bar(ends[below], f"{category.label}, {name}", value, at, unit)
            made.append(replace(bar, inside="" if below else figure(value.value)))
            ends[below] = bar.end
    said = figure(sum(ends.values()), unit) if made else _NOTHING
    theirs = category.published[0] if category.published else None
    yield Row(category.label, tuple(made), said, tick=theirs, thick=26.0)


def _bar(start: float, label: str, value: Interval, at: int, unit: str) -> Bar:
    colour = svg.series_colour(at)
    return Bar(start, value, colour, f"{label}: {_figures(value, unit)}", hatched=value.value < 0)


def _figures(interval: Interval, unit: str) -> str:
    value, low, high = finite((interval.value, interval.low, interval.high))
    between = f" ({figure(low)} to {figure(high)})" if low < high else ""
    return figure(value, unit) + between


def _page_of_rows(
    caption: Caption,
    rows: Sequence[Row],
    unit: str,
    keys: Sequence[str] = (),
    source: str = "",
    *,
    linked: bool = False,
) -> str:
    head, top = svg.heading(caption)
    key, top = legend(keys, source, top)
    drawn, bottom = drawn_rows(rows, top, unit, linked=linked)
    told = [bar.tip for row in rows for bar in row.bars]
    return svg.page(caption, told, [*head, *key, *drawn], bottom)


def legend(keys: Sequence[str], source: str, y: float) -> tuple[list[str], float]:
    """The meaning of colors and ticks, and the y position below it."""
    drawn: list[str] = []
    x, room = svg.MARGIN, svg.ROOM - _KEY
    names = [*keys, *([source] if source else [])]
    for at, name in enumerate(names):
        wide = _KEY + svg.width(name, svg.SMALL)
        if x + wide > svg.MARGIN + svg.ROOM and x > svg.MARGIN:
            x, y = svg.MARGIN, y + 24
        if at < len(keys):
            colour = svg.series_colour(at)
            drawn.append(svg.shape("rect", fill=colour, x=x, y=y + 1, width=14, height=14, rx=3))
        else:
            drawn.append(tick(x + 7, y + 8, 10.0))
        drawn.append(svg.text(x + _KEY, y + 8, name, room, fill="muted"))
        x += wide + 20
    return drawn, y + 26 * bool(names)
