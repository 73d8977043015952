"""Runs pytest in copies of the work tree, each run in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.verify.outcomes import ALIVE, FILE
from pytest_dispatchguard.verify.scratch import Copy
from pytest_dispatchguard.visible import visible

_LONGEST = 3600.0
"""Seconds that one run may take."""
_PLUGIN = "pytest_dispatchguard.verify.outcomes"
_POLL = 0.05
_TAIL = 3_000
"""Characters of the output that are kept."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run of pytest says."""

    tests: Mapping[str, str]
    """The outcome of each test."""
    wrong: str = ""
    """Why there is none."""
    output: str = ""
    """The end of what was printed."""


class Run:
    """A run of pytest in a copy, from its start."""

    def __init__(self, copy: Copy, cwd: Path, words: Sequence[str]) -> None:
        self._file = copy.temporary / "outcomes.json"
        self._said = copy.temporary / "output.txt"
        self._file.unlink(missing_ok=True)
        launch = copy.launch(cwd)
        if not launch.folder.is_dir():
            raise UserError(
                f"{cwd}: git ignores this directory, so a copy of the work tree lacks it"
            )
        self._check = copy.conditions.check
        alive, self._alive = os.pipe()
        passed = (alive,) if os.name == "posix" else ()  # Windows passes no pipes this way
        watched = "".join(map(str, passed))
        command = [sys.executable, "-m", "pytest", "-p", _PLUGIN, "-p", "no:cacheprovider"]
        try:
            with self._said.open("wb") as said:
                self._process = subprocess.Popen(
                    [*command, *map(copy.moved_word, words)],
                    cwd=launch.folder,
                    env={
                        **launch.environment,
                        ALIVE: f"{os.getpid()}:{watched}",
                        FILE: str(self._file),
                    },
                    pass_fds=passed,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except BaseException:
            os.close(self._alive)
            raise
        finally:
            os.close(alive)
        self._until = time.monotonic() + _LONGEST

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or took too long. Raises if it must end."""
        self._check()
        return self._process.poll() is not None or time.monotonic() > self._until

    @property
    def status(self) -> int | None:
        """The exit status; None before the end."""
        return self._process.poll()

    def wait(self) -> None:
        """Waits for the end."""
        while not self.is_over:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_POLL)

    def end(self) -> None:
        """Ends it, and what it has started."""
        with suppress(ProcessLookupError, PermissionError):
            if os.name == "posix":
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        self._process.wait()
        if self._alive >= 0:
            os.close(self._alive)
            self._alive = -1

    def result(self) -> Ran:
        """What came of it."""
        if self._process.poll() is None:
            return Ran({}, f"pytest was not done after {_LONGEST / 60:g} minutes")
        try:
            told = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return Ran({}, self.complaint())
        if told["strays"]:
            return Ran({}, f"{told['strays'][0]} is imported from the work tree, not from its copy")
        if not told["tests"]:
            return Ran({}, self.complaint())
        return Ran(told["tests"], output=visible(self._printed()[-_TAIL:]))

    def complaint(self) -> str:
        """Why there is no result, in one line."""
        status = self._process.returncode
        if status is not None and status < 0:
            return f"pytest was killed by {signal.Signals(-status).name}"
        lines = [line.strip() for line in self._printed().splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith(("ERROR", "E  "))]
        return f"pytest says: {(errors or lines[-1:] or [f'status {status}'])[0]}"

    def _printed(self) -> str:
        return self._said.read_text(encoding="utf-8", errors="replace")


def run_tests(copy: Copy, cwd: Path, words: Sequence[str]) -> Ran:
    """Runs tests in one copy."""
    run = Run(copy, cwd, words)
    try:
        run.wait()
        return run.result()
    finally:
        run.end()


def run_each(
    number: int,
    make: Callable[[int], Copy],
    drop: Callable[[Copy], None],
    jobs: int,
    cwd: Path,
    words: Sequence[str],
) -> list[Ran]:
    """Runs the same tests for each of so many changes, in up to `jobs` processes at a time. `make` gives the
    copy that has a change, and `drop` takes it back."""
    found: dict[int, Ran] = {}
    running: dict[int, tuple[Copy, Run]] = {}
    waiting = list(range(number))
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                change = waiting.pop(0)
                copy = make(change)
                running[change] = copy, Run(copy, cwd, words)
            time.sleep(_POLL)
            for change, (copy, run) in list(running.items()):
                if run.is_over:
                    found[change] = run.result()
                    run.end()
                    drop(copy)
                    del running[change]
    finally:
        for _, run in running.values():
            run.end()
    return [found[change] for change in range(number)]


def differing(before: Ran, after: Ran) -> str:
    """How outcomes differ; empty where they do not."""
    if after.wrong:
        return after.wrong
    told = [
        f"{test} {after.tests.get(test, 'is gone')}, {before.tests.get(test, 'not run')} before"
        for test in dict.fromkeys((*after.tests, *before.tests))
        if before.tests.get(test) != after.tests.get(test)
    ]
    more = f" and {len(told) - 1} more" if len(told) > 1 else ""
    return f"{told[0]}{more}" if told else ""


def require(ran: Ran, option: str) -> None:
    """Raises if tests cannot be run in a copy as it is."""
    not_collected = (
        f"{test}: {said}" for test, said in ran.tests.items() if said.startswith("not collected")
    )
    wrong = ran.wrong or next(not_collected, "")
    if wrong:
        raise UserError(f"{option}: in a copy of the work tree, without any fix: {wrong}")
    if not {"passed", "xfailed", "xpassed"} & set(ran.tests.values()):
        test, said = next(iter(ran.tests.items()))
        raise UserError(
            f"{option}: in a copy of the work tree, without any fix, no test passes: {test} {said}"
        )
