"""From `--overhead-record` to findings: real pytest runs, and the linter over what they left."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from .. import started

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

LIBRARY = """\
import torch


class Gate(torch.nn.Module):
    def forward(self, x: torch.Tensor, mask=None, scale: torch.Tensor = None):
        if scale:
            x = x * scale
        return self.masked(x, mask)

    def masked(self, x, mask):
        if mask:
            x = -x
        return x
"""
SUITE = """\
import torch
from library import Gate

def test_gate():
    for _ in range(3):
        Gate()(torch.ones(3), torch.tensor(True), 2.0)
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyprojecttoml("[tool.dispatchguard]\n")
    pytester.makepyfile(library=LIBRARY, test_gate=SUITE)
    return pytester


def check(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return started.dispatchguard(folder, "check", *words)


def found(folder: Path) -> dict[str, dict[str, Any]]:
    """Sure findings by their lines."""
    report = json.loads(check(folder, "--format", "json", "library.py").stdout)
    lines = LIBRARY.split("\n")
    return {lines[f["line"] - 1].strip(): f for f in report["findings"]}


def test_what_was_seen_settles_what_reading_leaves_open(
    suite: pytest.Pytester, run_pytest: Any
) -> None:
    before = found(suite.path)
    assert "if scale:" in before and "if mask:" not in before
    result = run_pytest("--overhead-record")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*profile.json now has 3 functions*"])
    after = found(suite.path)
    assert list(after) == ["if mask:"]
    assert after["if mask:"]["certainty"] == "sure"
    assert after["if mask:"]["hot"]["seen"] == 1
    assert "(seen: 1 call per forward)" in check(suite.path, "library.py").stdout
    assert check(suite.path, "--no-cache").stdout == check(suite.path).stdout


def test_a_profile_that_is_stale_is_used_for_what_still_matches(
    suite: pytest.Pytester, run_pytest: Any
) -> None:
    run_pytest("--overhead-record").assert_outcomes(passed=1)
    library = suite.path / "library.py"
    library.write_text(LIBRARY.replace("x = x * scale", "x = scale * x"))
    done = check(suite.path)
    assert "1 of 3 recorded functions have changed since" in done.stderr + done.stdout
    after = found(suite.path)
    assert "if scale:" in after  # what was seen of forward is forgotten
    assert after["if mask:"]["certainty"] == "sure"  # what was seen of masked is not


@pytest.mark.thorough
def test_runs_add_up_also_those_of_several_processes(
    suite: pytest.Pytester, run_pytest: Any
) -> None:
    pytest.importorskip("xdist", reason="shares tests among processes")
    suite.makepyfile(test_more=SUITE)
    run_pytest("--overhead-record", "-n", "2").assert_outcomes(passed=2)
    run_pytest("--overhead-record").assert_outcomes(passed=2)
    profile = json.loads((suite.path / ".dispatchguard" / "profile.json").read_text())
    assert profile["files"]["library.py"]["Gate.forward"]["calls"] == 12
    assert (suite.path / ".dispatchguard" / ".gitignore").read_text() == "*\n"
    (suite.path / "test_more.py").unlink()
    run_pytest("--overhead-record").assert_outcomes(passed=1)
    profile = json.loads((suite.path / ".dispatchguard" / "profile.json").read_text())
    assert "test_more.py" not in profile["files"]


@pytest.mark.parametrize("text", ["{", '{"dispatchguard-profile": 99}'])
def test_a_broken_profile_is_one_line(suite: pytest.Pytester, run_pytest: Any, text: str) -> None:
    folder = suite.path / ".dispatchguard"
    folder.mkdir()
    (folder / "profile.json").write_text(text)
    result = run_pytest("--overhead-record")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*profile.json is no profile*delete it, and record anew*"])
    assert (folder / "profile.json").read_text() == text
    done = check(suite.path)
    assert done.returncode == 2
    assert done.stderr.startswith("dispatchguard: ") and done.stderr.count("\n") == 1


def test_a_run_that_sees_nothing_keeps_what_is_there(
    suite: pytest.Pytester, run_pytest: Any
) -> None:
    run_pytest("--overhead-record", "-k", "nothing")
    assert not (suite.path / ".dispatchguard" / "profile.json").exists()
    run_pytest("--overhead-record").assert_outcomes(passed=1)
    before = (suite.path / ".dispatchguard" / "profile.json").read_bytes()
    run_pytest("--overhead-record", "-k", "nothing")
    assert (suite.path / ".dispatchguard" / "profile.json").read_bytes() == before


def test_the_setting_records_too_and_budgets_go_on(suite: pytest.Pytester, run_pytest: Any) -> None:
    suite.makeini("[pytest]\noverhead_record = true\n")
    suite.makepyfile(
        test_budget="""
        import library, torch

        def test_counted(overhead):
            overhead(library.Gate(), torch.ones(3))
        """
    )
    run_pytest("--overhead-budget=count").assert_outcomes(passed=2)
    profile = json.loads((suite.path / ".dispatchguard" / "profile.json").read_text())
    assert "Gate.forward" in profile["files"]["library.py"]


def test_programs_are_recorded(suite: pytest.Pytester) -> None:
    (suite.path / "go.py").write_text(
        "import os, torch\nfrom library import Gate\nGate()(torch.ones(3), "
        "torch.tensor(True))\nos._exit(3)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest_dispatchguard", "run", "--record", "go.py"],
        cwd=suite.path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "profile.json now has 2 functions" in done.stderr
    assert "if mask:" in found(suite.path)
