"""The part of a pytest run that holds traces of PyTorch's profiler against their limits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dispatchguard.config.load import trace_limits_of
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.visible import one_line

if TYPE_CHECKING:
    from pytest_dispatchguard.model.traces import CheckedTrace

_NOT_FAILED = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


class Traces:
    """Checks traces when the tests have run, which may have written them."""

    def __init__(self, root: Path, paths: Sequence[Path]) -> None:
        self.root = root
        self.paths = paths
        self.limits = dict(trace_limits_of(root / "pyproject.toml"))
        self.checked: list[CheckedTrace] = []
        self.trouble = ""
        """Why traces could not be checked; empty where all were."""

    @pytest.hookimpl(tryfirst=True)  # before files are written
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Reads the traces. A run without tests passes if they keep their limits."""
        try:
            self._check()
        except UserError as error:
            self.trouble = str(error)
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
            return
        if session.exitstatus not in _NOT_FAILED:
            return
        if any(one.exceeded for one in self.checked):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif all(one.limited for one in self.checked):
            session.exitstatus = pytest.ExitCode.OK

    def _check(self) -> None:
        from pytest_dispatchguard.model.traces import CheckedTrace, TraceLimits
        from pytest_dispatchguard.traced.told import told

        for one in told(self.paths, self.root, ()):
            checked = CheckedTrace(one, TraceLimits(**self.limits))
            if checked.unknown:
                raise UserError(f"{one.trace.path}: {checked.unknown}")
            self.checked.append(checked)

    def as_objects(self) -> list[dict[str, Any]]:
        """What was checked, for a file beside the verdicts."""
        from pytest_dispatchguard.report.traces.limits import as_object

        return [as_object(one) for one in self.checked]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Tells what exceeds its limit, and where that comes from."""
        from pytest_dispatchguard.report.traces.limits import told

        terminalreporter.section("traces")
        if self.trouble:
            terminalreporter.line(f"ERROR: {one_line(self.trouble)}", red=True)
        for checked in self.checked:
            for line, exceeded in told(checked):
                terminalreporter.line(one_line(line), red=exceeded)
