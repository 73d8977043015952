"""Runs with `--overhead-against` whose processes are killed: one clear line each, and nothing is left."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc"),
    pytest.mark.slow,
]

LIBRARY = "import time\n\ntime.sleep({seconds})\n\ndef entry(x):\n    return sum(range(100))\n"
SUITE = """
import pytest
from library import entry

pytestmark = pytest.mark.overhead_budget(regression=3)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_entry(overhead, n):
    overhead(entry, n)
"""
PROC = Path("/proc")
_LONGEST = 90.0


class Run:
    """A run of pytest in a repository, with the processes that it starts."""

    def __init__(
        self, path: Path, flags: tuple[str, ...], *words: str, terminal: bool = False
    ) -> None:
        self.path = path / "repository"
        self.temporary = path / "temporary"
        self.temporary.mkdir(exist_ok=True)
        self.mark = f"DISPATCHGUARD_TEST={random.getrandbits(64):x}"
        environment = {**os.environ, "TMPDIR": str(self.temporary), "PYTEST_ADDOPTS": ""}
        environment |= dict([self.mark.split("=")])
        command = [sys.executable, "-m", "pytest", *flags, "-p", "no:cacheprovider"]
        command += ["--overhead-max-time=0.5", "--overhead-budget", "--overhead-against=HEAD"]
        self.out = path / "out.json"
        self.out.unlink(missing_ok=True)
        self._terminal, out = os.openpty() if terminal else (-1, subprocess.PIPE)
        self.process = subprocess.Popen(
            [*command, f"--overhead-json={self.out}", *words],
            cwd=self.path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        if terminal:
            os.close(out)
        self.said = ""

    def processes(self) -> dict[int, str]:
        """All that run, by what they are: main, head or base; of the latter a worker or its child. A worker
        that is not told yet of which tree it is, is new."""
        found = {}
        for folder in PROC.iterdir():
            if not folder.name.isdigit():
                continue
            try:
                environment = (folder / "environ").read_bytes().split(b"\0")
                if self.mark.encode() not in environment:
                    continue
                where = (folder / "cwd").readlink()
                pid = int(folder.name)
                leads = os.getsid(pid) == pid
            except OSError:
                continue
            if pid == self.process.pid:
                found[pid] = "main"
            elif any(one.startswith(b"DISPATCHGUARD_SCATTER=") for one in environment):
                side = {"tree": "base", "": "new"}.get(where.name, "head")
                found[pid] = f"{side} {'worker' if leads else 'child'}"
            else:
                found[pid] = "other"
        return found

    def one(self, kind: str, seconds: float = _LONGEST) -> int:
        """Waits for a process of a kind; 0 if the run ends before."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.process.poll() is None:
            for pid, what in self.processes().items():
                if what == kind:
                    return pid
            time.sleep(0.002)
        return 0

    def end(self) -> int:
        """Waits for its end; its exit status."""
        try:
            if self._terminal >= 0:
                self.said += _read(self._terminal)
            self.said += self.process.communicate(timeout=_LONGEST)[0] or ""
        except subprocess.TimeoutExpired:
            left = self.processes()
            self.kill()
            pytest.fail(f"the run hangs: {left}\n{self.said}")
        return self.process.returncode

    def gone(self) -> None:
        """Waits until nothing of it runs any more."""
        until = time.monotonic() + 20
        while self.processes() and time.monotonic() < until:
            time.sleep(0.05)
        assert not self.processes()

    def kill(self) -> None:
        """Ends whatever is there."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def rows(self) -> dict[str, Any]:
        found = json.loads(self.out.read_text())["tests"]
        return {row["nodeid"].partition("[")[2]: row for row in found}

    def left(self) -> list[str]:
        """What is left behind."""
        trees = git(self.path, "worktree", "list").splitlines()[1:]
        left = [*trees, *map(str, self.temporary.iterdir())]
        left = [one for one in left if "/pytest-of-" not in one]  # pytest's own
        left += [f"{pid}: {what}" for pid, what in self.processes().items()]
        files = git(self.path, "status", "--short").splitlines()
        return left + [row for row in files if row.startswith("?")]


def _read(terminal: int) -> str:
    """What is written to a terminal until nobody has it open."""
    said = b""
    until = time.monotonic() + _LONGEST
    while True:
        read = b""
        with suppress(OSError):  # as nobody has it open any more
            if select.select([terminal], [], [], until - time.monotonic())[0]:
                read = os.read(terminal, 1 << 16)
        if not read:
            os.close(terminal)
            return said.decode()
        said += read


def git(path: Path, *words: str) -> str:
    said = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    done = subprocess.run(
        ["git", *said, *words], cwd=path, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def write(path: Path, library: str, suite: str = SUITE) -> None:
    (path / "library.py").write_text(library)
    (path / "tests" / "test_library.py").write_text(suite)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """With a base in it."""
    path = tmp_path / "repository"
    (path / "tests").mkdir(parents=True)
    git(path, "init", "--quiet", "--initial-branch=main")
    (path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (path / ".gitignore").write_text("__pycache__\n")
    write(path, LIBRARY.format(seconds=0.3))
    git(path, "add", ".")
    git(path, "commit", "--quiet", "-m", "base")
    return path


@pytest.fixture
def start(
    repository: Path, tmp_path: Path, plugin_flags: tuple[str, ...]
) -> Iterator[Callable[..., Run]]:
    runs = []

    def start(*words: str, terminal: bool = False) -> Run:
        runs.append(Run(tmp_path, plugin_flags, *words, terminal=terminal))
        return runs[-1]

    yield start
    for run in runs:
        run.kill()


KINDS = ("base worker", "head worker", "base child", "head child", "new worker")


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.thorough) for n in range(1, 66))]
)
def test_a_process_that_is_killed_at_any_moment_is_one_line(
    start: Callable[..., Run], seed: int
) -> None:
    chance = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    run = start()
    time.sleep(chance.uniform(0.2, 2.5))
    pid = run.one(kind)
    hit = False
    if pid:
        time.sleep(chance.uniform(0, 0.2))
        try:
            os.kill(pid, signal.SIGKILL)
            hit = True
        except ProcessLookupError:
            pass
    status = run.end()
    assert run.left() == []
    assert status in (0, 1), run.said
    assert "Traceback" not in run.said and "INTERNALERROR" not in run.said
    rows = run.rows()
    assert set(rows) == {"1]", "2]", "3]"}
    told = [f"{row['reason']} {(row['base'] or {}).get('reason')}" for row in rows.values()]
    wrong = [line for line in told if "SIGKILL" in line]
    assert all("\n" not in line for line in told), told
    # One that was hit as it was ending anyway is missed by nobody.
    assert hit or not wrong, told
    for row in rows.values():
        if row["verdict"] == "error":
            assert kind.startswith(("head", "new")) and "SIGKILL" in row["reason"]
            assert status == 1
        elif "SIGKILL" not in str(row):
            assert row["verdict"] == "pass" and row["base"]["change"] is not None


@pytest.mark.parametrize(
    ("how", "seed"),
    [
        (signal.SIGTERM, 0),
        pytest.param(signal.SIGINT, 1, marks=pytest.mark.thorough),
        pytest.param(signal.SIGKILL, 2, marks=pytest.mark.thorough),
        *(
            pytest.param(how, n, marks=pytest.mark.thorough)
            for n in range(3, 15)
            for how in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)
        ),
    ],
)
def test_a_run_that_is_ended_leaves_no_worker(
    start: Callable[..., Run], how: signal.Signals, seed: int
) -> None:
    chance = random.Random(seed)
    run = start()
    assert run.one("base worker")
    time.sleep(chance.uniform(0, 2.0))
    run.process.send_signal(how)
    ended = run.process.poll() is not None
    status = run.end()
    if how != signal.SIGKILL:
        assert "Traceback" not in run.said and "INTERNALERROR" not in run.said, run.said
        assert status == 2 or ended, run.said
        assert run.left() == []
        return
    assert status == -9 or ended
    # Workers end as the pipe closes that they are asked by, or are killed where they import.
    run.gone()
    again = start("-k", "1")
    assert again.end() == 0, again.said
    assert again.left() == []


@pytest.mark.thorough
def test_a_base_that_imports_for_long_is_waited_for(
    repository: Path, start: Callable[..., Run]
) -> None:
    write(repository, LIBRARY.format(seconds=4))
    git(repository, "commit", "--quiet", "-am", "slow to import")
    write(repository, LIBRARY.format(seconds=0))
    run = start("-k", "1", terminal=True)
    assert run.end() == 0, run.said
    assert "measuring 1 of 1: test_entry[1] (HEAD is importing)" in run.said
    assert run.rows()["1]"]["base"]["change"] is not None
    assert run.left() == []


def test_a_run_that_is_killed_takes_along_a_worker_that_imports(
    repository: Path, start: Callable[..., Run]
) -> None:
    write(repository, LIBRARY.format(seconds=60))
    git(repository, "commit", "--quiet", "-am", "slow to import")
    write(repository, LIBRARY.format(seconds=0))
    run = start()
    assert run.one("base worker")
    time.sleep(1)
    run.process.kill()
    run.end()
    run.gone()


@pytest.mark.thorough
def test_one_that_never_ends_importing_is_given_up(
    repository: Path, start: Callable[..., Run]
) -> None:
    write(repository, LIBRARY.format(seconds=600))
    (repository / "conftest.py").write_text(
        "from pytest_dispatchguard.measure.workers import workers\nworkers._START_TIMEOUT = 4\n"
    )
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "imports for ever")
    write(repository, LIBRARY.format(seconds=0))
    run = start()
    assert run.end() == 0, run.said
    for row in run.rows().values():
        assert row["verdict"] == "pass"
        assert row["base"]["reason"] == "HEAD: the worker said nothing for 4 s and was ended"
    assert run.left() == []


def test_ctrl_c_while_the_base_imports_ends_all_at_once(
    repository: Path, start: Callable[..., Run]
) -> None:
    write(repository, LIBRARY.format(seconds=60))
    git(repository, "commit", "--quiet", "-am", "slow to import")
    write(repository, LIBRARY.format(seconds=0))
    run = start()
    assert run.one("base worker")
    time.sleep(1)
    began = time.monotonic()
    os.killpg(run.process.pid, signal.SIGINT)
    assert run.end() == 2, run.said
    assert time.monotonic() - began < 20
    assert "KeyboardInterrupt" in run.said and "Traceback" not in run.said
    assert run.left() == []


CRASHING = """
import os, signal, time

calls = 0

def entry(x):
    global calls
    calls += 1
    if x == 2 and calls > {after}:
        {how}
    return sum(range(100))
"""


@pytest.mark.parametrize(
    ("how", "after", "said"),
    [
        ("os.abort()", 0, "HEAD: the process that measured it was killed by SIGABRT"),
        pytest.param(
            "os.kill(os.getpid(), signal.SIGSEGV)",
            300,
            "could not be timed: the process that measured it was killed by SIGSEGV",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_base_that_crashes_in_one_test_costs_that_alone(
    repository: Path, start: Callable[..., Run], how: str, after: int, said: str
) -> None:
    write(repository, CRASHING.format(how=how, after=after))
    git(repository, "commit", "--quiet", "-am", "crashes")
    write(repository, LIBRARY.format(seconds=0))
    run = start()
    run.end()
    rows = run.rows()
    wrong = rows.pop("2]")
    assert said in f"{wrong['reason']} {wrong['base']['reason']}"
    assert run.said.count("was killed by SIG") == 1, run.said
    assert all(row["base"]["change"] is not None for row in rows.values())
    assert run.left() == []
