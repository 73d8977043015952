"""What the README shows of a run is what that run says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest


def test_the_screenful_is_what_the_command_says(root: Path) -> None:
    readme = (root / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"```console\n\$ dispatchguard (check [^\n]*)\n(.*?)```\n", readme, re.DOTALL)
    assert shown is not None
    done = subprocess.run(
        [sys.executable, "-m", "pytest_dispatchguard", *shown[1].split(), "--no-cache"],
        cwd=root,
        env={**os.environ, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == shown[2]


@pytest.mark.thorough
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_the_proof_of_a_fix_is_what_the_command_says(root: Path) -> None:
    """But for the times, and for what the instructions are on this Python and torch."""
    readme = (root / "README.md").read_text(encoding="utf-8")
    shown = re.search(
        r"```console\n\$ cd (\S+)\n\$ dispatchguard (fix .*?\")\n(kept .*?)```\n", readme, re.DOTALL
    )
    assert shown is not None
    words = shlex.split(shown[2].replace("\\\n", " "))
    done = subprocess.run(
        [sys.executable, "-m", "pytest_dispatchguard", *words, "--no-cache"],
        cwd=root / shown[1],
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    figures = re.compile(
        r"[-+\u2212]?\d[\d,.]* (?:instructions|µs ±[\d.]+ of [\d.]+ µs)(?: \(undecided\))?"
    )
    told, expected = (figures.sub("N", text) for text in (done.stdout, shown[3]))
    assert told.splitlines()[0] == expected.splitlines()[0]
    assert told.splitlines()[1].startswith("not kept  minilayers/ops.py:40:11 DG501")
    assert told.splitlines()[2:] == expected.splitlines()[2:]
