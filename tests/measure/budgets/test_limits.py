"""Limits come from markers and settings, and wrong ones say what to write."""

from __future__ import annotations

import pytest

from pytest_dispatchguard.measure.budgets.limits import limits_for, limits_of
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.verdicts import Limit


def test_numbers_and_tolerances() -> None:
    assert limits_of({"instructions": (400, 10), "dispatches": 1}, "here") == {
        "instructions": Limit("instructions", 400, 10),
        "dispatches": Limit("dispatches", 1),
    }
    assert Limit("instructions", 400, 10).most == 410


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"instruction": 1}, 'did you mean "instructions"'),
        ({"dispatches": "1"}, "must be a number"),
        ({"dispatches": True}, "must be a number"),
        ({"dispatches": -1}, "must be a number"),
        ({"dispatches": float("nan")}, "must be a number"),
        ({"dispatches": (1, 2, 3)}, "a number and a tolerance"),
        ({"dispatches": None}, "must be a number"),
    ],
)
def test_wrong_limits_are_told(given: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        limits_of(given, "here")


def test_the_nearest_marker_and_then_the_settings_win() -> None:
    markers = [((), {"dispatches": 3, "py_calls": 5}), ((), {"dispatches": 2})]
    settings = [("tests/*::test_a*", {"py_calls": 4}), ("other*", {"dispatches": 9})]
    found = limits_for("tests/t.py::test_a[4-x]", markers, settings, "overhead_budget")
    assert {name: limit.value for name, limit in found.items()} == {"dispatches": 2, "py_calls": 4}


def test_brackets_in_globs_are_brackets() -> None:
    settings = [("t.py::test_a[[]4]", {"dispatches": 1}), ("t.py::test_a[4]", {"py_calls": 1})]
    found = limits_for("t.py::test_a[4]", [], settings, "overhead_budget")
    assert set(found) == {"py_calls"}


def test_positional_limits_are_refused() -> None:
    with pytest.raises(UserError, match="by name"):
        limits_for("t.py::test", [((1,), {})], [], "overhead_budget")
