"""Saved runs in real pytest runs: how much of a difference is of the machine, and what cannot be told."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pyperf
import pytest

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "schemas" / "dispatchguard-verdicts.json").read_text())

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="times are not measured on Windows"),
    pytest.mark.without_torch,
]

SUBJECTS = """
def work(n):
    found = {}
    for i in range(n):
        found[i] = str(i)
    return sorted(found.values())
"""
SUITE = """
import pytest
from subjects import work

@pytest.mark.overhead_budget(regression=2.0)
def test_much(overhead):
    overhead(work, 20)

@pytest.mark.overhead_budget(regression=1.1)
def test_little(overhead):
    overhead(work, 20)
"""
BUDGET = ("--overhead-budget", "--overhead-max-time=1")


@pytest.fixture
def saved(
    pytester: pytest.Pytester, run_pytest: Callable[..., pytest.RunResult]
) -> Callable[..., pytest.RunResult]:
    """Runs pytest with a saved run."""
    pytester.makepyfile(test_suite=SUITE, subjects=SUBJECTS)
    run_pytest(*BUDGET, "--overhead-save=then").assert_outcomes(passed=2)

    def compare(*words: str) -> pytest.RunResult:
        return run_pytest(
            *BUDGET, "--overhead-compare=then", "--overhead-json=out.json", "-rA", *words
        )

    return compare


def file_of(pytester: pytest.Pytester) -> Path:
    return pytester.path / ".dispatchguard" / "runs" / "then.json"


def told(pytester: pytest.Pytester) -> dict[str, Any]:
    whole = json.loads((pytester.path / "out.json").read_text())
    jsonschema.validate(whole, SCHEMA)
    return {row["nodeid"].rpartition("::")[2]: row for row in whole["tests"]}


def changed(file: Path, times: Callable[[str, Any], Any]) -> None:
    """Changes every value of a saved run."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: times(k, walk(v)) for k, v in value.items() if times(k, v) is not None}
        return [walk(one) for one in value] if isinstance(value, list) else value

    file.write_text(json.dumps(walk(json.loads(file.read_text()))))


def quicker(name: str, value: Any) -> Any:
    """The run of a day on which all took a third less: this day is slower by half. A machine that wanders
    while it measures does not make up for that."""
    if name == "values":
        return [one / 1.5 for one in value]
    if name.startswith("control_") and not isinstance(value, (dict, list)):
        return value / 1.5
    return value


def test_the_same_day_is_decided_and_a_slower_one_refused(
    pytester: pytest.Pytester, saved: Callable[..., pytest.RunResult]
) -> None:
    suite = pyperf.BenchmarkSuite.load(str(file_of(pytester)))
    for benchmark in suite:
        for run in benchmark.get_runs():
            assert 0.5 < run.get_metadata()["control_tree_us"] < 500
    result = saved()
    rows = told(pytester)
    base = rows["test_much"]["base"]
    # In a slow moment the interval reaches beyond the limit.
    decided = base["change"]["high"] <= 2.0
    assert rows["test_much"]["verdict"] == ("pass" if decided else "undecided")
    assert base["change"]["low"] < 2.0 and rows["test_little"]["verdict"] != "fail"
    assert base["earlier"] and base["other"] == []
    assert {"tree", "attributes"} <= base["pace"]["each"].keys()
    assert base["pace"]["subject"] == base["change"]
    result.stdout.fnmatch_lines(["control calls take * times*what they took in then: that much *"])
    changed(file_of(pytester), quicker)
    result = saved("--overhead-undecided=fail", "--overhead-report=report.md")
    rows = told(pytester)
    pace = rows["test_little"]["base"]["pace"]["change"]
    assert (
        pace["low"] < 1.5 * 1.5 and pace["high"] > 1.0
    )  # a third quicker then, and moments differ
    if pace["value"] > 1.1:  # else the machine became quicker by as much, just now
        assert rows["test_little"]["verdict"] == "undecided"
        wording = r"the machine alone differs by \d+%: measure base and head in one run with --overhead-ag"
        assert re.search(wording, rows["test_little"]["reason"])
    report = (pytester.path / "report.md").read_text()
    for text in (result.stdout.str(), report):
        assert re.search(
            r"control calls take \d\.\d+ times what they took in then \(.*the subject's times are "
            "divided by it",
            text,
        )
    assert re.search(r"control calls take \d\.", report.split("####")[0])


@pytest.mark.thorough
def test_a_slowdown_beyond_what_the_machine_makes_fails(
    pytester: pytest.Pytester, saved: Callable[..., pytest.RunResult]
) -> None:
    (pytester.path / "subjects.py").write_text(SUBJECTS.replace("range(n)", "range(5 * n)"))
    saved().assert_outcomes(failed=2)
    assert told(pytester)["test_much"]["base"]["change"]["low"] > 2


@pytest.mark.thorough
def test_a_run_without_control_calls_is_told_as_that(
    pytester: pytest.Pytester, saved: Callable[..., pytest.RunResult]
) -> None:
    changed(file_of(pytester), lambda name, v: None if name.startswith("control_") else v)
    result = saved()
    rows = told(pytester)
    assert {row["verdict"] for row in rows.values()} == {"undecided"}
    assert all(row["base"]["pace"] is None for row in rows.values())
    result.stdout.fnmatch_lines(["then has no control calls: how much of a difference in time *"])


@pytest.mark.thorough
def test_another_processor_is_told(
    pytester: pytest.Pytester, saved: Callable[..., pytest.RunResult]
) -> None:
    changed(file_of(pytester), lambda name, v: "Some CPU" if name == "cpu_model_name" else v)
    result = saved()
    (other,) = told(pytester)["test_much"]["base"]["other"]
    assert other.startswith("Some CPU, now ")
    assert "(Some CPU, now " in result.stdout.str()
    assert told(pytester)["test_much"]["verdict"] == "undecided"
