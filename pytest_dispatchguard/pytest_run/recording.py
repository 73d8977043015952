"""The part of a run that records which functions ran, and keeps it for the linter to read."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dispatchguard.lint.observed import own_files, read_config
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.profile import Profile, load, packed
from pytest_dispatchguard.project_folder import PROFILE, Folder, made
from pytest_dispatchguard.pytest_run.lost_workers import Losses, fail_incomplete
from pytest_dispatchguard.runtime.recorder import Recorder
from pytest_dispatchguard.visible import one_line

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


_TROUBLE = "dispatchguard_not_recorded"
"""What a process of pytest-xdist hands on."""


class Recording:
    """Records the calls of all tests, their fixtures left out: those set up, and setting up is not hot."""

    def __init__(self, root: Path) -> None:
        config = read_config(root, root)
        self.root = config.root
        load(self.root / PROFILE)  # what cannot be added to is told before anything runs
        self.own = own_files(config)
        self.recorder = Recorder(self.own)
        self.trouble = ""
        """Why nothing was kept; empty where it was."""
        self.losses = Losses()

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, None]:
        """Records one test."""
        watching: AbstractContextManager[None] = self.recorder.recording()
        try:
            watching.__enter__()
        except UserError as error:
            self.trouble = str(error)
            yield
            return
        try:
            yield
        finally:
            watching.__exit__(None, None, None)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Keeps what was seen. Every process of pytest-xdist keeps its own part."""
        trouble = self.handed()
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_TROUBLE] = trouble
        fail_incomplete(session, self.losses)
        if self.trouble and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def begin_anew(self) -> None:
        """Forgets what was recorded, in a process that keeps its own part."""
        self.recorder = Recorder(self.own)

    def handed(self) -> str:
        """Keeps what was recorded; what went wrong with it, for another process."""
        try:
            keep(self.root, self.recorder.profile())
        except UserError as error:
            self.trouble = str(error)
        return self.trouble

    def take(self, handed: str) -> None:
        """Hears what went wrong in another process."""
        self.trouble = self.trouble or handed

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Hears what befell a process of pytest-xdist."""
        self.take(self.losses.handed(node, _TROUBLE) or "")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Knows where tests run."""
        self.losses.ran(report)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Says where it lies."""
        if self.trouble:
            terminalreporter.line(f"ERROR: {one_line(self.trouble)}", red=True)
        else:
            terminalreporter.line(said(self.root))
        for one in self.losses.found():
            terminalreporter.line(f"warning: {one.said()}", yellow=True)


def said(root: Path) -> str:
    """What there is now, in a line."""
    profile = load(root / PROFILE)
    number = 0 if profile is None else len(profile.functions)
    if not number:
        return "recorded nothing: no function of this project ran"
    functions = "function" if number == 1 else "functions"
    return f"{PROFILE.as_posix()} now has {number} {functions}; `dispatchguard check` reads it"


def keep(root: Path, newer: Profile) -> None:
    """Adds what was seen to what is known of a project."""
    if not newer.functions:
        return
    path = root / PROFILE
    try:
        with made(path.parent) as folder, _alone(folder):
            profile = load(path) or Profile()
            profile.merge(newer)
            for name in [name for name in profile.functions if not (root / name[0]).is_file()]:
                del profile.functions[name]
            folder.put(path.name, packed(profile).encode())
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from None


@contextmanager
def _alone(folder: Folder) -> Iterator[None]:
    """Waits until no other process is at it."""
    if sys.platform == "win32" or folder.handle is None:
        yield
        return
    import fcntl

    fcntl.flock(folder.handle, fcntl.LOCK_EX)
    yield
    # The lock goes with the handle.
