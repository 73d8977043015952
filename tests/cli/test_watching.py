"""`check --watch`: a process that checks again when something changed, and ends when it is told to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .conftest import A, Run, command, one_line

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is sent in another way")


class Watched:
    """The process, and what it has said so far."""

    def __init__(self, project: Path, *words: str) -> None:
        self.log = project.parent / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command(["check", "--watch", *words], project),
                cwd=project,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        self.taken = 0

    def next_run(self) -> str:
        """What was said in the next run."""
        for _ in range(600):
            text = self.log.read_text()[self.taken :]
            run, end, _ = text.partition("press Ctrl-C to stop\n")
            if end:
                self.taken += len(run) + len(end)
                return run
            assert self.process.poll() is None, text
            time.sleep(0.1)
        raise AssertionError(self.log.read_text())

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30)


@pytest.fixture
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Watched]]:
    begun: list[Watched] = []

    def watched(project: Path, *words: str) -> Watched:
        begun.append(Watched(project, *words))
        return begun[-1]

    yield watched
    for one in begun:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


@pytest.mark.thorough
def test_it_checks_again_when_something_changes(
    project: Path, watched: Callable[..., Watched]
) -> None:
    seen = watched(project)
    assert "3 findings" in seen.next_run()
    (project / "pkg" / "a.py").write_text(A.replace('os.environ.get("GATE")', "x is None"))
    assert "2 findings" in seen.next_run()
    (project / "pkg" / "c.py").write_text("def f(:\n")
    assert "pkg/c.py:1:7 DG001" in seen.next_run()
    (project / "pkg" / "c.py").unlink()
    assert "2 findings" in seen.next_run()
    (project / "pyproject.toml").write_text("[tool.dispatchguard]\nselct = 1\n")
    assert 'unknown key "selct"' in seen.next_run()
    (project / "pyproject.toml").write_text('[tool.dispatchguard]\nselect = ["DG6"]\n')
    assert "1 finding in" in seen.next_run()
    time.sleep(1.5)
    assert seen.log.read_text()[seen.taken :] == "", "nothing changed, nothing is said"
    assert seen.stop() == 0
    assert "Traceback" not in seen.log.read_text()
    assert "interrupted" not in seen.log.read_text()


def test_fixes_come_to_an_end(project: Path, watched: Callable[..., Watched]) -> None:
    seen = watched(project, "--fix")
    assert "2 findings" in seen.next_run()
    assert "2 findings" in seen.next_run(), "the fix was a change"
    time.sleep(1.5)
    assert seen.log.read_text()[seen.taken :] == ""
    assert seen.stop() == 0


@pytest.mark.parametrize("words", [["--daemon"], ["--write-baseline"], ["-"]])
def test_what_does_not_go_with_it(project: Path, run: Run, words: list[str]) -> None:
    assert "--watch cannot be combined" in one_line(run("check", "--watch", *words))
