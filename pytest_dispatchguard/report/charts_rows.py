"""Rows of horizontal bars on one axis: what a waterfall and a bar chart have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pytest_dispatchguard.model import Interval

from . import charts_svg as svg
from .charts_axes import Axis, domain, finite, number, written

_WIDEST_LABEL, _INDENT = 280.0, 16.0
_LABEL = 28.0
"""The height of a label above its row."""
_HATCH = 6.0
_LEAST_WHISKER = 3.0
"""Shorter ones say no more than the end of the bar does."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar from ``start`` on, to the left where its value is negative."""

    start: float
    size: Interval
    colour: str
    tip: str
    """What it says when pointed at."""
    hatched: bool = False
    inside: str = ""
    """Words on the bar, where they fit."""

    @property
    def end(self) -> float:
        """Where it ends."""
        return self.start + self.size.value

    @property
    def whisker(self) -> tuple[float, float]:
        """Where it may end as well."""
        return self.start + self.size.low, self.start + self.size.high


@dataclass(frozen=True, slots=True)
class Row:
    """Bars side by side, with a label before or above them and words after."""

    label: str
    bars: tuple[Bar, ...]
    said: str
    aside: str = ""
    """Said after that, more quietly."""
    tick: float | None = None
    """What somebody else says that it is."""
    depth: int = 0
    thick: float = 20.0
    gap: float = 12.0
    """Room above it."""

    @property
    def letters(self) -> float:
        """The size of its letters."""
        return svg.SMALL if self.depth else svg.TEXT

    @property
    def said_wide(self) -> float:
        """How wide its words are, without those aside."""
        return svg.width(self.said, self.letters, 600) + 8

    @property
    def places(self) -> Sequence[float]:
        """All that the axis must reach."""
        ends = (place for bar in self.bars for place in (bar.start, bar.end, *bar.whisker))
        return finite([0.0, *ends, *([] if self.tick is None else [self.tick])])


def drawn_rows(
    rows: Sequence[Row], top: float, unit: str, *, beside: bool
) -> tuple[list[str], float]:
    """The rows with their axis, and where they end; labels are beside them or above."""
    labels = [svg.width(row.label, row.letters) + _INDENT * row.depth for row in rows] * beside
    said = [row.said_wide + svg.width(row.aside, row.letters) for row in rows]
    left = svg.MARGIN + min(max(labels, default=-14) + 14, _WIDEST_LABEL)
    right = svg.WIDTH - svg.MARGIN - max(said, default=0) - 12
    axis = Axis(*domain([place for row in rows for place in row.places], zero=True), left, right)
    middles, y = [], top
    for row in rows:
        y += row.gap + row.thick + _LABEL * (row.label != "" and not beside)
        middles.append(y - row.thick / 2)
    drawn = [*_grid(axis, top, y + 8, unit), *(_links(rows, middles, axis) if beside else ())]
    for row, middle in zip(rows, middles, strict=True):
        drawn += _row(row, middle, axis, beside)
    return drawn, y + 36


def _grid(axis: Axis, top: float, bottom: float, unit: str) -> Iterator[str]:
    marks = axis.marks(lambda words: svg.width(written(words, unit), svg.SMALL) + 16)
    for mark in marks:
        x, ink = axis.at(mark), "line" if mark else "grey"
        yield svg.shape("path", stroke=ink, d=svg.path((x, top), (x, bottom)), kind="grid")
        words = written(number(mark), unit) if mark == marks[-1] else number(mark)
        yield svg.text(x, bottom + 14, words, fill="muted", text_anchor="middle")


def _links(rows: Sequence[Row], middles: Sequence[float], axis: Axis) -> Iterator[str]:
    """From where each row ends to the next, past those that are parts of it."""
    outer = [(row, middle) for row, middle in zip(rows, middles, strict=True) if not row.depth]
    for (row, middle), (_, below) in pairwise(outer):
        x = axis.at(row.bars[-1].end)
        way = svg.path((x, middle + row.thick / 2), (x, below - row.thick / 2))
        yield svg.shape("path", stroke="grey", d=way, stroke_dasharray="2 3")


def _row(row: Row, middle: float, axis: Axis, beside: bool) -> Iterator[str]:
    size, x = row.letters, svg.MARGIN + _INDENT * row.depth
    if row.label and beside:
        ink = "muted" if row.depth else "ink"
        yield svg.text(x, middle, row.label, axis.start - 12 - x, size=size, fill=ink)
    elif row.label:
        yield _patch(x, middle - row.thick / 2 - 14, svg.width(row.label, size))
        yield svg.text(x, middle - row.thick / 2 - 14, row.label, size=size)
    for bar in row.bars:
        yield svg.titled(bar.tip, *_bar(bar, middle, row.thick, axis))
    if row.tick is not None:
        yield tick(axis.at(row.tick), middle, row.thick)
    x = axis.at(max(row.places)) + 10
    yield _patch(x, middle, row.said_wide + svg.width(row.aside, size))
    yield svg.text(x, middle, row.said, size=size, weight=600)
    if row.aside:
        yield svg.text(x + row.said_wide, middle, row.aside, size=size, fill="muted")


def _patch(x: float, middle: float, wide: float) -> str:
    """Room for words, free of lines."""
    return svg.shape(
        "rect", fill="surface", x=x - 3, y=middle - 9, width=min(wide, svg.ROOM), height=18
    )


def _bar(bar: Bar, middle: float, thick: float, axis: Axis) -> Iterator[str]:
    left, right = sorted(map(axis.at, (bar.start, bar.end)))
    top, wide = middle - thick / 2, right - left
    pale = 0.2 if bar.hatched else ""
    yield svg.shape(
        "rect", fill=bar.colour, kind="bar", x=left, y=top, width=wide, height=thick, opacity=pale
    )
    if bar.hatched:
        yield svg.shape("path", stroke=bar.colour, d=_hatching(left, top, wide, thick))
    if bar.inside and svg.width(bar.inside, svg.SMALL) + 6 <= wide:
        ink = svg.READ_ON[bar.colour]
        yield svg.text((left + right) / 2, middle, bar.inside, fill=ink, text_anchor="middle")
    low, high = map(axis.at, bar.whisker)
    if high - low >= _LEAST_WHISKER:
        ends = (svg.path((x, middle - 4), (x, middle + 4)) for x in (low, high))
        way = " ".join((svg.path((low, middle), (high, middle)), *ends))
        yield svg.shape("path", stroke="surface", d=way, stroke_width=4)
        yield svg.shape("path", stroke="ink", d=way, stroke_width=1.5, kind="whisker")


def _hatching(x: float, y: float, wide: float, tall: float) -> str:
    """The outline of a box, and slanted lines over it."""
    lines = [svg.path((x, y), (x + wide, y), (x + wide, y + tall), (x, y + tall), (x, y))]
    for at in (n * _HATCH for n in range(1, int((wide + tall) / _HATCH) + 1)):
        left, right = max(at - tall, 0), min(at, wide)
        lines.append(svg.path((x + left, y + at - left), (x + right, y + at - right)))
    return " ".join(lines)


def tick(x: float, middle: float, thick: float) -> str:
    """The mark of somebody else's value on a bar."""
    way = svg.path((x, middle - thick / 2 - 2), (x, middle + thick / 2 + 2))
    edge = svg.shape("path", stroke="surface", d=way, stroke_width=6)
    return edge + svg.shape("path", stroke="ink", d=way, stroke_width=3, kind="tick")
