"""What is told of changes that were verified, in a line each."""

from __future__ import annotations

import json

import pytest

from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.model.reviews import Gain, Verification, Verified
from pytest_dispatchguard.report.verified import FORMATS, render
from pytest_dispatchguard.report.verified.tables import gained, told

GAIN = Gain(
    "layer(x)",
    {"instructions": 900, "dispatches": 3, "syncs": 2},
    {"instructions": 688, "dispatches": 3, "syncs": 1},
    us=46.0,
    change=Interval(0.911, 0.905, 0.917),
)
KEPT = Verified("a.py:3:1 DG609", kept=True, tests=7, gains=(GAIN,), files=("a.py",))


def test_a_gain_is_told_in_one_line() -> None:
    assert told(KEPT) == (
        "\u2212212 instructions, \u22124.1 µs ±0.3 of 46 µs, 1 wait fewer; tests as before"
    )


@pytest.mark.parametrize(
    ("gain", "said"),
    [
        (Gain("f", {"instructions": 9}, {"instructions": 10}), "+1 instruction"),
        (Gain("f", {"dispatches": 9}, {"dispatches": 7}), "\u22122 dispatches"),
        (Gain("f", {"syncs": 1}, {"syncs": 3}), "2 waits more"),
        (Gain("f", {"syncs": 1}, {"syncs": 1}), "1 wait as before"),
        (
            Gain("f", {"instructions": 9}, {"instructions": 8}, ("instructions",)),
            "instructions vary",
        ),
        (Gain("f", {}, {}), "nothing changed"),
        (
            Gain("f", {}, {}, us=2.0, change=Interval(1, 0.9, 1.1)),
            "+0.0 µs ±0.2 of 2.0 µs (undecided)",
        ),
        (Gain("f", {}, {}, note="waits are not known: x"), "(waits are not known: x)"),
    ],
)
def test_what_moved_is_told(gain: Gain, said: str) -> None:
    assert gained(gain) == said


def test_why_a_change_is_not_kept_comes_first() -> None:
    failed = Verified("p", kept=False, reason="test_a failed, passed before", tests=3)
    assert told(failed) == "test_a failed, passed before"
    dearer = Verified("p", kept=False, reason="dearer", gains=(GAIN, GAIN))
    assert told(dearer).startswith("dearer; layer(x): \u2212212 instructions")


@pytest.mark.parametrize("form", FORMATS)
def test_each_format_has_all_changes(form: str) -> None:
    other = Verified("odd|\x1b[31m\nname", kept=False, reason="`x` | y")
    found = Verification((KEPT, other), KEPT, ("a note",), ("a.py",))
    text = render(found, form, {"python": "3.11"}, color=False)
    if form == "json":
        assert [change["kept"] for change in json.loads(text)["changes"]] == [True, False]
        return
    assert "\x1b" not in text
    assert "1 of 2 changes kept" in text
    assert "all kept together" in text
    assert "a note" in text
    assert "applied to a.py" in text
    if form == "markdown":
        rows = [line for line in text.splitlines() if line.startswith("| ")]
        assert len(rows) == 5
    else:
        assert "\x1b[32mkept" in render(found, form, {}, color=True)
