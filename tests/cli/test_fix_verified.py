"""`dispatchguard fix --verify` end to end: what is reported, what is written, and what is left when it is
killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from ..verify.conftest import CALL, FAST, SLOW, WRONG, git
from ..verify.conftest import briefly as briefly  # a fixture
from ..verify.conftest import patch as patch  # a fixture
from ..verify.conftest import repository as repository  # a fixture
from ..verify.conftest import temporary as temporary  # a fixture
from .conftest import Run, one_line

Patch = Callable[[str], str]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("briefly")]

MEASURE = ("--call", CALL[0], "--setup", CALL[1])


@pytest.fixture
def patches(repository: Path, patch: Patch, tmp_path: Path) -> dict[str, str]:
    """Files with diffs."""
    texts = {
        "fast": FAST,
        "wrong": WRONG,
        "double": SLOW.replace("number * 2", "number + number"),
        "doc": SLOW.replace("def double(number):\n", 'def double(number):\n    """Two."""\n'),
    }
    found = {}
    for name, text in texts.items():
        file = tmp_path / f"{name}.patch"
        file.write_text(patch(text))
        found[name] = str(file)
    return found


def test_what_pays_is_kept_and_what_does_not_says_why(
    repository: Path, patches: dict[str, str], run: Run
) -> None:
    words = [word for name in ("fast", "wrong", "double") for word in ("--patch", patches[name])]
    done = run("fix", "--verify", *words, "--test", "test_mylib.py", *MEASURE, cwd=repository)
    assert (done.status, done.err) == (1, "")
    kept, wrong, double, summary = done.out.splitlines()
    assert kept.startswith("kept      ")
    assert "\u2212" in kept and " instructions, \u2212" in kept and " µs ±" in kept
    assert kept.endswith("; tests as before")
    assert wrong.startswith("not kept  ")
    assert wrong.endswith("test_mylib.py::test_total failed, passed before")
    assert "not measurably cheaper" in double
    assert summary == "1 of 3 changes kept"
    assert (repository / "mylib.py").read_text() == SLOW


def test_formats(repository: Path, patches: dict[str, str], run: Run, tmp_path: Path) -> None:
    words = ("fix", "--verify", "--patch", patches["fast"], *MEASURE)
    done = run(*words, "--format", "json", cwd=repository)
    assert done.status == 0
    told = json.loads(done.out)
    (change,) = told["changes"]
    assert (change["kept"], change["files"], change["tests"]) == (True, ["mylib.py"], None)
    (call,) = change["calls"]
    assert call["after"]["instructions"] < call["before"]["instructions"]
    assert call["change"]["high"] < 1
    assert (told["schema"], told["together"], told["applied"]) == (1, None, None)
    done = run(*words, "--format", "markdown", "--output", tmp_path / "x.md", cwd=repository)
    assert (tmp_path / "x.md").read_text().startswith("### 1 of 1 change kept\n")
    assert "| kept |" in (tmp_path / "x.md").read_text()


def test_what_is_kept_is_written_on_request(
    repository: Path, patches: dict[str, str], run: Run
) -> None:
    (repository / "mine.txt").write_text("mine")
    words = ("--patch", patches["fast"], "--patch", patches["wrong"], "--test", ".", "--apply")
    done = run("fix", "--verify", *words, *MEASURE, cwd=repository)
    assert done.status == 1
    assert "applied to mylib.py" in done.out
    assert (repository / "mylib.py").read_text() == FAST
    assert git(repository, "status", "--porcelain") == " M mylib.py\n?? mine.txt\n"


@pytest.mark.thorough
def test_what_pays_is_tried_together(repository: Path, patches: dict[str, str], run: Run) -> None:
    words = ("--patch", patches["fast"], "--patch", patches["double"], "--apply")
    both = ("--call", "double(total(numbers))", "--setup", CALL[1] + "; from mylib import double")
    done = run("fix", "--verify", *words, *both, cwd=repository)
    lines = done.out.splitlines()
    assert lines[0].startswith("kept ")
    # Which of both forms of doubling is cheaper is for the machine to say.
    together = [line for line in lines if "all kept together" in line]
    assert bool(together) == lines[1].startswith("kept ")
    assert "sum(numbers)" in (repository / "mylib.py").read_text()


def test_patches_that_exclude_each_other(
    repository: Path, patches: dict[str, str], run: Run
) -> None:
    words = ("--patch", patches["fast"], "--patch", patches["fast"], "--apply")
    done = run("fix", "--verify", *words, *MEASURE, cwd=repository)
    assert done.status == 1
    assert "fast.patch: after the others, it does not apply: " in done.out
    assert "nothing was applied" in done.out
    assert (repository / "mylib.py").read_text() == SLOW


def test_a_file_that_changes_meanwhile_is_not_written(
    repository: Path, patches: dict[str, str], run: Run
) -> None:
    change = f"open({str(repository / 'mylib.py')!r}, 'a').write('# mine'); "
    words = ("--patch", patches["fast"], "--apply", "--call", CALL[0], "--setup", change + CALL[1])
    said = one_line(run("fix", "--verify", *words, cwd=repository))
    assert "mylib.py: changed meanwhile, so nothing was applied; run again" in said
    assert (repository / "mylib.py").read_text().startswith(SLOW)


def test_what_fails_without_a_fix_is_an_error(
    repository: Path, patches: dict[str, str], run: Run
) -> None:
    words = ("fix", "--verify", "--patch", patches["fast"])
    assert "NameError" in one_line(run(*words, "--call", "nothing()", cwd=repository))
    said = one_line(run(*words, "--test", "gone.py", *MEASURE, cwd=repository))
    assert "--test: in a copy of the work tree, without any fix" in said


def running_in(folder: Path) -> list[int]:
    """The processes whose temporary files are below a folder."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        try:
            words = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in words and int(process.name) != os.getpid():
            found.append(int(process.name))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize(
    ("how", "after"),
    [
        (signal.SIGKILL, 0.3),
        (signal.SIGKILL, 2.5),
        (signal.SIGINT, 0.3),
        (signal.SIGTERM, 0.3),
        *(
            pytest.param(how, after, marks=pytest.mark.thorough)
            for how in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
            for after in (1.0, 2.5, 4.0)
            if (how, after) != (signal.SIGKILL, 2.5)
        ),
    ],
)
def test_whenever_it_is_killed_nothing_is_left(
    repository: Path,
    patches: dict[str, str],
    temporary: Path,
    how: signal.Signals,
    after: float,
) -> None:
    (repository / "test_slow.py").write_text(
        "import time\n\n\ndef test_slow():\n    time.sleep(1)\n"
    )
    words = [word for name in ("fast", "double", "doc") for word in ("--patch", patches[name])]
    words += ["--test", ".", *MEASURE]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest_dispatchguard", "fix", "--verify", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    time.sleep(after)
    process.send_signal(how)
    process.wait(30)
    until = time.monotonic() + 30
    while time.monotonic() < until and (list(temporary.iterdir()) or running_in(temporary)):
        time.sleep(0.1)
    assert list(temporary.iterdir()) == []
    assert running_in(temporary) == []
    assert (repository / "mylib.py").read_text() == SLOW


