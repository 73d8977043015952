"""The part of a pytest run that counts each test in a child forked when its fixtures are set up.

A child has all that was collected and set up, so that it counts to the unit what this process would, and
costs some 10 ms with torch loaded; a worker of its own, as times need, would import and set up everything
again. Fixtures live and end in this process: those of a wide scope are set up once, not once a test.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pytest
from _pytest.runner import call_and_report

from pytest_dispatchguard.measure import covered
from pytest_dispatchguard.measure.children import answer_of_child, may_fork, warm_up
from pytest_dispatchguard.measure.measuring import Measuring, failed, is_measured, report_from

_TOLD: pytest.StashKey[pytest.TestReport] = pytest.StashKey()
"""The report of a test's call that came from a child."""
_DEAR = ("torch", "torch._dynamo")
"""Modules that no child should import anew."""


class Watcher(Protocol):
    """A part of the plugin that sees tests run, and is to hear of what ran in a child."""

    def begin_anew(self) -> None:
        """In a child: forgets what was seen before."""

    def handed(self) -> str:
        """In a child: what was seen, as text."""

    def take(self, handed: str) -> None:
        """In the process that waits: adds what a child saw."""


class Counting:
    """Has tests counted, one child each."""

    def __init__(
        self,
        timeout: float,
        watchers: Callable[[], Sequence[Watcher]],
        workers: Callable[[], Measuring],
    ) -> None:
        self.timeout = timeout
        self.watchers = watchers
        self._start_workers = workers
        self._measuring: Measuring | None = None
        """What counts in a worker, where forking is not safe."""
        self._warm: set[str] = set()
        """Dear modules that were there when this process last made itself fit for children."""
        self._process = os.getpid()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        """Takes the place of running a test that has a budget."""
        if not is_measured(item) or _is_by_hand(item.config):
            return None
        if not may_fork():
            if self._measuring is None:
                self._measuring = self._start_workers()
                self._measuring.pytest_collection_finish(item.session)
            return self._measuring.pytest_runtest_protocol(item, nextitem)
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        self._run(item, nextitem)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def pytest_enter_pdb(self) -> None:
        """A child has no terminal of its own."""
        if os.getpid() != self._process:
            pytest.fail(
                "a breakpoint in a test that is counted in a process of its own: "
                "say --pdb, or leave --overhead-budget out",
                pytrace=False,
            )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> pytest.TestReport | None:
        """Answers with the report of the child, so that whoever looks at reports sees it."""
        return item.stash.get(_TOLD, None) if call.when == "call" else None

    def pytest_unconfigure(self) -> None:
        """Ends the workers."""
        if self._measuring is not None:
            self._measuring.pytest_unconfigure()

    def _run(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """What pytest does with a test, but for where its call runs."""
        if not getattr(item, "_request", True):
            item._initrequest()  # type: ignore[attr-defined]  # it is run again
        try:
            self._warm_up()
            if call_and_report(item, "setup").passed:
                item.ihook.pytest_runtest_logreport(report=self._called(item))
            over = item.session.shouldfail or item.session.shouldstop
            call_and_report(item, "teardown", nextitem=None if over else nextitem)
        finally:
            if hasattr(item, "_request"):
                vars(item).update(_request=False, funcargs=None)

    def _warm_up(self) -> None:
        there = {name for name in _DEAR if name in sys.modules}
        if not self._warm or there - self._warm:
            warm_up()
        self._warm = there | {""}

    def _called(self, item: pytest.Item) -> pytest.TestReport:
        """The report of a test's call."""
        watchers = self.watchers()
        _flush(item.config)

        def run() -> dict[str, Any]:
            return _call(item, watchers)

        try:
            answer = answer_of_child(run, self.timeout)
        except pytest.fail.Exception as error:  # a plugin's time limit, while we wait
            answer = {"died": f"was given up: {error}"}
        died = answer.get("died")
        if died is not None:
            _keep_output(item)
            said = f"{item.name} could not be counted: the process that counted it {died}"
            report = failed(item, said)
            report.sections = [
                (f"Captured {key} {when}", content) for when, key, content in item._report_sections
            ]
        else:
            self._take(item, answer, watchers)
            report = report_from(answer["report"])
        return _seen_by_others(item, report)

    def _take(
        self, item: pytest.Item, answer: Mapping[str, Any], watchers: Sequence[Watcher]
    ) -> None:
        """Adds what a child leaves to what this process knows."""
        item.user_properties = [(name, value) for name, value in answer["properties"]]
        item._report_sections[:] = [tuple(section) for section in answer["sections"]]
        for watcher, handed in zip(watchers, answer["seen"], strict=True):
            watcher.take(handed)
        covered.take(answer["covered"])
        for row in answer["warnings"]:
            _warn_again(*row)
        for name in answer["imported"]:
            try:
                importlib.import_module(name)
            except Exception:  # noqa: BLE001 - the next child tries again, and tells
                continue


def _is_by_hand(config: pytest.Config) -> bool:
    """Whether somebody debugs, or wants to see how tests are set up."""
    options = ("usepdb", "trace", "setuponly", "setupshow")
    return any(config.getoption(name, False) for name in options)


def _call(item: pytest.Item, watchers: Sequence[Watcher]) -> dict[str, Any]:
    """Runs a test's call in a child; what is to be known of it."""
    _compute_alone()
    for watcher in watchers:
        watcher.begin_anew()
    covered.begin_anew()
    before = set(sys.modules)
    with warnings.catch_warnings(record=True) as warned:
        report = call_and_report(item, "call", log=False)
    data = item.config.hook.pytest_report_to_serializable(config=item.config, report=report)
    _flush(item.config)
    return {
        "report": data,
        "properties": item.user_properties,
        "sections": item._report_sections,
        "seen": [watcher.handed() for watcher in watchers],
        "covered": covered.handed(),
        "warnings": [
            [w.category.__module__, w.category.__qualname__, str(w.message), w.filename, w.lineno]
            for w in warned
        ],
        "imported": [name for name in _DEAR if name in sys.modules and name not in before],
    }


def _compute_alone() -> None:
    """The threads that torch computes with stay behind: who waits for them waits for ever."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() > 1:
        torch.set_num_threads(1)


def _flush(config: pytest.Config) -> None:
    """Writes what waits to be written: a child would write it once more, or take it with it."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        reporter.flush()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def _keep_output(item: pytest.Item) -> None:
    """What a child printed before it died."""
    capture = item.config.pluginmanager.getplugin("capturemanager")
    if capture is None or not capture.is_globally_capturing():
        return
    for name, text in zip(("stdout", "stderr"), capture.read_global_capture(), strict=True):
        item.add_report_section("call", name, text)


def _seen_by_others(item: pytest.Item, report: pytest.TestReport) -> pytest.TestReport:
    """Shows a report to hooks that look at reports as they are made, in fixtures too: they did so in the
    child, and what they left there is gone. Their view of the outcome is in it already."""

    def outcome() -> None:
        if report.failed:
            pytest.fail(report.longreprtext, pytrace=False)

    kept = dict(vars(report))
    item.stash[_TOLD] = report
    call = pytest.CallInfo.from_call(outcome, "call")
    item.ihook.pytest_runtest_makereport(item=item, call=call)
    del item.stash[_TOLD]
    vars(report).clear()
    vars(report).update(kept)
    return report


def _warn_again(module: str, name: str, message: str, file: str, line: int) -> None:
    """Has a warning told that was given in a child."""
    kind = getattr(sys.modules.get(module), name, UserWarning)
    warnings.showwarning(message, kind, file, line)
