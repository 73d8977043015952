"""A pytest plugin that writes the outcome of every test to a file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.measure.processes.work_tree import strays_here
from pytest_dispatchguard.measure.trials.lifeline import hold

FILE = "DISPATCHGUARD_OUTCOMES"
ALIVE = "DISPATCHGUARD_ALIVE"
"""The process that has the other end of a pipe, and the end: ``123:4``."""


class Outcomes:
    """Collects the outcomes."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.tests: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps the worst of setup, call and teardown."""
        before = self.tests.get(report.nodeid, "")
        if report.failed:
            self.tests[report.nodeid] = "failed" if report.when == "call" else "error"
        elif report.skipped:
            self.tests[report.nodeid] = "xfailed" if hasattr(report, "wasxfail") else "skipped"
        elif report.when == "call" and not before:
            self.tests[report.nodeid] = "xpassed" if hasattr(report, "wasxfail") else "passed"

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keeps what cannot be collected."""
        if report.failed:
            lines = [line.strip() for line in report.longreprtext.splitlines() if line.strip()]
            self.tests[report.nodeid] = f"not collected: {lines[-1] if lines else ''}"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Writes the file."""
        told = {"tests": self.tests, "strays": strays_here()}
        self.file.write_text(json.dumps(told), encoding="utf-8")


def pytest_configure(config: Any) -> None:
    """Registers the plugin in the process that was started for it, not in those that pytest starts."""
    parent, _, alive = os.environ.pop(ALIVE, "").partition(":")
    file = os.environ.pop(FILE, None)
    if parent == str(os.getppid()) and file is not None:
        if alive:
            hold(int(alive))
        config.pluginmanager.register(Outcomes(Path(file)), "dispatchguard-outcomes")
