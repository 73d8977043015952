"""Lines over a size, labeled at their ends."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.report.charts import svg
from pytest_dispatchguard.report.charts.axes import LARGEST, Axis, domain, finite
from pytest_dispatchguard.report.charts.svg import Caption
from pytest_dispatchguard.report.figures import figure, number

_TALL = 340.0
_APART = 20.0
"""The distance between lines of text."""
_WIDEST_NAME = 220.0
_INSET, _LEADER = 10.0, 46.0
"""The space beside the lines, and from their ends to their labels."""
_POINTS = ((24, 0.0, 5), (4, 1 / 8, 6), (3, 3 / 4, 6), (4, 0.0, 6), (3, 1 / 4, 6), (6, 0.0, 5.5))
"""The shape of data points: the number of corners (many for a circle), the rotation in turns, and the
radius."""


@dataclass(frozen=True, slots=True)
class Series:
    """A named line: what was measured at each position."""

    name: str
    points: tuple[tuple[float, Interval], ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A position on an axis that means something, or a range up to another."""

    label: str
    at: float
    to: float | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """Where it begins and ends."""
        return self.at, self.at if self.to is None else self.to


def lines(
    caption: Caption,
    series: Sequence[Series],
    *,
    log_x: bool = False,
    log_y: bool = False,
    marks: Sequence[Mark] = (),
    levels: Sequence[Mark] = (),
    x_label: str = "",
    y_label: str = "",
) -> str:
    """Series over x, each with a band where it has intervals; ``marks`` are positions on the x axis,
    ``levels`` on the y axis, which begins at zero unless it is logarithmic or has negative values."""
    series = [_sorted(one) for one in series]
    drawn, top = svg.heading(caption)
    if y_label:
        drawn.append(svg.text(svg.MARGIN, top + 8, y_label, fill="muted"))
    lanes = top + 24 * bool(y_label)
    top = lanes + _APART * len(marks) + 8
    bottom = top + max(_TALL, _APART * (len(series) + len(levels)))
    y = _y_axis(series, levels, bottom, top, log_y)
    names = [*(one.name for one in series), *(level.label for level in levels)]
    x = _x_axis(series, marks, names, y, log_x)
    drawn += [*_grid(x, y), *_marks(marks, x, y, lanes)]
    for level in levels:
        drawn += _stretch(level, y, (x.start - _INSET, x.end + _INSET), upright=False)
    for at, one in enumerate(series):
        drawn.append(svg.titled(one.name, *_line(one, at, x, y)))
    drawn += _names(series, levels, x, y)
    if x_label:
        middle, room = (x.start + x.end) / 2, x.end - svg.MARGIN
        bottom += 24
        drawn.append(svg.text(middle, bottom + 18, x_label, room, fill="muted", anchor="middle"))
    told = [*map(_told, series), *(mark.label for mark in (*marks, *levels))]
    return svg.page(caption, told, drawn, bottom + 30)


def _sorted(one: Series) -> Series:
    if not one.points:
        raise ValueError(f"a line needs a point, and {one.name!r} has none")
    return Series(one.name, tuple(sorted(one.points, key=lambda point: point[0])))


def _y_axis(
    series: Sequence[Series], levels: Sequence[Mark], bottom: float, top: float, log: bool
) -> Axis:
    values = [end for level in levels for end in level.ends]
    for interval in (interval for one in series for _, interval in one.points):
        ends = finite((interval.low, interval.high))
        # An interval may reach below zero even if its value does not: the axis cuts it off.
        values += [interval.value, *(end for end in ends if end > 1 / LARGEST or not log)]
    return Axis(*domain(values, log=log, zero=True, rounded=True), bottom, top, log)


def _x_axis(
    series: Sequence[Series], marks: Sequence[Mark], names: Sequence[str], y: Axis, log: bool
) -> Axis:
    places = [place for one in series for place, _ in one.points]
    places += [end for mark in marks for end in mark.ends]
    before = max((svg.width(number(rung), svg.SMALL) for rung in _rungs(y)), default=0.0)
    after = max((svg.width(name, svg.SMALL) for name in names), default=0.0)
    start = svg.MARGIN + before + 10 + _INSET
    end = svg.WIDTH - svg.MARGIN - min(after, _WIDEST_NAME) - _LEADER
    return Axis(*domain(places, log=log), start, end, log)


def _rungs(y: Axis) -> list[float]:
    return y.marks(lambda _: 36.0)


def _grid(x: Axis, y: Axis) -> Iterator[str]:
    left, right = x.start - _INSET, x.end + _INSET
    for rung in _rungs(y):
        at, ink = y.at(rung), "line" if rung else "grey"
        yield svg.line(ink, (left, at), (right, at))
        yield svg.text(left - 10, at, number(rung), fill="muted", anchor="end")
    for mark in x.marks(lambda words: svg.width(words, svg.SMALL) + 16):
        at = x.at(mark)
        yield svg.line("line", (at, y.end), (at, y.start + 5))
        yield svg.text(at, y.start + 18, number(mark), fill="muted", anchor="middle")


