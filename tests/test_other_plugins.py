"""Budgets in suites that also use pytest-randomly and pytest-benchmark, as pip installs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="times are not measured on Windows"),
]

SUITE = """
import random

import pytest


def quick(x):
    return x


@pytest.mark.overhead_budget(ratio=3.0, py_calls=1)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_kept(overhead, n):
    overhead(quick, n).against(quick, n)


@pytest.mark.overhead_budget(py_calls=0)
def test_exceeded(overhead):
    overhead(quick, random.random()).against(quick, 1).unchecked()


@pytest.mark.parametrize("n", [4, 5, 6])
def test_timed_by_another(benchmark, n):
    assert benchmark(quick, n) == n
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that has both plugins."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    names = ["pytest-randomly", "pytest-benchmark", "py-cpuinfo"]
    done = subprocess.run(
        [*pip, "--no-deps", "--target", str(folder), *names], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"pip cannot install here: {done.stderr.strip()[-200:]}")
    return folder


@pytest.fixture
def run(
    site: Path,
    pytester: pytest.Pytester,
    plugin_flags: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    # Where these tests run under xdist, pytest-benchmark would take theirs for a part of it.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makepyfile(test_suite=SUITE)

    def started(*words: str) -> pytest.RunResult:
        flags = ("-p", "no:cacheprovider", "-v", "--benchmark-max-time=0.01")
        return pytester.runpytest_subprocess(*plugin_flags, *flags, *words)

    return started


def order(result: pytest.RunResult) -> list[str]:
    """The tests, as they ran."""
    return [line.split()[0] for line in result.outlines if line.startswith("test_suite.py::")]


def rows(pytester: pytest.Pytester) -> dict[str, dict[str, Any]]:
    told = json.loads((pytester.path / "out.json").read_text())
    return {row["nodeid"].partition("::")[2]: row for row in told["tests"]}


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["check", "count"])
def test_shuffled_tests_and_benchmarks_beside_budgets(
    pytester: pytest.Pytester, run: Any, mode: str
) -> None:
    flags = (f"--overhead-budget={mode}", "--overhead-json=out.json", "--overhead-max-time=1")
    orders, counts = set(), []
    for seed in (1, 2, 3):
        result = run(*flags, f"--randomly-seed={seed}")
        result.assert_outcomes(passed=6, failed=1)
        result.stdout.fnmatch_lines([f"Using --randomly-seed={seed}", "*benchmark: 3 tests*"])
        orders.add(tuple(order(result)))
        found = rows(pytester)
        assert {name: row["verdict"] for name, row in found.items()} == {
            "test_kept[1]": "pass",
            "test_kept[2]": "pass",
            "test_kept[3]": "pass",
            "test_exceeded": "fail",
        }
        assert (found["test_kept[1]"]["ratio"] is not None) == (mode == "check")
        counts.append({name: row["counters"] for name, row in found.items()})
    assert len(orders) > 1, "the tests were not shuffled"
    assert counts[0] == counts[1] == counts[2]


def test_without_the_option_all_are_ordinary_tests(run: Any) -> None:
    run("--randomly-seed=1").assert_outcomes(passed=7)
