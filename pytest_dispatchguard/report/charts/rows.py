"""Rows of horizontal bars on one axis: shared by the waterfall and the bar chart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.report.charts import svg
from pytest_dispatchguard.report.charts.axes import Axis, domain, finite
from pytest_dispatchguard.report.figures import number, written

_INDENT, _DEEPEST = 16.0, 8
_LABEL = 28.0
"""The height of a label above its row."""
_HATCH = 6.0
_LEAST_WHISKER = 3.0
"""Shorter whiskers show nothing that the end of the bar does not."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar that begins at ``start``, and extends to the left if its value is negative."""

    start: float
    size: Interval
    colour: str
    tip: str
    """Its tooltip."""
    hatched: bool = False
    inside: str = ""
    """Text on the bar, if it fits."""

    @property
    def end(self) -> float:
        """Where it ends."""
        return self.start + self.size.value

    @property
    def whisker(self) -> tuple[float, float]:
        """Its interval."""
        return self.start + self.size.low, self.start + self.size.high


@dataclass(frozen=True, slots=True)
class Row:
    """Bars side by side, with a label above and text beside them."""

    label: str
    bars: tuple[Bar, ...]
    said: str
    aside: str = ""
    """A less prominent text after that."""
    tick: float | None = None
    """A value published by somebody else."""
    depth: int = 0
    thick: float = 18.0
    gap: float = 8.0
    """Space above it."""

    @property
    def letters(self) -> float:
        """The font size."""
        return svg.SMALL if self.depth else svg.TEXT

    @property
    def places(self) -> Sequence[float]:
        """All values that the axis must include."""
        ends = (place for bar in self.bars for place in (bar.start, bar.end, *bar.whisker))
        return finite([0.0, *ends, *([] if self.tick is None else [self.tick])])


def drawn_rows(
    rows: Sequence[Row], top: float, unit: str, *, linked: bool
) -> tuple[list[str], float]:
    """The rows with their axis, and their lower end. Linked rows are connected, each from where the
    previous one ends, and have their text in columns."""
    said = [0.0 if linked else svg.width(row.said, row.letters, 600) + 12 for row in rows]
    end = svg.MARGIN + svg.ROOM - max(said, default=0)
    places = [place for row in rows for place in row.places]
    axis = Axis(*domain(places, zero=True), svg.MARGIN, end)
    middles, y = [], top
    for row in rows:
        y += row.gap + _LABEL * bool(row.label) + row.thick
        middles.append(y - row.thick / 2)
    drawn = [*_grid(axis, top, y + 8, unit), *(_links(rows, middles, axis) if linked else ())]
    asides = max((svg.width(row.aside, svg.TEXT) for row in rows), default=0) + 14
    for row, middle in zip(rows, middles, strict=True):
        drawn += _columns(row, middle, asides) if linked else _words(row, middle, axis)
        for bar in row.bars:
            drawn.append(svg.titled(bar.tip, *_bar(bar, middle, row.thick, axis)))
        if row.tick is not None:
            drawn.append(tick(axis.at(row.tick), middle, row.thick))
    return drawn, y + 36


def _grid(axis: Axis, top: float, bottom: float, unit: str) -> Iterator[str]:
    marks = axis.marks(lambda words: svg.width(written(words, unit), svg.SMALL) + 16)
    for mark in marks:
        x, ink = axis.at(mark), "line" if mark else "grey"
        yield svg.line(ink, (x, top), (x, bottom))
        words = written(number(mark), unit) if mark == marks[-1] else number(mark)
        half = svg.width(words, svg.SMALL) / 2 + 4
        x = min(max(x, half), svg.WIDTH - half)
        yield svg.text(x, bottom + 14, words, fill="muted", anchor="middle")


def _links(rows: Sequence[Row], middles: Sequence[float], axis: Axis) -> Iterator[str]:
    """Lines from the end of each row to the next one, past rows that are its parts."""
    outer = [(row, middle) for row, middle in zip(rows, middles, strict=True) if not row.depth]
    for (row, middle), (_, below) in pairwise(outer):
        x = axis.at(row.bars[-1].end)
        yield svg.line("grey", (x, middle), (x, below), stroke_dasharray="2 3")


def _columns(row: Row, middle: float, asides: float) -> Iterator[str]:
    """The text above a row, and a line that guides the eye."""
    top, left, right = middle - row.thick / 2, svg.MARGIN, svg.MARGIN + svg.ROOM
    box: svg.Look = {"x": left, "y": top, "width": svg.ROOM, "height": row.thick}
    yield svg.shape("rect", fill="line", opacity=0.5, **box)
    y, inset, ink = (
        top - _LABEL / 2,
        _INDENT * min(row.depth, _DEEPEST),
        "muted" if row.depth else "ink",
    )
    look: svg.Look = {"size": row.letters, "patch": True}
    yield svg.text(right, y, row.aside, fill="muted", anchor="end", **look)
    yield svg.text(right - asides, y, row.said, weight=600, anchor="end", **look)
    room = svg.ROOM - asides - svg.width(row.said, row.letters, 600) - 14 - inset
    yield svg.text(left + inset, y, row.label, room, fill=ink, **look)


def _words(row: Row, middle: float, axis: Axis) -> Iterator[str]:
    """A label above the row, and text at its end."""
    y = middle - (row.thick + _LABEL) / 2
    yield svg.text(svg.MARGIN, y, row.label, size=row.letters, patch=True)
    end = axis.at(max(row.places)) + 10
    yield svg.text(end, middle, row.said, size=row.letters, weight=600, patch=True)


def _bar(bar: Bar, middle: float, thick: float, axis: Axis) -> Iterator[str]:
    left, right = sorted(map(axis.at, (bar.start, bar.end)))
    top, wide = middle - thick / 2, right - left
    box: svg.Look = {"x": left, "y": top, "width": wide, "height": thick}
    pale = 0.2 if bar.hatched else ""
    yield svg.shape("rect", fill=bar.colour, kind="bar", opacity=pale, **box)
    if bar.hatched:
        yield svg.shape("path", stroke=bar.colour, d=_hatching(left, top, wide, thick))
    if bar.inside and svg.width(bar.inside, svg.SMALL) + 6 <= wide:
        ink = "on-dark" if bar.colour in svg.DEEP else "on-bright"
        yield svg.text((left + right) / 2, middle, bar.inside, fill=ink, anchor="middle")
    low, high = map(axis.at, bar.whisker)
    if high - low >= _LEAST_WHISKER:
        ends = (svg.path((x, middle - 4), (x, middle + 4)) for x in (low, high))
        way = " ".join((svg.path((low, middle), (high, middle)), *ends))
        yield svg.shape("path", stroke="surface", d=way, stroke_width=4)
        yield svg.shape("path", stroke="ink", d=way, stroke_width=1.5, kind="whisker")


def _hatching(x: float, y: float, wide: float, tall: float) -> str:
    """The outline of a box, with diagonal lines."""
    lines = [svg.path((x, y), (x + wide, y), (x + wide, y + tall), (x, y + tall), (x, y))]
    for at in (n * _HATCH for n in range(1, int((wide + tall) / _HATCH) + 1)):
        left, right = max(at - tall, 0), min(at, wide)
        lines.append(svg.path((x + left, y + at - left), (x + right, y + at - right)))
    return " ".join(lines)


def tick(x: float, middle: float, thick: float) -> str:
    """The mark of a published value on a bar."""
    ends = (x, middle - thick / 2 - 2), (x, middle + thick / 2 + 2)
    edge = svg.line("surface", *ends, stroke_width=6)
    return edge + svg.line("ink", *ends, stroke_width=3, kind="tick")
