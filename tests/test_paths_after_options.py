"""Paths and node ids after options that need no value: they are paths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.pytest_run.options import with_paths

pytestmark = pytest.mark.without_torch

TWO = """
def test_x(overhead):
    overhead(len, "abc")

def test_y(overhead):
    overhead(len, "abc")
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    for name in ("tests/test_x.py", "check/test_in_check.py"):
        path = pytester.path / name
        path.parent.mkdir()
        path.write_text(TWO)
    (pytester.path / "tests" / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--of-tests')\n"
    )
    (pytester.path / "test_top.py").write_text("def test_top():\n    pass\n")
    return pytester


@pytest.mark.parametrize(
    ("words", "passed"),
    [
        (("--overhead-budget", "tests/test_x.py"), 2),
        (("--overhead-budget", "tests", "--of-tests=1"), 2),  # whose conftest file is read first
        pytest.param(
            ("--overhead-budget", "tests/test_x.py::test_y"), 1, marks=pytest.mark.thorough
        ),
        (("--overhead-budget=tests/test_x.py", "test_top.py"), 3),
        pytest.param(("-q", "--overhead-budget", "./check"), 2, marks=pytest.mark.thorough),
        (("--overhead-budget", "check", "tests"), 2),  # the mode, and one folder
        pytest.param(("--overhead-budget", "-k", "test_y"), 2, marks=pytest.mark.thorough),
        pytest.param(("--overhead-budget", "check/"), 2, marks=pytest.mark.thorough),
        pytest.param(
            ("--overhead-budget", "--overhead-history", "tests"), 2, marks=pytest.mark.thorough
        ),
        (("--overhead-budget", "tests", "-n", "1"), 2),
    ],
)
def test_what_is_no_mode_and_a_path_is_a_path(
    suite: pytest.Pytester, run_pytest: Any, words: tuple[str, ...], passed: int
) -> None:
    if "-n" in words:
        pytest.importorskip("xdist", reason="shares tests among processes")
    flags = ("--overhead-max-time=0.3", "--overhead-json=out.json")
    result = run_pytest(*words, *flags)
    result.assert_outcomes(passed=passed)
    rows = json.loads((suite.path / "out.json").read_text())["tests"]
    assert rows and all(row["verdict"] == "pass" and row["subject_us"] for row in rows)


def test_a_setting_in_front_of_paths(suite: pytest.Pytester, run_pytest: Any) -> None:
    suite.makeini("[pytest]\naddopts = --overhead-lint --overhead-budget\n")
    run_pytest("tests", "--overhead-max-time=0.3").assert_outcomes(passed=2)
    suite.makeini("[pytest]\noverhead_budget = tests\n")
    result = run_pytest()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*overhead_budget: 'tests' is none of check, update, count*"])


@pytest.mark.parametrize("word", ["chek", "tests2"])
def test_what_is_neither_is_told(suite: pytest.Pytester, run_pytest: Any, word: str) -> None:
    result = run_pytest("--overhead-budget", word)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = f"*--overhead-budget: '{word}' is neither a mode (check, update, count) nor a path*"
    result.stderr.fnmatch_lines([said])


def test_a_path_that_is_not_there_is_pytest_s_to_tell(
    suite: pytest.Pytester, run_pytest: Any
) -> None:
    result = run_pytest("--overhead-budget", "tests/test_gone.py")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: file or directory not found: tests/test_gone.py"])


def test_words_that_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (
        ["--overhead-budget=count", "tests/x.py"],
        ["--overhead-budget", "count", "a.py"],
        ["--overhead-history", "runs.sqlite"],
        ["--overhead-lint", "json"],
        ["--", "--overhead-budget", "a.py"],
        ["-k", "a", "a.py"],
    ):
        assert with_paths(words) == words
    assert with_paths(["--overhead-lint", "a.py"]) == ["--overhead-lint=text", "a.py"]
