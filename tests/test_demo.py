"""The project that `make demo` lints is real code: it runs, trains, saves and loads."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
]


def run(demo: Path, *arguments: str) -> str:
    result = subprocess.run(
        [sys.executable, *arguments],
        cwd=demo,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(demo), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_demo_passes_its_own_tests(root: Path) -> None:
    said = run(
        root / "fixtures" / "demo",
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "pyproject.toml", "tests"),
    )
    assert "passed" in said
    assert "skipped" not in said


def test_demo_trains(root: Path) -> None:
    first, last = map(float, run(root / "fixtures" / "demo", "-m", "minilayers").split()[-3::2])
    assert last < first
