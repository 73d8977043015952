"""Processes of pytest-xdist that end before they could tell: what is missing is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("xdist", reason="shares tests among processes")

pytestmark = pytest.mark.without_torch

CRASHES = """
import os
from library import forward

def test_first():
    forward(1)

def test_crashes():
    os._exit(0)

def test_last():
    forward(1)
"""
CRASHES_AT_THE_END = """
import os
import pytest
from library import forward

@pytest.fixture(scope="session", autouse=True)
def ends_badly():
    yield
    os._exit(0)

def test_first():
    forward(1)
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyprojecttoml("[tool.dispatchguard]\n")
    pytester.makepyfile(library="def forward(x):\n    return x\n")
    return pytester


def test_a_report_of_what_was_seen_says_what_is_missing(
    project: pytest.Pytester, run_pytest: Any
) -> None:
    project.makepyfile(test_crashes=CRASHES)
    result = run_pytest("--overhead-lint", "--overhead-record", "-n", "1")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    said = "gw0 ended before it could tell: 2 tests that ran there left no record"
    result.stdout.fnmatch_lines(
        ["Nothing found, but the run is incomplete.*", f"note: {said}", f"warning: {said}"],
        consecutive=False,
    )
    result.stdout.no_fnmatch_line("*All clear*")
    run_pytest("--overhead-lint=json", "--overhead-lint-output=out.json", "-n", "1")
    summary = json.loads((project.path / "out.json").read_text())["summary"]
    assert summary["missing"] == [{"worker": "gw0", "tests": 2}] and said in summary["notes"]


@pytest.mark.parametrize("option", ["--overhead-lint", "--overhead-record"])
def test_a_process_that_ends_after_its_tests_fails_the_run(
    project: pytest.Pytester, run_pytest: Any, option: str
) -> None:
    project.makepyfile(test_crashes=CRASHES_AT_THE_END)
    result = run_pytest(option, "-n", "1")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["*gw0 ended before it could tell: 1 test that ran there left no record"]
    )


def test_verdicts_say_what_is_missing(project: pytest.Pytester, run_pytest: Any) -> None:
    # In pytest's own process: a crash while a test is counted costs that test alone.
    setting_up = """
    import os
    import pytest

    def test_counted(overhead):
        overhead(len, "abc")

    def test_crashes():
        os._exit(0)
    """
    project.makepyfile(test_crashes=setting_up)
    result = run_pytest("--overhead-budget=count", "--overhead-json=out.json", "-n", "1")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    said = "gw0 ended before it could tell: 1 test that ran there left no record"
    result.stdout.fnmatch_lines([f"warning: no verdict: {said}"])
    told = json.loads((project.path / "out.json").read_text())
    assert told["missing"] == [{"worker": "gw0", "tests": 1}]
    assert [row["verdict"] for row in told["tests"]] == ["pass"]
