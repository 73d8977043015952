"""The part of a pytest run that watches code run, and tells where the host waits for the device, and what is
done at every call though once would do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dispatchguard.lint.hot import hot_lines
from pytest_dispatchguard.lint.observed import Sieve
from pytest_dispatchguard.lint.sources.files import write_source
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.findings import tally
from pytest_dispatchguard.model.operations import OperationsAt, together, with_remarks
from pytest_dispatchguard.model.reports import Report
from pytest_dispatchguard.pytest_run.lost_workers import Losses, fail_incomplete
from pytest_dispatchguard.report import render
from pytest_dispatchguard.runtime.compiled import program
from pytest_dispatchguard.runtime.syncs import gpu_warnings, syncs
from pytest_dispatchguard.runtime.watch import costly_calls, findings
from pytest_dispatchguard.visible import one_line

if TYPE_CHECKING:
    from pytest_dispatchguard.runtime.watch.operations import Operations

_KEY = "dispatchguard_seen"
"""What a process of pytest-xdist hands to the one that tells."""


class Linting:
    """Watches the calls of all tests, their fixtures left out, and tells in the end."""

    def __init__(
        self, config: pytest.Config, form: str, output: Path | None, *, by_line: bool = False
    ) -> None:
        self.config = config
        self.form = form
        self.by_line = by_line
        self.output = output
        self.times: Counter[syncs.Sync] = Counter()
        self.trouble = ""
        """Why nothing could be watched, or written; empty where all could."""
        self.told = ""
        self.losses = Losses()
        self.sieve = Sieve(config.rootpath, config.rootpath, None, {})
        self.waste = self._new_waste()
        self.instructions: dict[tuple[str, int], int] = {}
        """Of lines, in a call of their function."""
        self._operations: Operations | None = None
        self._handed: list[OperationsAt] = []
        """What other processes saw of operations."""

    def _new_waste(self) -> costly_calls.CostlyCalls:
        return costly_calls.CostlyCalls(
            lambda path: self._library(path) is not None, figures=not self.by_line
        )

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, None]:
        """Watches one test."""
        with ExitStack() as watching:
            waits = self._waits()
            seen = None if waits is None else watching.enter_context(waits)
            try:
                watching.enter_context(self.waste.watching())
                if self.by_line:
                    watching.enter_context(self._watched_operations())
            except UserError as error:
                self.trouble = str(error)
            yield
        if seen is not None:
            self.times += seen.times

    @staticmethod
    def _waits() -> AbstractContextManager[syncs.Recorder] | None:
        """What records waits: for the ghost, else for a GPU that is there."""
        if syncs.is_there():
            return syncs.recording()
        return gpu_warnings.recording() if gpu_warnings.may_be_seen() else None

    def _watched_operations(self) -> AbstractContextManager[None]:
        if self._operations is None:
            try:
                from pytest_dispatchguard.runtime.watch.operations import Operations
            except ImportError:
                raise UserError(
                    "--overhead-ops: torch is not installed here, whose operations it tells of"
                ) from None
            self._operations = Operations(self._library)
        return self._operations.watching()

    def _seen_operations(self) -> list[OperationsAt]:
        if self._operations is None:
            return []
        return with_remarks(self._operations.report(), self.waste.looks.remarks(self._library))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Takes what a process of pytest-xdist saw."""
        handed = self.losses.handed(node, _KEY)
        if handed is not None:
            self.take(handed)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Knows where tests run."""
        self.losses.ran(report)

    def begin_anew(self) -> None:
        """Forgets what was seen, in a process whose part is added to that of another."""
        self.times, self.waste = Counter(), self._new_waste()
        self.instructions, self._operations, self._handed = {}, None, []

    def handed(self) -> str:
        """All that was seen, for another process."""
        self._add_own()
        seen = packed(self.times, self._seen_operations(), self.instructions)
        return json.dumps([seen, self.trouble])

    def take(self, handed: str) -> None:
        """Adds what another process saw."""
        seen, trouble = json.loads(handed)
        self.trouble = self.trouble or trouble
        times, operations, lines = unpacked(seen)
        self.times += times
        self._take_lines(lines)
        self._handed += operations

    def _add_own(self) -> None:
        self.times += self.waste.times
        self._take_lines(self.waste.looks.lines)

    def _take_lines(self, lines: Mapping[tuple[str, int], int]) -> None:
        """Of several processes, which may have looked into other calls, the dearest call counts."""
        for place, number in lines.items():
            self.instructions[place] = max(number, self.instructions.get(place, 0))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Makes the report; findings fail the run."""
        output = getattr(self.config, "workeroutput", None)
        if output is not None:
            output[_KEY] = self.handed()
            return
        self._add_own()
        found = False
        fail_incomplete(session, self.losses)
        try:
            report = self._report()
            found = bool(report.of("sure"))
            self._put(report)
        except UserError as error:
            self.trouble = str(error)
        if session.exitstatus == pytest.ExitCode.OK and (self.trouble or found):
            session.exitstatus = (
                pytest.ExitCode.USAGE_ERROR if self.trouble else pytest.ExitCode.TESTS_FAILED
            )

    def _put(self, report: Report) -> None:
        text = render(
            report,
            self.form,
            color=self.output is None and self._color(),
            width=self._width(),
            sources=self.sieve.source(),
        )
        if self.output is None:
            self.told = text
            return
        try:
            write_source(self.output, text.encode("utf-8", "backslashreplace"))
        except OSError as error:
            said = error.strerror or error
            raise UserError(f"{self.output}: cannot be written: {said}") from None
        self.told = f"{tally(report.findings)} written to {self.output}\n"

    def _report(self) -> Report:
        kept, elsewhere = findings.observed(
            self.times,
            self._library,
            self.sieve.rules,
            self.instructions,
        )
        others = 0
        if kept:
            kept, others = hot_lines(self.config.rootpath, self.config.rootpath).only(
                kept, program.CODES
            )
        notes = []
        if others:
            notes.append(f"{others} more in code that is not hot")
        if elsewhere:
            notes.append(f"{findings.more(elsewhere)} outside this project's code, or in its tests")
        missing = self.losses.found()
        notes += [one.said() for one in missing]
        report = replace(self.sieve.report(kept, notes), missing=missing)
        if self.by_line:
            lines = together([*self._handed, *self._seen_operations()])
            report = replace(report, operations=tuple(lines))
        return report

    def _library(self, path: str) -> str | None:
        """A file's path relative to the project root; None for tests, and for files of others."""
        rel = self.sieve.rel(path)
        return None if rel is None or self.sieve.is_test(rel) else rel

    def _color(self) -> bool:
        reporter = self.config.pluginmanager.getplugin("terminalreporter")
        return reporter is not None and bool(reporter.hasmarkup)

    def _width(self) -> int:
        reporter = self.config.pluginmanager.getplugin("terminalreporter")
        return 100 if reporter is None else int(reporter._tw.fullwidth)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """What was found."""
        if self.trouble:
            terminalreporter.line(f"ERROR: {one_line(self.trouble)}", red=True)
        if self.told:
            terminalreporter.section("overhead seen running")
            terminalreporter.write(self.told)


def packed(
    times: Counter[syncs.Sync],
    operations: Sequence[OperationsAt],
    instructions: Mapping[tuple[str, int], int],
) -> str:
    """What was seen, for another process."""
    rows = [
        [
            *(sync.operation, sync.why, sync.code, sync.waits, number),
            [astuple(frame) for frame in sync.frames],
        ]
        for sync, number in times.items()
    ]
    lines = [[path, line, number] for (path, line), number in instructions.items()]
    return json.dumps([rows, [asdict(at) for at in operations], lines])


def unpacked(
    text: str,
) -> tuple[Counter[syncs.Sync], list[OperationsAt], dict[tuple[str, int], int]]:
    """What another process saw."""
    rows, operations, lines = json.loads(text)
    found: Counter[syncs.Sync] = Counter()
    for operation, why, code, waits, number, frames in rows:
        way = tuple(syncs.Frame(*frame) for frame in frames)
        found[syncs.Sync(operation, why, code, way, waits)] += number
    return (
        found,
        [OperationsAt(**{**at, "seen": tuple(at["seen"])}) for at in operations],
        {(path, line): number for path, line, number in lines},
    )
