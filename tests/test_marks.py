"""`overhead_budget` on modules, classes and tests: limit by limit, the mark nearer to the test wins."""

from __future__ import annotations

import json
from typing import Any

import pytest

SUITE = """
import pytest

pytestmark = pytest.mark.overhead_budget(py_calls=5, c_calls=9)

def one(x):
    return x

def three(x):
    return one(one(x))

@pytest.mark.overhead_budget(py_calls=(2, 1), instructions=1000)
class TestClass:
    def test_of_the_class(self, overhead):
        overhead(three, 1)

    @pytest.mark.overhead_budget(py_calls=1)
    def test_of_its_own(self, overhead):
        overhead(three, 1)

    class TestInner:
        pytestmark = [pytest.mark.overhead_budget(c_calls=0)]

        def test_inner(self, overhead):
            overhead(three, 1)

    def test_without_a_subject(self):
        pass

@pytest.mark.overhead_budget(instructions=3, py_calls=4)
@pytest.mark.overhead_budget(instructions=2000)
def test_of_the_module(overhead):
    overhead(three, 1)

@pytest.mark.overhead_budget(py_calls=1)
@pytest.mark.parametrize(
    "x", [1, pytest.param(2, marks=pytest.mark.overhead_budget(py_calls=0))]
)
def test_of_one_parameter(overhead, x):
    overhead(one, x)
"""


def test_a_mark_nearer_to_the_test_wins(pytester: pytest.Pytester, run_pytest: Any) -> None:
    pytester.makepyfile(SUITE)
    result = run_pytest("--overhead-budget=count", "--overhead-json=out.json", "--strict-markers")
    result.assert_outcomes(passed=5, failed=2)
    rows = json.loads((pytester.path / "out.json").read_text())["tests"]
    limits = {row["nodeid"].rpartition("::")[2]: row["limits"] for row in rows}
    of_class = {"py_calls": [2, 1], "c_calls": 9, "instructions": 1000}
    assert limits == {
        "test_of_the_class": of_class,
        "test_of_its_own": {**of_class, "py_calls": 1},
        "test_inner": {**of_class, "c_calls": 0},
        "test_of_the_module": {"py_calls": 4, "c_calls": 9, "instructions": 2000},
        "test_of_one_parameter[1]": {"py_calls": 1, "c_calls": 9},
        "test_of_one_parameter[2]": {"py_calls": 0, "c_calls": 9},
    }
    failing = {row["nodeid"].rpartition("::")[2] for row in rows if row["verdict"] == "fail"}
    assert failing == {"test_of_its_own", "test_of_one_parameter[2]"}


def test_a_subject_that_no_mark_and_no_argument_tells_of(
    pytester: pytest.Pytester, run_pytest: Any
) -> None:
    pytester.makepyfile(
        """
        import os

        def test_asks_late(request):
            request.getfixturevalue("overhead")(os._exit, 0)
        """
    )
    result = run_pytest("--overhead-budget=count")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["a test that is measured names `overhead` among its arguments*"])
