"""One call in two source trees: counters, time, and waits on the ghost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_dispatchguard.measure.processes.launching import Launch
from pytest_dispatchguard.measure.trials.pairs import Asked, CallError, compared
from pytest_dispatchguard.model.errors import UserError

pytestmark = pytest.mark.slow

WAITS = """
import torch

def scaled(x):
    if x.sum() > 0:
        return x * 2
    return x
"""
NONE = """
import torch

def scaled(x):
    return torch.where(x.sum() > 0, x * 2, x)
"""


def tree(folder: Path, text: str) -> Launch:
    folder.mkdir()
    (folder / "mylib.py").write_text(text)
    return Launch((), folder, [str(folder), *sys.path[1:]])


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.thorough
def test_waits_for_the_device_are_those_of_the_ghost(tmp_path: Path) -> None:
    asked = Asked("scaled(x)", "import torch; from mylib import scaled; x = torch.ones(4)")
    gain = compared(asked, tree(tmp_path / "old", WAITS), tree(tmp_path / "new", NONE))
    assert (gain.before["syncs"], gain.after["syncs"]) == (1, 0)
    assert gain.moved("syncs") == -1
    assert gain.note == ""
    assert gain.moved_us is not None


@pytest.mark.thorough
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_what_cannot_run_on_the_ghost_says_so(tmp_path: Path) -> None:
    on_host = NONE + "\nHERE = torch.ones(4)\n\ndef mixed(x):\n    return x + HERE\n"
    asked = Asked("mixed(x)", "import torch; from mylib import mixed; x = torch.ones(4)")
    gain = compared(asked, tree(tmp_path / "old", on_host), tree(tmp_path / "new", on_host))
    assert "syncs" not in gain.before
    assert gain.note.startswith("waits are not known: ")


def test_without_torch_nothing_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)  # other tests have imported it
    text = "def f(n):\n    return [i for i in range(n)]\n"
    cheaper = "def f(n):\n    return list(range(n))\n"
    asked = Asked("f(100)", "from mylib import f")
    gain = compared(asked, tree(tmp_path / "old", text), tree(tmp_path / "new", cheaper))
    assert "syncs" not in gain.before
    assert gain.moved("instructions") < -100
    assert gain.change is not None and gain.change.high < 1


@pytest.mark.parametrize(("broken", "error"), [("old", UserError), ("new", CallError)])
def test_which_tree_fails_is_told(tmp_path: Path, broken: str, error: type[UserError]) -> None:
    works, fails = "def f():\n    return 1\n", "def f():\n    raise OSError('full')\n"
    trees = [tree(tmp_path / name, fails if name == broken else works) for name in ("old", "new")]
    with pytest.raises(UserError, match="OSError: full") as told:
        compared(Asked("f()", "from mylib import f"), *trees)
    assert told.type is error


def test_a_call_that_fails_later_ends_both(tmp_path: Path) -> None:
    text = "calls = []\ndef f():\n    calls.append(1)\n    return 1\n"
    later = text.replace("return 1", "if len(calls) > 500: raise OSError('full')")
    trees = [tree(tmp_path / name, t) for name, t in (("old", text), ("new", later))]
    with pytest.raises(CallError, match="OSError: full"):
        compared(Asked("f()", "from mylib import f"), *trees)


HELD = """
import os, sys, time
from pytest_dispatchguard.measure.trials.lifeline import hold
hold(int(sys.argv[1]))
if os.fork() == 0:
    time.sleep(60)
print("held", flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_process_ends_with_the_pipe_and_takes_its_children_along() -> None:
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", HELD, str(reading)],
        pass_fds=(reading,),
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(reading)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    os.close(writing)
    # The child, which has the same output, is gone, too, when that ends.
    start = time.monotonic()
    assert process.stdout.read() == b""
    assert process.wait(30) != 0
    assert time.monotonic() - start < 30
    process.stdout.close()