def _stretch(
    mark: Mark, axis: Axis, across: tuple[float, float], *, upright: bool
) -> Iterator[str]:
    low, high = map(axis.at, mark.ends)
    sides = [[(low, end) for end in across], [(high, end) for end in across]]
    if not upright:
        sides = [[(end, along) for along, end in side] for side in sides]
    (a, b), (c, d) = sides
    if low != high:
        yield svg.shape("path", fill="grey", d=svg.path(a, b, d, c) + "Z", fill_opacity=0.16)
    for side in sides[: 1 + (low != high)]:
        yield svg.line("muted", *side, stroke_dasharray="5 4")


def _marks(marks: Sequence[Mark], x: Axis, y: Axis, lane: float) -> Iterator[str]:
    """Vertical lines, each with its text in a lane of its own above the plot."""
    for mark in sorted(marks, key=lambda mark: mark.at):
        yield from _stretch(mark, x, (lane, y.start), upright=True)
        at = x.at(mark.at)
        after, before = svg.WIDTH - svg.MARGIN - at - 6, at - 6 - svg.MARGIN
        if svg.width(mark.label, svg.SMALL) <= after or after > before:
            yield svg.text(at + 6, lane + 8, mark.label, after)
        else:
            yield svg.text(at - 6, lane + 8, mark.label, before, anchor="end")
        lane += _APART


def _line(one: Series, at: int, x: Axis, y: Axis) -> Iterator[str]:
    colour = svg.series_colour(at)
    points = [(x.at(place), y.at(value.value)) for place, value in one.points]
    if any(interval.low < interval.high for _, interval in one.points):
        lows = [(x.at(place), y.at(interval.low)) for place, interval in one.points]
        highs = [(x.at(place), y.at(interval.high)) for place, interval in one.points]
        around = svg.path(*lows, *reversed(highs)) + "Z"
        yield svg.shape("path", fill=colour, d=around, fill_opacity=0.18, kind="band")
    if len(points) > 1:
        yield svg.line(colour, *points, kind="line", stroke_width=2.5)
    yield from (_point(at, *point) for point in points)


def _point(at: int, x: float, y: float) -> str:
    corners, turned, out = _POINTS[at % len(_POINTS)]
    angles = (math.tau * (n / corners + turned) for n in range(corners))
    outline = svg.path(*((x + out * math.cos(a), y + out * math.sin(a)) for a in angles)) + "Z"
    look: svg.Look = {"stroke": "surface", "stroke_width": 1.5, "kind": "point"}
    return svg.shape("path", fill=svg.series_colour(at), d=outline, **look)


def _names(series: Sequence[Series], levels: Sequence[Mark], x: Axis, y: Axis) -> Iterator[str]:
    """The labels at the ends of lines, moved apart if they are close together."""
    ends: list[tuple[str, str, float, float]] = []
    for at, one in enumerate(series):
        place, value = one.points[-1]
        ends.append((one.name, svg.series_colour(at), x.at(place), y.at(value.value)))
    for level in levels:
        middle = fmean(map(y.at, level.ends))
        ends.append((level.label, "muted", x.end + _INSET, middle))
    left = x.end + _LEADER
    places = apart([end for *_, end in ends], _APART, y.end, y.start)
    for at, ((name, colour, begin, end), place) in enumerate(zip(ends, places, strict=True)):
        turns = ((begin, end), (left - 20, place), (left - 6, place))
        yield svg.line(colour, *turns, stroke_dasharray="2 2")
        if at < len(series):
            yield _point(at, left - 10, place)
        ink = "ink" if at < len(series) else "muted"
        yield svg.text(left, place, name, svg.WIDTH - svg.MARGIN - left, fill=ink, kind="end")


def apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions as close as possible to the wanted ones, in the same order, from ``low`` to ``high``, at
    least ``gap`` apart."""
    order = sorted(range(len(wanted)), key=lambda at: wanted[at])
    # Positions that would be too close move as a group, to the average of what they wanted.
    pools: list[list[float]] = []
    for rank, at in enumerate(order):
        pools.append([wanted[at] - rank * gap])
        while len(pools) > 1 and fmean(pools[-2]) > fmean(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    highest = max(high - (len(wanted) - 1) * gap, low)
    starts = [min(max(fmean(pool), low), highest) for pool in pools for _ in pool]
    placed = {at: starts[rank] + rank * gap for rank, at in enumerate(order)}
    return [placed[at] for at in range(len(wanted))]


def _told(one: Series) -> str:
    """A line in words: where it begins and ends."""
    (first, begins), (last, ends) = one.points[0], one.points[-1]
    start = f"{one.name}: {figure(begins.value)} at {number(first)}"
    return f"{start}, {figure(ends.value)} at {number(last)}"
