"""Verdicts as a table, and as JSON."""

from __future__ import annotations

import json

from pytest_dispatchguard.model import Limit, Verdict
from pytest_dispatchguard.report.verdicts import as_json, plain_lines, table_of

CHEAP = Verdict("t.py::test_a", "f", "pass", {"instructions": 5, "dispatches": 1})
DEAR = Verdict("t.py::test_b[4-x]", "g", "pass", {"instructions": 900, "dispatches": 12})
OVER = Verdict(
    "t.py::test_a",
    "named so",
    "fail",
    {"instructions": 42, "dispatches": 1},
    (Limit("instructions", 10, 2), Limit("dispatches", 1)),
    "instructions: 42, allowed 10 + 2",
)


def test_what_fails_comes_first_and_then_what_is_dear() -> None:
    assert plain_lines(table_of([CHEAP, DEAR, OVER])) == [
        "test                     instructions  dispatches  verdict",
        "t.py::test_a (named so)   42 / 10 + 2       1 / 1  fail",
        "t.py::test_b[4-x]                 900          12  pass",
        "t.py::test_a (f)                    5           1  pass",
    ]


def test_a_counter_that_one_test_lacks_is_left_empty() -> None:
    lines = plain_lines(
        table_of([CHEAP, Verdict("t.py::test_c", "h", "pass", {"instructions": 1})])
    )
    assert lines[-1].split() == ["t.py::test_c", "1", "pass"]


def test_json_is_the_same_whatever_the_order() -> None:
    machine = {"python": "3.12.1"}
    text = as_json([CHEAP, DEAR, OVER], machine)
    assert text == as_json([OVER, CHEAP, DEAR], machine)
    told = json.loads(text)
    assert (told["schema"], told["machine"]) == (1, machine)
    assert [row["subject"] for row in told["tests"]] == ["f", "named so", "g"]
    assert told["tests"][1]["limits"] == {"instructions": [10, 2], "dispatches": 1}
    assert told["tests"][1]["ratio"] is None
