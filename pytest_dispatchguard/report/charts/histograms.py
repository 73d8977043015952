"""The distribution of block times, subject beside reference: one histogram per test, as SVG text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_dispatchguard.report.charts import svg
from pytest_dispatchguard.report.charts.axes import Axis, domain, finite
from pytest_dispatchguard.report.charts.charts import legend
from pytest_dispatchguard.report.charts.svg import Caption
from pytest_dispatchguard.report.figures import figure, number, written

_SIDES = ("subject", "reference")
_UNIT = "µs"
_BINS = 48
_TALL, _LABEL, _MARKS = 72.0, 30.0, 40.0
"""The height of the columns, of the text above, and of the axis below."""
_SPAN = 6.0
"""How many interquartile ranges to show on both sides; values beyond are in the outermost bins."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Block times of one subject and its reference, in microseconds per call."""

    label: str
    subject: Sequence[float]
    reference: Sequence[float] = ()


def as_svg(found: Sequence[Spread], machine: Mapping[str, str]) -> str:
    """A histogram for each test."""
    timed = [one for one in found if one.subject]
    about = ", ".join(f"{name} {value}" for name, value in machine.items())
    caption = Caption("Times of a call, block by block", about)
    head, y = svg.heading(caption)
    keys, y = legend(_SIDES if any(one.reference for one in timed) else (), "", y)
    drawn, told = [*head, *keys], []
    for one in timed:
        words = "; ".join(_said(*side) for side in _sides(one))
        told.append(f"{one.label}: {words}")
        drawn.append(svg.titled(told[-1], *_panel(one, words, y)))
        y += _LABEL + _TALL + _MARKS
    return svg.page(caption, told, drawn, y)


def _sides(one: Spread) -> list[tuple[str, Sequence[float]]]:
    values = (sorted(finite(one.subject)), sorted(finite(one.reference)))
    return [(name, side) for name, side in zip(_SIDES, values, strict=True) if side]


def _said(name: str, values: Sequence[float]) -> str:
    """A side in words: its median and the middle half."""
    low, middle, high = (_at(values, part) for part in (0.25, 0.5, 0.75))
    return f"{name} {figure(middle, _UNIT)} ({figure(low)} to {figure(high)})"


def _at(values: Sequence[float], part: float) -> float:
    return values[min(int(part * len(values)), len(values) - 1)]


def _panel(one: Spread, words: str, top: float) -> Iterator[str]:
    room = svg.ROOM - svg.width(words, svg.SMALL) - 16
    yield svg.text(svg.MARGIN, top + 12, one.label, max(room, svg.ROOM / 3))
    right = svg.MARGIN + svg.ROOM
    yield svg.text(right, top + 12, words, 2 * svg.ROOM / 3 - 16, fill="muted", anchor="end")
    sides = _sides(one)
    low, high = domain([end for _, values in sides for end in _ends(values)])
    axis = Axis(low, high, svg.MARGIN, svg.MARGIN + svg.ROOM)
    bottom = top + _LABEL + _TALL
    for mark in axis.marks(lambda text: svg.width(written(text, _UNIT), svg.SMALL) + 16):
        x = axis.at(mark)
        yield svg.line("line", (x, top + _LABEL), (x, bottom + 6))
        half = svg.width(written(number(mark), _UNIT), svg.SMALL) / 2
        at = min(max(x, svg.MARGIN + half), svg.MARGIN + svg.ROOM - half)
        words = written(number(mark), _UNIT)
        yield svg.text(at, bottom + 16, words, fill="muted", anchor="middle")
    yield svg.line("grey", (svg.MARGIN, bottom), (svg.MARGIN + svg.ROOM, bottom))
    for number_of, (_, values) in enumerate(sides):
        yield from _columns(_shares(values, low, high), bottom, svg.series_colour(number_of))


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """The range in which values are drawn in their own bins."""
    low, high = _at(values, 0.25), _at(values, 0.75)
    around = _SPAN * (high - low)
    return max(values[0], low - around), min(values[-1], high + around)


def _shares(values: Sequence[float], low: float, high: float) -> list[float]:
    """The share of the values in each bin."""
    counts = [0] * _BINS
    for value in values:
        place = int((value - low) / (high - low) * _BINS)
        counts[min(max(place, 0), _BINS - 1)] += 1
    return [number_in / len(values) for number_in in counts]


def _columns(shares: Sequence[float], bottom: float, colour: str) -> Iterator[str]:
    wide, most = svg.ROOM / _BINS, max(shares)
    for place, share in enumerate(shares):
        if share:
            tall = _TALL * share / most
            look: svg.Look = {"x": svg.MARGIN + place * wide, "y": bottom - tall, "height": tall}
            yield svg.shape("rect", fill=colour, width=wide, fill_opacity=0.6, **look)
