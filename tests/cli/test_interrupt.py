"""A run that is interrupted or killed: one line, nothing half-written, no process left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .conftest import A, Run, Write, command

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


@pytest.fixture
def large(write: Write) -> Path:
    body = "\n".join(
        A.replace("Gate", f"Gate{i}").replace("import os, torch\n", "") for i in range(8)
    )
    return write(
        {"pyproject.toml": "", "pkg/__init__.py": "", "pkg/b.py": "def helper(x):\n    return x\n"}
        | {f"pkg/m{i}.py": "import os, torch\n" + body for i in range(60)}
    )


def group(leader: int) -> list[int]:
    """The living processes of a process group."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == leader and fields[0] != "Z":
                found.append(int(folder.name))
    return found


def heed_ctrl_c() -> None:
    """A shell starts what it puts in the background deaf to Ctrl-C, and so is all that is started there."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def begin(root: Path, *words: str) -> subprocess.Popen[bytes]:
    """A run in a process group of its own, as a terminal starts it, with its workers at work."""
    running = subprocess.Popen(
        command(["check", "--jobs", "3", *words], root),
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=heed_ctrl_c,
    )
    until = time.monotonic() + 30
    while len(group(running.pid)) < 3 and time.monotonic() < until:
        assert running.poll() is None
        time.sleep(0.005)
    return running


def gone(leader: int) -> bool:
    until = time.monotonic() + 10
    while group(leader):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.4])
def test_ctrl_c_is_one_line_and_leaves_nothing(large: Path, run: Run, delay: float) -> None:
    before = {p: p.read_bytes() for p in large.rglob("*.py")}
    running = begin(large, "--fix")
    time.sleep(delay)
    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert running.returncode == 130, err
    assert out == b""
    assert err.decode().splitlines() == ["dispatchguard: interrupted; nothing was half-written"]
    assert gone(running.pid)
    assert {p: p.read_bytes() for p in large.rglob("*.py")} == before
    assert not list(large.rglob("*.tmp"))
    words = ("check", "pkg/m0.py", "--format", "json")
    assert run(*words).out == run(*words, "--no-cache").out


LOST = """
import time


class Field:
    def __del__(self):
        raise KeyboardInterrupt


Field()
time.sleep(10)
"""


INTO_A_CLASS = """
import sys


class Field:
    def __set_name__(self, owner, name):
        if not hasattr(sys, "told_once"):
            sys.told_once = True
            raise KeyboardInterrupt


class Holder:
    field = Field()
"""


@pytest.mark.parametrize(
    "pack_text", [LOST, INTO_A_CLASS], ids=["passed on to nobody", "turned into a RuntimeError"]
)
def test_ctrl_c_that_python_hides_is_heeded(large: Path, tmp_path: Path, pack_text: str) -> None:
    """A pack of rules, as it is loaded while files are read: in a finalizer Python drops the exception,
    in the making of a class it raises another one before 3.12."""
    pack = tmp_path / "site" / "lost.py"
    pack.parent.mkdir()
    pack.write_text(pack_text)
    about = pack.parent / "lost-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: lost\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[dispatchguard]\nlost = lost\n")
    path = os.pathsep.join(filter(None, [str(pack.parent), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        command(["check"], large),
        cwd=large,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        check=False,
        preexec_fn=heed_ctrl_c,
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "dispatchguard: interrupted; nothing was half-written\n"


IN_AN_IMPORT = """
import dataclasses, sys


def told_once(self, owner, name, heeded=dataclasses.Field.__set_name__):
    if "libcst" in sys.modules and not hasattr(sys, "told_once"):
        sys.told_once = True
        raise KeyboardInterrupt
    heeded(self, owner, name)


dataclasses.Field.__set_name__ = told_once
"""


def test_ctrl_c_while_libcst_is_imported_is_heeded(large: Path, tmp_path: Path) -> None:
    """No error of a broken cache, after which all would be done once more, without one."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(IN_AN_IMPORT)
    path = os.pathsep.join(filter(None, [str(tmp_path / "site"), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        command(["check", "--jobs", "1"], large),
        cwd=large,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        check=False,
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "dispatchguard: interrupted; nothing was half-written\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["term", "kill"])
def test_workers_end_with_the_process_that_started_them(
    large: Path, number: signal.Signals
) -> None:
    running = begin(large)
    os.kill(running.pid, number)
    running.communicate(timeout=30)
    assert gone(running.pid)


def test_a_worker_that_dies_is_one_line(large: Path) -> None:
    running = begin(large)
    workers = [pid for pid in group(running.pid) if pid != running.pid]
    os.kill(workers[0], signal.SIGKILL)
    _, err = running.communicate(timeout=30)
    assert running.returncode == 2
    (line,) = err.decode().splitlines()
    assert "a worker process died" in line
    assert gone(running.pid)
