"""Which side of a change a commit lies on, and where a history says that times moved."""

from __future__ import annotations

import math

import pytest

from pytest_dispatchguard.history.by_time import ends_in, side
from pytest_dispatchguard.model.history import Checkout, Kept, Point, Run
from pytest_dispatchguard.model.measurements import Interval


def about(value: float, width: float = 0.02) -> Interval:
    return Interval(value, value / (1 + width), value * (1 + width))


@pytest.mark.parametrize("whole", [2.0, 0.5])
def test_the_geometric_middle_parts_the_sides(whole: float) -> None:
    middle = math.sqrt(whole)
    assert side(about(1.0), about(whole)) is False
    assert side(about(whole), about(whole)) is True
    # Farther than the whole, or to the other side of none.
    assert side(about(whole**2), about(whole)) is True
    assert side(about(1 / whole), about(whole)) is False
    assert side(about(middle), about(whole)) is None
    assert side(about(middle ** (1 + 0.1)), about(whole)) is True
    assert side(about(middle ** (1 - 0.1)), about(whole)) is False
    assert side(Interval(whole, -math.inf, math.inf), about(whole)) is None


def point(
    commit: str, ratio: Interval | None, host: Interval | None = None, cpu: str = "a"
) -> Point:
    kept = Kept("t.py::test_a", "a", "pass", {}, ratio=ratio, host_us=host)
    return Point(Run("2026-01-01T00:00:00.0Z", {"cpu": cpu}, Checkout(commit, "main", False)), kept)


def test_a_history_says_where_times_moved() -> None:
    slow, fast = about(2.0), about(1.0)
    points = (point("1", fast), point("2", slow), point("3", fast), point("4", about(1.01)))
    assert ends_in(points) == ("2", "3")
    assert ends_in(points[:2]) == ("1", "2")
    assert ends_in(points[2:]) is None and ends_in(()) is None
    # Another machine has another pace, and one commit measured twice says nothing.
    assert ends_in((point("1", fast), point("2", slow, cpu="b"))) is None
    assert ends_in((point("1", fast), point("1", slow))) is None
    between = (point("1", fast), point("2", slow, cpu="b"), point("3", slow))
    assert ends_in(between) == ("1", "3")
    # Ratios tell first; where there is no reference, times do.
    assert ends_in((point("1", None, fast), point("2", None, slow))) == ("1", "2")
    assert ends_in((point("1", fast, fast), point("2", fast, slow))) is None
