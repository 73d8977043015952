"""How times are spread, as drawings."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.report.charts.histograms import Spread, as_svg
from pytest_dispatchguard.report.charts.svg import MARGIN, WIDTH

SVG = "{http://www.w3.org/2000/svg}"


def columns(drawing: str, colour: str) -> list[tuple[float, float, float]]:
    """Place, width and height of the columns of a side."""
    found = []
    for box in ET.fromstring(drawing).iter(f"{SVG}rect"):
        if colour in box.attrib.get("class", "") and "fill-opacity" in box.attrib:
            found.append(tuple(float(box.attrib[name]) for name in ("x", "width", "height")))
    return found  # type: ignore[return-value]  # three of them


def test_columns_are_as_tall_as_values_are_many() -> None:
    drawing = as_svg([Spread("t.py::test_a", [1.0] * 10 + [2.0] * 20 + [3.0] * 5)], {"python": "3"})
    first, second, third = columns(drawing, "blue")
    assert first[0] < second[0] < third[0]
    assert (first[2] / second[2], third[2] / second[2]) == (0.5, 0.25)
    words = "".join(ET.fromstring(drawing).itertext())
    assert "t.py::test_a: subject 2.00 µs (1.00 to 2.00)" in words
    assert "python 3" in words and "reference" not in words


def test_the_reference_stands_beside_its_subject() -> None:
    chance = random.Random(3)
    slow = [chance.gauss(2.0, 0.05) for _ in range(200)]
    quick = [chance.gauss(1.0, 0.05) for _ in range(200)]
    drawing = as_svg([Spread("t.py::test_a", slow, quick)], {})
    subject, reference = columns(drawing, "blue"), columns(drawing, "vermilion")
    assert min(x for x, _, _ in subject) > max(x for x, _, _ in reference)
    assert "reference 1.0" in "".join(ET.fromstring(drawing).itertext())


def test_one_block_that_was_disturbed_does_not_squeeze_the_others() -> None:
    chance = random.Random(3)
    values = [chance.gauss(1.0, 0.05) for _ in range(200)]
    assert len(columns(as_svg([Spread("a", [*values, 900.0])], {}), "blue")) > 10


def test_nothing_that_was_timed_is_said() -> None:
    words = "".join(ET.fromstring(as_svg([Spread("a", [])], {})).itertext())
    assert "Nothing was measured" in words


@given(st.lists(st.lists(st.floats(1e-6, 1e9), max_size=30), max_size=3), st.text())
def test_all_is_within_the_drawing(values: list[list[float]], label: str) -> None:
    drawing = as_svg([Spread(label, one, one[::-2]) for one in values], {"torch": "2"})
    bottom = float(ET.fromstring(drawing).attrib["height"])
    for x, wide, tall in columns(drawing, ""):
        assert x >= MARGIN - 0.01 and x + wide <= WIDTH - MARGIN + 0.02
        assert 0 < tall < bottom
