"""Verdicts as a table, and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

from pytest_dispatchguard.model.compiled import Compiled, CompileEvent, Guards
from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.model.verdicts import Limit, Verdict
from pytest_dispatchguard.report.budgets.verdicts import (
    as_json,
    explained,
    plain_lines,
    table_of,
)

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


SCALE = Guards(
    "EQUALS_MATCH",
    "L['s'][0].scale",
    "L['s'][*].scale",
    3,
    "net.py:9 in f",
    "x * s",
    "L['s'][2].scale",
)
STATE = Guards("GLOBAL_STATE", "", "", 1)
COMPILED = Verdict(
    "t.py::test_c",
    "f",
    "fail",
    {"guards": 4, "graph_breaks": 1, "recompiles": 1, "fake_dispatches": 7},
    (Limit("guards", 2),),
    "guards: 4, allowed 2",
    compiled=Compiled(
        (SCALE, STATE),
        (CompileEvent("net.py:4", "a print"),),
        (CompileEvent("net.py:1 in f", "x grew"),),
        {"tracing": 0.5},
    ),
)


def test_guards_are_told_where_they_are_too_many() -> None:
    told = explained(COMPILED)
    assert "  its guards, by kind and source:\n" in told
    named = "EQUALS_MATCH of L['s'][0].scale … L['s'][2].scale  x * s  (net.py:9 in f)"
    assert f"        3  {named}" in told
    assert "a print" not in told and "x grew" not in told and "compiling takes" not in told
    assert "checking them" not in told
    timed = replace(COMPILED.compiled, guard_us=Interval(2.0, 1.5, 2.5))  # type: ignore[type-var]  # it is there
    told = explained(replace(COMPILED, compiled=timed))
    assert "  checking them takes 2.00 µs (1.50 to 2.50)" in told


def test_of_guards_those_that_the_base_has_not_are_told() -> None:
    groups = (replace(STATE, extra=0), replace(SCALE, extra=2))
    told = explained(replace(COMPILED, compiled=Compiled(groups)))
    assert "  guards that the base does not have:\n       +2  EQUALS_MATCH" in told
    assert "GLOBAL_STATE" not in told


def test_breaks_and_recompiles_are_told_where_they_are_too_many() -> None:
    told = explained(replace(COMPILED, reason="graph_breaks: 1, allowed 0"))
    assert "  graph breaks:\n    net.py:4: a print" in told and "x grew" not in told
    assert "compiling takes: tracing 0.50 s" in told and "its guards" not in told
    told = explained(replace(COMPILED, reason="recompiles: 1, allowed 0"))
    assert "  recompiles:\n    net.py:1 in f: x grew" in told and "a print" not in told


def test_what_compiling_takes_is_a_column_where_a_limit_asks() -> None:
    assert "fake_dispatches" not in table_of([COMPILED]).head
    limited = replace(COMPILED, limits=(Limit("fake_dispatches", 9),))
    assert "fake_dispatches" in table_of([limited]).head
