"""The history told: all tests, one test from run to run, the commit that moved a counter."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.model.history import Checkout, Culprit, Kept, Point, Run, Trend, Tried
from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.report.budgets import history as report

HERE = {"cpu": "a cpu", "python": "3.11.7", "torch": "2.13.0"}


def point(
    number: int, instructions: int | None, ratio: float | Interval | None = None, **said: Any
) -> Point:
    checkout = Checkout(f"{number}" * 40, "main", said.pop("dirty", False))
    run = Run(f"2026-01-{number:02}T12:30:00.000000Z", said.pop("machine", HERE), checkout)
    counters = {} if instructions is None else {"instructions": instructions, "dispatches": 1}
    if isinstance(ratio, float):
        ratio = Interval(ratio, ratio - 0.1, ratio + 0.1)
    kept = {"node_id": "t.py::test_add", "subject": "add", "verdict": "pass", "ratio": ratio}
    return Point(run, Kept(**{**kept, "counters": counters, **said}))


def told(*points: Point, width: int = 100) -> list[str]:
    return report.trends_as_text([Trend(points)], width=width).splitlines()


def test_a_trend_is_a_chart_with_what_moved_where() -> None:
    lines = told(point(1, 14, 1.2), point(2, 14, 1.2), point(3, 35, 1.6, verdict="fail"))
    assert lines[:2] == [
        "t.py::test_add  add",
        "ratio 1.100 to 1.700 in 3 runs; a cpu, python 3.11.7, torch 2.13.0",
    ]
    assert lines[5:] == ["  ▲ instructions 14 → 35 at 333333333"]
    for line, number, verdict in zip(lines[2:5], (1, 2, 3), ("pass", "pass", "fail"), strict=True):
        assert line.startswith(f"2026-01-0{number} 12:30  {str(number) * 9} main  1.")
        assert line.endswith(verdict)
    assert lines[2].index("●") == lines[3].index("●") < lines[4].index("├") < lines[4].index("●")


def test_without_times_a_counter_that_moved_is_drawn() -> None:
    more = {"instructions": 14, "dispatches": 2}
    lines = told(point(1, 14), point(2, 14, counters=more))
    assert lines[1].startswith("dispatches 1 to 2 in 2 runs")
    assert lines[2].index("●") < lines[3].index("●")
    assert lines[4] == "  ▲ dispatches 1 → 2 at 222222222"


def test_what_was_not_counted_is_passed_over() -> None:
    lines = told(point(1, 14), point(2, None, verdict="skipped"), point(3, 15))
    assert lines[3].endswith("skipped") and "●" not in lines[3]
    assert lines[-1] == "  ▲ instructions 14 → 15 at 333333333"


def test_other_versions_are_told_and_move_nothing() -> None:
    newer = {**HERE, "torch": "2.14.0"}
    lines = told(point(1, 14), point(2, 16, machine=newer), point(3, 17, machine=newer))
    assert lines[3] == "from here on: a cpu, python 3.11.7, torch 2.14.0"
    assert [line for line in lines if "▲" in line] == ["  ▲ instructions 16 → 17 at 333333333"]


def test_another_processor_is_told_and_counters_still_hold() -> None:
    lines = told(point(1, 14), point(2, 16, machine={**HERE, "cpu": "another"}))
    assert lines[3].startswith("from here on: another")
    assert lines[-1].startswith("  ▲ instructions 14 → 16")


def test_what_was_not_committed_is_marked() -> None:
    lines = told(point(1, 14), point(2, 15, dirty=True))
    assert "222222222+ main" in lines[3]
    assert lines[4].endswith("at 222222222 and what was not committed")
    assert lines[5] == "+: with changes that were not committed"


def test_an_end_that_nobody_knows_is_open() -> None:
    wide = Interval(1.5, -math.inf, math.inf)
    lines = told(point(1, 14, 1.2), point(2, 14, ratio=wide))
    assert "1.500 (? to ?)" in lines[3]
    assert "├" not in lines[3] and "┤" not in lines[3] and "●" in lines[3]


_INTERVALS = st.none() | st.builds(
    lambda value, below, above: Interval(value, value - below, value + above),
    st.floats(0, 1e9),
    st.floats(0, 1e9) | st.just(math.inf),
    st.floats(0, 1e9) | st.just(math.inf),
)


@given(st.lists(_INTERVALS, min_size=1, max_size=6), st.integers(20, 200))
def test_every_figure_has_its_place(figures: Sequence[Interval | None], width: int) -> None:
    points = [point(1, 5, ratio=figure) for figure in figures]
    lines = told(*points, width=width)[2:]
    assert len(lines) == len(figures)
    if any(figures):
        assert ["●" in line for line in lines] == [figure is not None for figure in figures]
    assert len({len(line) for line in lines}) == 1


def test_all_tests_are_a_table() -> None:
    known = [
        (point(3, 14, 1.25), 12),
        (point(3, None, verdict="error", node_id="t.py::test_mul", subject="a"), 3),
        (point(3, 5, node_id="t.py::test_mul", subject="b"), 3),
    ]
    assert report.tests_as_text(known).splitlines() == [
        "test                runs  last run          revision        ratio  instructions  verdict",
        "t.py::test_add        12  2026-01-03 12:30  333333333 main  1.250            14  pass",
        "t.py::test_mul (a)     3  2026-01-03 12:30  333333333 main                       error",
        "t.py::test_mul (b)     3  2026-01-03 12:30  333333333 main                    5  pass",
    ]
    assert report.tests_as_text([]) == "no test is in the history\n"


def test_colour_is_asked_for() -> None:
    trend = [Trend((point(1, 14, 1.2, verdict="fail"),))]
    assert "\x1b[" in report.trends_as_text(trend, color=True)
    assert "\x1b[" not in report.trends_as_text(trend)


def test_json_has_all_figures() -> None:
    trend = Trend((point(1, 14, 1.2), point(2, 15, ratio=Interval(1.0, -math.inf, 2.0))))
    whole = json.loads(report.trends_as_json([trend]))
    assert whole["schema"] == 1
    (test,) = whole["tests"]
    assert (test["nodeid"], test["subject"]) == ("t.py::test_add", "add")
    first, second = test["runs"]
    assert first["moved"] == {} and second["moved"] == {"instructions": [14, 15]}
    assert second["ratio"] == {"value": 1.0, "low": None, "high": 2.0}
    assert second["revision"] == "2" * 40 and second["machine"] == HERE
    (row,) = json.loads(report.tests_as_json([(trend.points[1], 2)]))["tests"]
    assert row["number"] == 2
    assert row["last"] == {name: value for name, value in second.items() if name != "moved"}


def test_the_commit_that_moved_a_counter() -> None:
    tried = (Tried("a" * 40, 14), Tried("b" * 40, 35), Tried("c" * 40, None))
    where = ("t.py::test_add", "add", "instructions", 14, 35)
    found = Culprit(*where, "b" * 40, "A", "2026-01-02", "Add checks", tried)
    assert report.culprit_as_text(found).splitlines() == [
        "bbbbbbbbbbbb moved instructions of t.py::test_add (add): 14 → 35",
        "  2026-01-02  A",
        "  Add checks",
        "measured at 3 commits:",
        "  aaaaaaaaaaaa  14",
        "  bbbbbbbbbbbb  35",
        "  cccccccccccc  not counted",
    ]
    culprit = json.loads(report.culprit_as_json(found))["culprit"]
    assert culprit["nodeid"] == "t.py::test_add" and culprit["commit"] == "b" * 40
    uncounted = {"commit": "c" * 40, "number": None, "change": None, "reason": ""}
    assert culprit["tried"][2] == uncounted and culprit["change"] is None
    assert [culprit[name] for name in ("before", "now")] == [14, 35]


def test_the_commit_that_changed_the_time() -> None:
    change, wide = Interval(1.5, 1.4, 1.6), Interval(1.2, -math.inf, 1.5)
    tried = (
        Tried("b" * 40, 3.0, change),
        Tried("c" * 40, None, reason="there is no such test"),
        Tried("d" * 40, 2.4, wide, "too uncertain to decide"),
    )
    about = ("A", "2026-01-02", "Add checks", tried, change, "a" * 40)
    found = Culprit("t.py::test_add", "add", "time", 2.0, 3.0, "b" * 40, *about)
    head, *rest = report.culprit_as_text(found).splitlines()
    took = "2.00 µs → 3.00 µs, 1.500 times (1.400 to 1.600)"
    assert head == f"bbbbbbbbbbbb changed the time of t.py::test_add (add): {took}"
    assert rest == [
        "  2026-01-02  A",
        "  Add checks",
        "compared with aaaaaaaaaaaa by turns, at 3 commits:",
        "  bbbbbbbbbbbb  3.00 µs  1.500 times (1.400 to 1.600)",
        "  cccccccccccc  not timed: there is no such test",
        "  dddddddddddd  2.40 µs  1.200 times (? to 1.500): too uncertain to decide",
    ]
    culprit = json.loads(report.culprit_as_json(found))["culprit"]
    assert culprit["change"] == {"value": 1.5, "low": 1.4, "high": 1.6}
    assert culprit["tried"][2]["change"] == {"value": 1.2, "low": None, "high": 1.5}
    assert (culprit["counter"], culprit["before"], culprit["good"]) == ("time", 2.0, "a" * 40)