@pytest.mark.thorough
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_fixes_of_the_demo_are_proven(root: Path, tmp_path: Path, run: Run) -> None:
    import shutil

    demo = tmp_path / "demo"
    shutil.copytree(
        root / "fixtures" / "demo", demo, ignore=shutil.ignore_patterns("__pycache__", ".*")
    )
    setup = "import torch; from minilayers import Stack, Softmax; "
    setup += "layer = Stack([Softmax() for _ in range(3)]); x = torch.ones(2, 3)"
    done = run(
        *("fix", "--verify", "--unsafe-fixes", "--apply", "--no-cache"),
        *("--select", "minilayers/layers.py:126", "--select", "minilayers/ops.py:40"),
        *("--test", "tests/test_minilayers.py", "--call", "layer(x)", "--setup", setup),
        cwd=demo,
    )
    assert (done.status, done.err) == (1, ""), done
    kept, not_kept, *rest = done.out.splitlines()
    assert kept.startswith("kept      minilayers/layers.py:126:22 DG609")
    assert " instructions, " in kept
    assert kept.endswith("; tests as before")
    assert not_kept.startswith("not kept  minilayers/ops.py:40:11 DG501")
    assert rest == ["applied to minilayers/layers.py", "1 of 2 changes kept"]
    assert "in list(self.layers)[" in (demo / "minilayers" / "layers.py").read_text()
    assert "torch.full" not in (demo / "minilayers" / "ops.py").read_text()
