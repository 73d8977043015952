"""Charts: SVG that always parses and stays on its page, bars that add up, words that keep apart."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.report.charts import svg
from pytest_dispatchguard.report.charts.axes import Axis, domain
from pytest_dispatchguard.report.charts.charts import (
    Caption,
    Category,
    Layer,
    Mark,
    Series,
    bars,
    lines,
    waterfall,
)
from pytest_dispatchguard.report.charts.lines import apart
from pytest_dispatchguard.report.figures import figure, number

Element = ElementTree.Element
NAMESPACE = "{http://www.w3.org/2000/svg}"
CODE = 'torch.add(x, y) < 3 & "q"'


def interval(value: float, around: float = 0.0) -> Interval:
    return Interval(value, value - around, value + around)


WHOLE = Layer("whole", interval(1))

numbers = st.one_of(
    st.floats(-1e6, 1e6),
    st.sampled_from([0.0, 1e-3, 1e6, -1e-3, 1e12, 1e-12, 1e100, -1e100, 5e-324]),
)
positive = st.one_of(st.floats(1e-3, 1e6), st.sampled_from([1e-90, 1.0, 1e99]))
intervals = st.builds(
    lambda value, *sides: Interval(value, min(value, *sides), max(value, *sides)),
    st.floats(-1e6, 1e6),
    st.floats(-1e6, 1e6),
    st.floats(-1e6, 1e6),
)
labels = st.one_of(
    st.text(max_size=80),
    st.text("ab \t\n\x00\x1b\ud800\ufffe\u202e<&>\"']]>漢🙂", max_size=300),
    st.sampled_from([CODE, "x" * 500, ""]),
)
captions = st.builds(Caption, labels, labels, labels)
layers = st.recursive(
    st.builds(Layer, labels, intervals),
    lambda parts: st.builds(Layer, labels, intervals, st.tuples(parts) | st.tuples(parts, parts)),
    max_leaves=6,
)


def parsed(text: str) -> Element:
    root = ElementTree.fromstring(text)
    assert root.tag == NAMESPACE + "svg"
    assert root.get("role") == "img"
    assert root[0].tag == NAMESPACE + "title" and root[1].tag == NAMESPACE + "desc"
    return root


def of_kind(root: Element, kind: str) -> list[Element]:
    return [one for one in root.iter() if f"dg-{kind}" in one.get("class", "").split()]


def span(rect: Element) -> tuple[float, float]:
    return float(rect.get("x", "")), float(rect.get("x", "")) + float(rect.get("width", ""))


def points(path: Element) -> list[tuple[float, float]]:
    found = re.findall(r"(-?[\d.]+) (-?[\d.]+)", path.get("d", ""))
    return [(float(x), float(y)) for x, y in found]


def words(root: Element) -> set[str]:
    """All that is written, in full."""
    return {one.text or "" for one in root.iter() if one.tag.endswith(("}text", "}title"))}


def corners(root: Element) -> Iterator[tuple[float, float]]:
    """Places that every element reaches."""
    for one in root.iter():
        match one.tag.removeprefix(NAMESPACE):
            case "rect":
                x, y = float(one.get("x", 0)), float(one.get("y", 0))
                yield x, y
                yield x + float(one.get("width", "")), y + float(one.get("height", ""))
            case "path":
                yield from points(one)
            case "text":
                size, x, y = (float(one.get(name, "")) for name in ("font-size", "x", "y"))
                wide = svg.width(one.text or "", size, int(one.get("font-weight", 0)))
                left = x - wide * {"start": 0, "middle": 0.5, "end": 1}[one.get("text-anchor", "")]
                yield left, y - size
                yield left + wide, y + 0.3 * size


def holds(root: Element, *told: str) -> None:
    """All is on the page, and all that was told is written there."""
    _, _, wide, high = map(float, root.get("viewBox", "").split())
    for x, y in corners(root):
        assert -0.01 <= x <= wide + 0.01 and -0.01 <= y <= high + 0.01
    written = words(root)
    assert {svg.clean(label) for label in told} - {""} <= written


def names_of(layer: Layer) -> Iterator[str]:
    yield layer.label
    for part in layer.parts:
        yield from names_of(part)


@settings(max_examples=40, deadline=None)
@given(captions, st.lists(layers, max_size=5), layers, st.none() | layers)
def test_a_waterfall_holds(
    caption: Caption, parts: list[Layer], whole: Layer, rest: Layer | None
) -> None:
    root = parsed(waterfall(caption, parts, whole, rest))
    holds(root, whole.label, *(name for layer in parts for name in names_of(layer)))
    holds(root, *([] if rest is None else [rest.label]))
    assert svg.clean(caption.title) == (root[0].text or "")


@settings(max_examples=40, deadline=None)
@given(st.data(), captions, st.integers(1, 8), st.booleans())
def test_bars_hold(data: st.DataObject, caption: Caption, many: int, stacked: bool) -> None:
    series = data.draw(st.lists(labels, min_size=many, max_size=many))
    values = st.tuples(*[st.none() | intervals] * many)
    published = st.just(()) | st.tuples(*[st.none() | st.floats(-1e6, 1e6)] * many)
    categories = data.draw(st.lists(st.builds(Category, labels, values, published), max_size=5))
    source = data.draw(labels)
    root = parsed(bars(caption, series, categories, stacked=stacked, source=source))
    shown = series if many > 1 else []
    holds(root, source, *shown, *(category.label for category in categories))


@settings(max_examples=40, deadline=None)
@given(st.data(), captions, st.booleans(), st.booleans())
def test_lines_hold(data: st.DataObject, caption: Caption, log_x: bool, log_y: bool) -> None:
    x, y = (positive if log else numbers for log in (log_x, log_y))
    values = st.builds(Interval, y, numbers, numbers)
    some = st.lists(st.tuples(x, values), min_size=1, max_size=5).map(tuple)
    series = data.draw(st.lists(st.builds(Series, labels, some), max_size=9))
    marks = data.draw(st.lists(st.builds(Mark, labels, x, st.none() | x), max_size=3))
    levels = data.draw(st.lists(st.builds(Mark, labels, y, st.none() | y), max_size=3))
    axes = data.draw(labels), data.draw(labels)
    root = parsed(
        lines(
            caption,
            series,
            log_x=log_x,
            log_y=log_y,
            marks=marks,
            levels=levels,
            x_label=axes[0],
            y_label=axes[1],
        )
    )
    holds(root, *axes, *(s.name for s in series), *(m.label for m in (*marks, *levels)))
    heights = sorted(float(end.get("y", "")) for end in of_kind(root, "end"))
    assert all(below - above >= svg.SMALL for above, below in pairwise(heights))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-50, 100), min_size=1, max_size=40))
def test_each_layer_begins_where_the_one_before_ends(takes: list[int]) -> None:
    parts = [Layer(f"layer {at}", interval(value, 5)) for at, value in enumerate(takes)]
    root = parsed(waterfall(Caption("t"), parts, Layer("whole", interval(sum(takes)))))
    *made, whole = map(span, of_kind(root, "bar"))
    zero = whole[0] if sum(takes) >= 0 else whole[1]
    at = zero
    for value, (left, right) in zip(takes, made, strict=True):
        start, end = (left, right) if value >= 0 else (right, left)
        assert start == pytest.approx(at, abs=0.1)
        at = end
    assert at == pytest.approx(whole[1] if sum(takes) >= 0 else whole[0], abs=0.1)


def test_what_is_negative_goes_left_and_looks_other() -> None:
    parts = [Layer("a", interval(3)), Layer("b", interval(-1))]
    root = parsed(waterfall(Caption("t"), parts, Layer("whole", interval(2))))
    first, second, whole = of_kind(root, "bar")
    assert span(second)[1] == span(first)[1]
    assert span(second)[0] == span(whole)[1]
    assert first.get("fill") != second.get("fill")
    assert second.get("opacity") and not first.get("opacity")
    assert "\u22121.00 µs" in words(root)


def test_parts_lie_in_their_layer() -> None:
    inner = Layer("inner", interval(1), (Layer("innermost", interval(0.5)),))
    parts = [Layer("a", interval(1)), Layer("b", interval(3), (Layer("c", interval(1)), inner))]
    root = parsed(waterfall(Caption("t"), parts, Layer("whole", interval(4))))
    _, b, c, within, innermost, _ = map(span, of_kind(root, "bar"))
    starts = {one.text: float(one.get("x", "")) for one in root.iter(NAMESPACE + "text")}
    assert starts["b"] < starts["c"] == starts["inner"] < starts["innermost"]
    assert c[0] == b[0] and c[1] == within[0] == innermost[0] and within[1] < b[1]


def test_deep_and_many_layers_stay_on_the_page() -> None:
    layer = Layer("innermost", interval(1))
    for depth in range(60):
        layer = Layer(f"at {depth}", interval(1), (layer,))
    root = parsed(waterfall(Caption("t"), [layer], WHOLE))
    holds(root, *names_of(layer))
    assert all("…" not in (one.text or "") for one in root.iter(NAMESPACE + "text"))


def test_values_shares_and_whiskers_are_drawn() -> None:
    parts = [Layer("a", interval(1.2, 0.2)), Layer("b", interval(0.8))]
    root = parsed(waterfall(Caption("t"), parts, Layer("whole", interval(2.0))))
    assert {"1.20 µs", "60%", "0.80 µs", "40%", "2.00 µs", "100%"} <= words(root)
    (whisker,) = of_kind(root, "whisker")
    (low, _), (high, _) = points(whisker)[:2]
    left, right = span(of_kind(root, "bar")[0])
    assert high - right == pytest.approx(right - low, abs=0.02)
    assert high - low == pytest.approx((right - left) / 3, abs=0.02)
    assert "a: 1.20 µs (1.00 to 1.40)" in (root[1].text or "")


def test_grouped_bars_have_one_measure_and_their_sources() -> None:
    categories = [
        Category("f", (interval(2), interval(4)), (None, 6.0)),
        Category("g", (interval(-1), None)),
    ]
    root = parsed(bars(Caption("t"), ["a", "b"], categories, source="their note"))
    two, four, less = map(span, of_kind(root, "bar"))
    assert four[1] - four[0] == pytest.approx(2 * (two[1] - two[0]), abs=0.02)
    assert less[1] == two[0] == four[0]
    _, theirs = of_kind(root, "tick")
    assert points(theirs)[0][0] - two[0] == pytest.approx(3 * (two[1] - two[0]), abs=0.03)
    assert {"their note", "a", "b", "\u2013"} <= words(root)


def test_stacked_bars_lie_end_to_end() -> None:
    values = (interval(2), interval(-1), None, interval(4))
    category = Category("f", values, (4.0,))
    root = parsed(bars(Caption("t"), list("abcd"), [category], stacked=True))
    first, below, last = map(span, of_kind(root, "bar"))
    assert first[1] == last[0] and below[1] == first[0]
    (theirs,) = of_kind(root, "tick")
    assert points(theirs)[0][0] == pytest.approx((last[0] + last[1]) / 2, abs=0.02)
    assert {"5.00 µs", "2.00", "4.00"} <= words(root)


def test_lines_end_at_their_names() -> None:
    high, low = (
        Series(name, tuple((x, interval(y * x, 0.1)) for x in (1, 10, 100)))
        for name, y in (("high", 2.0), ("low", 1.0))
    )
    root = parsed(lines(Caption("t"), [low, high], log_x=True))
    assert len(of_kind(root, "line")) == len(of_kind(root, "band")) == 2
    # Three of each line, and one beside its name.
    assert len(of_kind(root, "point")) == 8
    ends = {end.text: float(end.get("y", "")) for end in of_kind(root, "end")}
    assert ends["high"] < ends["low"]
    first, second, third = points(of_kind(root, "line")[0])
    assert second[0] - first[0] == pytest.approx(third[0] - second[0], abs=0.02)


def test_many_lines_get_a_higher_page() -> None:
    series = [Series(f"line {at}", ((1, interval(0)), (2, interval(2)))) for at in range(40)]
    root = parsed(lines(Caption("t"), series))
    holds(root, *(one.name for one in series))
    heights = sorted(float(end.get("y", "")) for end in of_kind(root, "end"))
    assert all(below - above >= svg.SMALL for above, below in pairwise(heights))
    assert heights[-1] <= max(y for one in of_kind(root, "line") for _, y in points(one)) + 20


def test_words_of_a_mark_are_on_the_side_with_room() -> None:
    series = [Series("s", ((0, interval(1)), (10, interval(70))))]
    marks = [Mark("everything is slow from here on", at) for at in (1, 9.9)]
    root = parsed(lines(Caption("t"), series, marks=marks))
    sides = [
        one.get("text-anchor")
        for one in root.iter(NAMESPACE + "text")
        if one.text == "everything is slow from here on"
    ]
    assert sides == ["start", "end"]
    # The axis goes on to a round number.
    assert "80" in words(root)


def test_points_may_come_in_any_order() -> None:
    measured = [(x, interval(x)) for x in (3.0, 1.0, 2.0)]
    drawn = {
        lines(Caption("t"), [Series("s", tuple(p))]) for p in (measured, sorted(measured, key=str))
    }
    assert len(drawn) == 1


@given(st.lists(st.floats(0, 300), max_size=12), st.floats(1, 20))
def test_apart_keeps_gaps_order_and_what_is_apart_already(wanted: list[float], gap: float) -> None:
    placed = apart(wanted, gap, 0, 300)
    order = sorted(range(len(wanted)), key=lambda at: wanted[at])
    assert all(placed[b] - placed[a] >= gap - 1e-6 for a, b in pairwise(order))
    assert all(-1e-6 <= place <= 300 + 1e-6 for place in placed)
    if all(wanted[b] - wanted[a] >= gap for a, b in pairwise(order)):
        assert placed == pytest.approx(wanted, abs=1e-6)


@given(st.lists(positive, min_size=2, max_size=9), st.booleans(), st.booleans(), st.booleans())
def test_axes_keep_the_order_and_their_marks_are_apart(
    values: list[float], log: bool, zero: bool, rounded: bool
) -> None:
    low, high = domain(values, log=log, zero=zero, rounded=rounded)
    axis = Axis(low, high, 50, 650, log)
    places = [axis.at(value) for value in sorted(values)]
    assert places == sorted(places)
    assert places[0] >= 50 - 1e-6 and places[-1] <= 650 + 1e-6
    marks = [axis.at(mark) for mark in axis.marks(lambda words: 9.0 * len(words))]
    assert 1 <= len(marks) < 40
    assert all(b - a > 9 for a, b in pairwise(marks))
    assert all(49 <= mark <= 651 for mark in marks)


@pytest.mark.parametrize(
    ("low", "high", "log", "expected"),
    [
        (0, 10, False, [0, 2, 4, 6, 8, 10]),
        (0, 0.3, False, [0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]),
        (1, 100, True, [1, 2, 5, 10, 20, 50, 100]),
        (1, 1e6, True, [1, 10, 100, 1e3, 1e4, 1e5, 1e6]),
        (300, 400, True, [300, 320, 340, 360, 380, 400]),
    ],
)
def test_marks_are_round(low: float, high: float, log: bool, expected: list[float]) -> None:
    assert Axis(low, high, 0, 400, log).marks(lambda _: 55) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0"),
        (1000, "1,000"),
        (-0.05, "\u22120.05"),
        (1e7, "10⁷"),
        (-2.5e-7, "\u22122.5\u00d710⁻⁷"),
        (1.2e10, "1.2\u00d710¹⁰"),
    ],
)
def test_numbers_are_written_as_people_do(value: float, expected: str) -> None:
    assert number(value) == expected


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (1.204, "µs", "1.20 µs"),
        (9.996, "", "10.0"),
        (1234.5, "µs", "1,234 µs"),
        (0.0341, "s", "0.034 s"),
        (12.34, "%", "12.3%"),
        (1.5, "\u00d7", "1.50\u00d7"),
        (-0.5, "", "\u22120.50"),
        (0, "µs", "0 µs"),
    ],
)
def test_figures_say_what_counts(value: float, unit: str, expected: str) -> None:
    assert figure(value, unit) == expected


WRONG: list[Callable[[float], str]] = [
    lambda bad: waterfall(Caption("t"), [Layer("a", interval(bad))], WHOLE),
    lambda bad: waterfall(Caption("t"), [Layer("a", Interval(1, bad, 2))], WHOLE),
    lambda bad: waterfall(Caption("t"), [], Layer("whole", interval(bad))),
    lambda bad: waterfall(Caption("t"), [], WHOLE, Layer("rest", Interval(0, 0, bad))),
    lambda bad: bars(Caption("t"), ["a"], [Category("c", (interval(bad),))]),
    lambda bad: bars(Caption("t"), ["a"], [Category("c", (interval(1),), (bad,))]),
    lambda bad: bars(Caption("t"), ["a"], [Category("c", (interval(bad),))], stacked=True),
    lambda bad: lines(Caption("t"), [Series("s", ((bad, interval(1)),))]),
    lambda bad: lines(Caption("t"), [Series("s", ((1, Interval(1, bad, 1)),))], log_y=True),
    lambda bad: lines(Caption("t"), [], marks=[Mark("m", bad)]),
    lambda bad: lines(Caption("t"), [], levels=[Mark("m", 1, bad)]),
]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("drawn", WRONG)
def test_what_is_no_number_is_refused(drawn: Callable[[float], str], bad: float) -> None:
    with pytest.raises(ValueError, match="finite numbers"):
        drawn(bad)


def test_a_logarithm_needs_numbers_above_zero() -> None:
    zero = [Series("s", ((0.0, interval(0.0)),))]
    with pytest.raises(ValueError, match="above zero, not 0"):
        lines(Caption("t"), zero, log_x=True)
    with pytest.raises(ValueError, match="above zero, not 0"):
        lines(Caption("t"), zero, log_y=True)
    with pytest.raises(ValueError, match="'s' has none"):
        lines(Caption("t"), [Series("s", ())])


@given(labels, st.floats(0, 400), st.sampled_from([svg.SMALL, svg.TEXT]))
def test_what_is_cut_keeps_its_ends_and_fits(label: str, room: float, size: float) -> None:
    shown = svg.cut(label, room, size)
    assert shown == "…" or svg.width(shown, size) <= room + 0.1
    if shown != label:
        assert svg.width(label, size) > room
        kept = len(shown) - 1
        head, tail = label[: (kept + 1) // 2], label[len(label) - kept // 2 :]
        assert shown == f"{head}…{tail}"


def test_the_same_input_gives_the_same_bytes_in_any_process() -> None:
    program = (
        "import sys\n"
        "from pytest_dispatchguard.model.measurements import Interval as I\n"
        "from pytest_dispatchguard.report.charts.charts import *\n"
        "v = I(1.5, 1, 2)\n"
        "s = [Series(n, ((1, v), (10, I(3, 2, 4)))) for n in 'abc']\n"
        "m = [Mark('m', 2, 3)]\n"
        "c = Caption('t', 's', 'n')\n"
        "out = waterfall(c, [Layer('a', v, (Layer('b', v),))], Layer('w', v))\n"
        "out += bars(c, ['x', 'y'], [Category('c', (v, v), (1, 2))], source='z')\n"
        "out += lines(c, s, log_x=True, marks=m, levels=m)\n"
        "sys.stdout.buffer.write(out.encode())\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1 and len(outputs.pop()) > 5000


def brightness(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted(map(brightness, (one, other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_words_and_bars_stand_out_in_both_themes(theme: int) -> None:
    colour = {name: both[theme] for name, both in svg.COLOURS.items()}
    for name in ("ink", "muted"):
        assert contrast(colour[name], colour["surface"]) >= 4.5
    for name in (*svg.SERIES, "whole", "grey"):
        assert contrast(colour[name], colour["surface"]) >= 3
    for name in svg.SERIES:
        ink = colour["on-dark" if name in svg.DEEP else "on-bright"]
        assert contrast(ink, colour[name]) >= 4.5


def test_light_colours_need_no_style_sheet_and_dark_ones_have_it() -> None:
    root = parsed(waterfall(Caption(CODE), [Layer(CODE, interval(1, 0.3))], WHOLE))
    style = next(root.iter(NAMESPACE + "style")).text or ""
    assert "@media (prefers-color-scheme:dark)" in style
    painted = [one for one in root.iter() if re.search("dg-[fs]-", one.get("class", ""))]
    assert painted
    for one in painted:
        assert one.get("fill")
        for name in one.get("class", "").split():
            if name.startswith(("dg-f-", "dg-s-")):
                assert f".{name}{{" in style
    assert CODE in words(root)
