"""Verdicts sorted and grouped."""

from __future__ import annotations

import pytest

from pytest_dispatchguard.model.measurements import Interval, Measurement
from pytest_dispatchguard.model.verdicts import Base, Verdict
from pytest_dispatchguard.report.budgets.sorting import GROUPS, in_groups, in_order


def about(us: float) -> Interval:
    return Interval(us, us, us)


def verdict(node_id: str, us: float | None = None, subject: str = "f", **counters: int) -> Verdict:
    measured = None if us is None else Measurement(about(us), about(1.0), about(us))
    return Verdict(node_id, subject, "pass", counters, measured=measured)


B4, B10 = verdict("t.py::A::test_b[4]", 2.0, instructions=7), verdict("t.py::A::test_b[10]", 3.0)
A = verdict("u.py::test_a", 1.0, instructions=9)
ODD = verdict("v.py::test_c[x::y[0]]", None)
ALL = [B10, ODD, B4, A]


@pytest.mark.parametrize(
    ("by", "order"),
    [
        ("name", [A, B4, B10, ODD]),
        ("fullname", [B4, B10, A, ODD]),
        ("subject_us", [B10, B4, A, ODD]),
        ("host_us", [B10, B4, A, ODD]),
        ("ratio", [B10, B4, A, ODD]),
        ("instructions", [A, B4, B10, ODD]),
        ("guard_us", [B10, B4, A, ODD]),
    ],
)
def test_the_order_is_the_one_that_is_asked_for(by: str, order: list[Verdict]) -> None:
    assert in_order(ALL, by) == order


def test_what_costs_more_than_its_base_comes_first() -> None:
    cheaper, dearer = (
        Verdict(name, "f", "pass", {}, base=Base("main", {}, None, change=about(change)))
        for name, change in (("a", 0.5), ("b", 1.5))
    )
    assert in_order([cheaper, dearer], "regression") == [dearer, cheaper]


@pytest.mark.parametrize(
    ("by", "label"),
    [
        ("name", "test_c[x::y[0]]"),
        ("func", "test_c"),
        ("fullname", "v.py::test_c[x::y[0]]"),
        ("fullfunc", "v.py::test_c"),
        ("file", "v.py"),
        ("param", "x::y[0]"),
        ("subject", "f"),
    ],
)
def test_labels(by: str, label: str) -> None:
    assert GROUPS[by](ODD) == label


def test_groups_are_in_the_order_of_their_labels() -> None:
    assert in_groups(ALL, ()) == [("", ALL)]
    assert in_groups(ALL, ("func", "param")) == [
        ("func=test_a param=", [A]),
        ("func=test_b param=4", [B4]),
        ("func=test_b param=10", [B10]),
        ("func=test_c param=x::y[0]", [ODD]),
    ]
