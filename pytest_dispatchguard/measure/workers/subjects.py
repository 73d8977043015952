"""Runs tests in this process to get their subjects."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any

from pytest_dispatchguard.model.errors import UserError

if TYPE_CHECKING:
    import pytest


def names_test(target: str) -> bool:
    """Whether a target is a test, ``tests/test_add.py::test_wide``, not an expression."""
    return target.partition("::")[0].endswith(".py")


def disable_other_plugins(config: pytest.Config) -> None:
    """Disables what other plugins would do: start processes, write files, reorder tests."""
    option = config.option
    quiet: dict[str, Any] = {
        "numprocesses": None,
        "dist": "no",
        "tx": [],
        "maxfail": 0,
        "lf": False,
        "failedfirst": False,
        "newfirst": False,
        "stepwise": False,
        "stepwise_skip": False,
        "xmlpath": None,
        "usepdb": False,
        "trace": False,
        "log_file": None,
        "collectonly": False,
        "benchmark_disable": True,
    }
    for name, value in quiet.items():
        if hasattr(option, name):
            setattr(option, name, value)
    if getattr(option, "basetemp", None) and getattr(option, "overhead_worker", None) is None:
        option.basetemp = f"{option.basetemp}-overhead-{os.getpid()}"


class _Subjects:
    """A pytest plugin that passes on the subjects of tests while their fixtures exist."""

    def __init__(self, use: Callable[[str, Any], None]) -> None:
        self.use = use
        self.wrong: list[str] = []
        self.skipped: list[str] = []
        self.found = 0

    def plugin(self) -> Any:
        """The hooks; pytest is imported only for them."""
        import pytest

        said = self

        class Hooks:
            @pytest.hookimpl(tryfirst=True)
            def pytest_cmdline_main(self, config: Any) -> None:
                disable_other_plugins(config)

            @pytest.hookimpl(hookwrapper=True)
            def pytest_runtest_call(self, item: Any) -> Any:
                outcome = yield
                if outcome.excinfo is None and "overhead" in item.fixturenames:
                    for subject in item._request.getfixturevalue("overhead").subjects:
                        said.found += 1
                        said.use(item.nodeid, subject)

            def pytest_runtest_logreport(self, report: Any) -> None:
                if report.failed:
                    said.wrong.append(f"{report.nodeid}: {_last_line(report.longreprtext)}")
                elif report.skipped:
                    said.skipped.append(report.longrepr[2].removeprefix("Skipped: "))

            def pytest_collectreport(self, report: Any) -> None:
                if report.failed:
                    said.wrong.append(f"{report.nodeid}: {_last_line(report.longreprtext)}")

        return Hooks()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line[2:].strip() for line in lines if line.startswith("E ")]
    return errors[0] if errors else lines[-1] if lines else "it fails"


def each_subject(test: str, use: Callable[[str, Any], None]) -> None:
    """Runs tests, and calls `use` with each test's node id and subjects."""
    import pytest

    subjects = _Subjects(use)
    arguments = ["-p", "no:cacheprovider", test]
    environment = dict(os.environ)
    try:
        with redirect_stdout(StringIO()) as said, redirect_stderr(said):
            status = pytest.main(arguments, plugins=[subjects.plugin()])
    finally:
        os.environ.clear()
        os.environ.update(environment)
    if subjects.wrong:
        raise UserError(subjects.wrong[0])
    if subjects.found:
        return
    errors = [line for line in said.getvalue().splitlines() if line.startswith("ERROR: ")]
    if subjects.skipped:
        raise UserError(f"{test}: it is skipped: {subjects.skipped[0]}")
    if errors and "not found" not in errors[0]:
        raise UserError(f"{test}: pytest says: {errors[0].removeprefix('ERROR: ')}")
    known = "there is no such test" if status else "it never calls overhead(...)"
    raise UserError(f"{test}: {known}")
