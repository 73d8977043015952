"""`dispatchguard history --bisect --counter time`: a change that no counter sees, in real repositories."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="times are not measured on Windows"),
    pytest.mark.slow,
]

Started = Callable[..., Any]
OPEN = Path("/proc/self/fd")
TEST = "tests/test_library.py::test_entry"
SUITE = "from library import entry\n\n\ndef test_entry(overhead):\n    overhead(entry)\n"
BROKEN = "def entry(:\n"


def summing(size: int) -> str:
    """The same instructions, whatever the size."""
    return f"NUMBERS = list(range({size}))\n\n\ndef entry():\n    return sum(NUMBERS)\n"


class Repository:
    """A git repository with one commit for each text of its library, the test in all of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.git("init", "--quiet", "--initial-branch=main")
        (path / "tests").mkdir()
        (path / "tests" / "test_library.py").write_text(SUITE)
        (path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
        (path / ".gitignore").write_text("__pycache__\n")

    def git(self, *words: str) -> str:
        said = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        done = subprocess.run(
            ["git", *said, *words], cwd=self.path, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def commits(self, *libraries: str) -> list[str]:
        found = []
        for number, library in enumerate(libraries):
            (self.path / "library.py").write_text(f"{library}# {number}\n")
            self.git("add", ".")
            self.git("commit", "--quiet", "-m", f"number {number}")
            found.append(self.git("rev-parse", "HEAD"))
        return found


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """With a folder of its own for what is temporary, so that what is left there shows."""
    path = tmp_path / "repository"
    path.mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return Repository(path)


@pytest.fixture
def bisect(request: pytest.FixtureRequest, repository: Repository, tmp_path: Path) -> Started:
    apart = request.node.get_closest_marker("fresh_python") is not None
    run: Started = request.getfixturevalue("start" if apart else "run")

    def bisect(good: str, bad: str, *words: str) -> Any:
        said = ("history", "--bisect", TEST, "--counter", "time", "--good", good, "--bad", bad)
        opened = len(list(OPEN.iterdir())) if OPEN.exists() else 0
        done = run(*said, *words, cwd=repository.path)
        assert repository.git("worktree", "list").count("\n") == 0
        assert repository.git("status", "--short") == ""
        left = {path.name for path in (tmp_path / "temporary").iterdir()}
        assert not [name for name in left if not name.startswith("pytest-of-")]  # pytest's own
        assert not opened or len(list(OPEN.iterdir())) == opened
        return done

    return bisect


# Where torch is imported already, each of the workers imports it, too.
@pytest.mark.fresh_python
@pytest.mark.parametrize(
    ("before", "after"), [(1000, 2000), (2000, 1000)], ids=["slower", "faster"]
)
@pytest.mark.thorough
def test_a_change_that_no_counter_sees_is_found(
    repository: Repository, bisect: Started, before: int, after: int
) -> None:
    here, there = summing(before), summing(after)
    commits = repository.commits(here, BROKEN, here, there, there)
    done = bisect(commits[0], "HEAD", "--format", "json")
    assert done.status == 0, done.err
    found = json.loads(done.out)["culprit"]
    assert (found["commit"], found["title"], found["author"]) == (commits[3], "number 3", "A")
    assert (found["nodeid"], found["subject"], found["counter"]) == (TEST, "entry", "time")
    change = found["change"]
    if before < after:
        assert 1.4 < change["low"] <= change["value"] <= change["high"]
    else:
        assert change["low"] <= change["value"] <= change["high"] < 0.7
    assert found["now"] / found["before"] == pytest.approx(change["value"])
    tried = {one["commit"]: one for one in found["tried"]}
    assert commits[4] in tried and commits[0] not in tried
    assert found["good"] == commits[0] and tried[commits[3]]["change"] == change
    assert tried[commits[3]]["number"] == found["now"]


@pytest.mark.thorough
def test_two_that_cannot_be_told_apart_are_one_line(
    repository: Repository, bisect: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_dispatchguard.measure.revisions.two_commits.SECONDS", 1.0)
    commits = repository.commits(*[summing(1000)] * 3)
    done = bisect(commits[0], commits[2])
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    wanted = f"cannot be told apart by the time of {TEST} (entry): at {commits[2]} it is "
    assert wanted in done.err and " times (" in done.err


@pytest.mark.thorough
def test_several_that_are_left_are_all_told(repository: Repository, bisect: Started) -> None:
    here, there = summing(1000), summing(2000)
    failing = there.replace("return", "assert False\n    return")
    commits = repository.commits(here, here, BROKEN, failing, there, there)
    done = bisect("HEAD~5", "HEAD")
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    assert "it is one of " + ", ".join(one[:12] for one in commits[2:5]) + "; pass" in done.err
    assert "could not be timed" in done.err
    done = bisect("HEAD~5", "HEAD~3")
    assert "has no counts at HEAD~3: " in done.err


@pytest.mark.thorough
def test_the_history_says_where_to_look(
    repository: Repository, run: Started, run_pytest: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository.path)
    (repository.path / ".gitignore").write_text("__pycache__\n.dispatchguard\n")
    here, there = summing(1000), summing(3000)
    words = ("--overhead-budget", "--overhead-history", "--overhead-max-time=0.5")
    (first,) = repository.commits(here)
    run_pytest(f"--rootdir={repository.path}", str(repository.path), *words).assert_outcomes(
        passed=1
    )
    commits = repository.commits(f"{here}# more\n", there, there)
    run_pytest(f"--rootdir={repository.path}", str(repository.path), *words).assert_outcomes(
        passed=1
    )
    done = run("history", "--bisect", TEST, "--counter", "time", cwd=repository.path)
    assert done.status == 0, done.err
    assert done.out.startswith(f"{commits[1][:12]} changed the time of {TEST} (entry): ")
    assert f"compared with {first[:12]} by turns, at " in done.out
    done = run("history", "--bisect", TEST, cwd=repository.path)
    assert "no counter of" in done.err


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.thorough
def test_one_that_is_ended_leaves_nothing(
    repository: Repository, tmp_path: Path, how: signal.Signals
) -> None:
    slow = "import time\n\ntime.sleep(1)\n"
    commits = repository.commits(slow + summing(1000), slow + summing(2000))
    words = (
        "history",
        "--bisect",
        TEST,
        "--counter",
        "time",
        "--good",
        commits[0],
        "--bad",
        "HEAD",
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest_dispatchguard", *words],
        cwd=repository.path,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    temporary = tmp_path / "temporary"
    until = time.monotonic() + 60
    while not list(temporary.glob("dispatchguard-worker-*")) and time.monotonic() < until:
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.5)
    process.send_signal(how)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and "Traceback" not in said, said
    assert repository.git("worktree", "list").count("\n") == 0
    assert not list(temporary.glob("dispatchguard-*"))
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            where = (folder / "cwd").readlink()
        except OSError:
            continue
        assert not where.is_relative_to(tmp_path), (folder / "cmdline").read_text()
