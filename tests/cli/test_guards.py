"""`dispatchguard guards`, as users start it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

Run = Callable[..., "subprocess.CompletedProcess[str]"]

ROOT = Path(__file__).resolve().parents[2]
NET = """
import torch

print("imported")

class Net(torch.nn.Module):
    scale = 2.0

    def __init__(self):
        super().__init__()
        self.shift = 1.5

    def forward(self, x):
        return x * self.scale + self.shift
"""
SETUP = "import torch, net; f = torch.compile(net.Net(), backend='eager'); x = torch.ones(4)"


@pytest.fixture
def run(python: Run) -> Run:
    def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        given = {"PYTHONPATH": os.pathsep.join(paths)}
        return python("pytest_dispatchguard.cli", "guards", *words, folder=folder, **given)

    return run


@pytest.mark.compiles
def test_json_is_all_that_is_written(tmp_path: Path, run: Run) -> None:
    pytest.importorskip("torch", reason="code on torch runs")
    (tmp_path / "net.py").write_text(NET)
    done = run(tmp_path, "f(x)", "--setup", SETUP, "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    groups = {
        group["name"]: group for function in found["functions"] for group in function["groups"]
    }
    shift = groups["L['self'].shift"]
    assert shift["number"] == 1 and shift["cost_us"]["low"] <= shift["cost_us"]["high"]
    assert "net.py:14 in forward: return x * self.scale + self.shift" in shift["places"][0]
    assert "imported" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("f(",), "TARGET must be an expression"),
        (("model.py",), "TARGET: model.py is a file: name an expression that calls something"),
        (("f()", "--setup", "1 / 0"), "--setup: ZeroDivisionError: division by zero"),
        (("f()", "--setup", "for"), "--setup must be Python code"),
    ],
)
def test_mistakes_end_in_one_line(
    tmp_path: Path, words: tuple[str, ...], said: str, run: Run
) -> None:
    done = run(tmp_path, *words)
    assert done.returncode == 2 and not done.stdout
    assert said in done.stderr and len(done.stderr.splitlines()) == 1
