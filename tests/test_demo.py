"""The project that `make demo` shows is real code: it runs, trains, and keeps one of its two budgets."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
]


@pytest.fixture
def run(root: Path, tmp_path: Path, python: Run) -> Callable[..., str]:
    """Runs a module in a copy of the project; what it says."""
    demo = tmp_path / "demo"
    shutil.copytree(
        root / "fixtures" / "demo", demo, ignore=shutil.ignore_patterns("__pycache__", ".*")
    )
    paths = [str(demo), *filter(None, [os.environ.get("PYTHONPATH")])]

    def run(*words: str, status: int = 0) -> str:
        result = python(*words, folder=demo, PYTHONPATH=os.pathsep.join(paths))
        assert result.returncode == status, result.stdout + result.stderr
        return result.stdout

    return run


@pytest.mark.thorough
def test_demo_passes_its_own_tests(run: Callable[..., str], plugin_flags: tuple[str, ...]) -> None:
    said = run(
        *("pytest", "-q", "-p", "no:cacheprovider", "-c", "pyproject.toml", "tests"),
        *plugin_flags,
    )
    assert "passed" in said
    assert "skipped" not in said


def test_demo_trains(run: Callable[..., str]) -> None:
    first, last = map(float, run("minilayers").split()[-3::2])
    assert last < first


def test_demo_keeps_one_budget_and_exceeds_another(
    run: Callable[..., str], plugin_flags: tuple[str, ...]
) -> None:
    said = run(
        *("pytest", "-q", "-p", "no:cacheprovider", "tests/test_budgets.py"),
        *("--overhead-budget", *plugin_flags),
        status=1,
    )
    assert "1 failed, 1 passed" in said
    failure = said.partition("test_add")[2]
    assert "add costs more than its budget allows" in failure
    assert re.search(r"instructions: \d+, allowed 60", failure)
    assert re.search(r"ratio: [\d.]+ \([\d.]+ to [\d.]+\), allowed 2\n", failure)
    assert re.search(r"^ +\d+  \S+\.py:\d+ +\S", failure, re.MULTILINE), "no lines are shown"


def test_the_script_goes_on_without_torch(root: Path, tmp_path: Path) -> None:
    """What `make demo` runs, with commands that stand in for an environment without torch."""
    for name, body in {
        "dispatchguard": f'[ "$1" = hot ] || exit 1; "{sys.executable}" -m pytest_dispatchguard "$@"',
        "python": "exit 1",
    }.items():
        command = tmp_path / name
        command.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        command.chmod(0o755)
    done = subprocess.run(
        ["sh", str(root / "fixtures" / "demo" / "demo.sh")],
        env={**os.environ, "BIN": str(tmp_path)},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("torch is not installed")


@pytest.mark.thorough
def test_demo_waits_where_reading_it_only_says_perhaps(run: Callable[..., str]) -> None:
    command = "pytest_dispatchguard.cli"
    read = run(command, "check", "--notes", "--no-cache", ".", status=1)
    assert "35:40 DG411 `y.mean().item()`" in read.partition("Notes: ")[2]
    ran = run(command, "run", "--ghost", "-m", "minilayers", "cuda", status=1)
    # What ran is told in the words, and from 3.11 on at the place, of what was read.
    assert re.search(
        r"layers\.py:35:\d+ DG411 `.*y\.mean\(\)\.item\(\).*` made the host wait 240 times", ran
    )
    assert ("layers.py:35:40 " in ran) is (sys.version_info >= (3, 11))
