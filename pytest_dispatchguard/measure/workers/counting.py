"""Counts tests in one process for all of them, which is replaced when it dies.

It is forked from a server that was forked itself when all was collected and nothing had run, so that it
counts to the unit what pytest's process would, and costs half a millisecond a test. A child for each test
costs 20 ms once torch is there, and a worker such as times need would import and collect everything again.
"""

from __future__ import annotations

import faulthandler
import json
import sys
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Protocol

import pytest

from pytest_dispatchguard.measure.workers import coverage
from pytest_dispatchguard.measure.workers.children import Answer, Child, Ends, may_fork
from pytest_dispatchguard.measure.workers.items import is_measured, tear_down
from pytest_dispatchguard.measure.workers.measuring import Measuring
from pytest_dispatchguard.measure.workers.native import Native
from pytest_dispatchguard.measure.workers.reports import (
    Found,
    amended,
    failed,
    report_from,
    verdicts_of,
)
from pytest_dispatchguard.model.verdicts import Verdict

_PATIENCE = 3.0
"""Seconds the server has to end what it has started."""
_TOLD_BY_OTHERS = (
    "pytest_runtest_logstart",
    "pytest_runtest_logreport",
    "pytest_runtest_logfinish",
    "pytest_warning_recorded",
)
"""Hooks that report, and so only run in pytest's own process."""


class Watcher(Protocol):
    """A part of the plugin that watches tests, also those that run in another process."""

    def begin_anew(self) -> None:
        """In the other process: forgets what was recorded before."""

    def handed(self) -> str:
        """In the other process: returns what was recorded, as text."""

    def take(self, handed: str) -> None:
        """In this process: adds what was recorded there."""


class Counting:
    """The plugin that has tests counted."""

    def __init__(
        self,
        timeout: float,
        watchers: Callable[[], Sequence[Watcher]],
        workers: Callable[[], Measuring],
        native: Callable[[], Native],
        complaint: Callable[[Sequence[Verdict]], str],
    ) -> None:
        self.timeout = timeout
        self._start_native = native
        self._native: Native | None = None
        self._complaint = complaint
        self._watchers = watchers
        self._start_workers = workers
        self._measuring: Measuring | None = None
        """Counts in a worker, where forking is not safe."""
        self._server: Child | None = None
        self._asking = False
        self._next: dict[pytest.Item, tuple[int, int | None]] = {}
        """The positions in the session of each counted test and of the next one."""

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, Any, None]:
        """Starts the server before anything has run, and ends it after all has."""
        places = [i for i, item in enumerate(session.items) if is_measured(item)]
        if not places or session.config.option.collectonly or _is_by_hand(session.config):
            yield
            return
        following = [*places[1:], None]
        self._next = {session.items[i]: (i, j) for i, j in zip(places, following, strict=True)}
        if may_fork():
            session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # made before the fork, so that all share it
            _flush(session.config)
            self._server = Child(Server(session, self.timeout, self._watchers()).answer)
        else:
            self._measuring = self._start_workers()
            self._measuring.pytest_collection_finish(session)
        yield
        if self._server is not None:
            if not self._asking:  # else both processes were interrupted
                for report in self._ask({}).get("reports", ()):
                    session.config.hook.pytest_runtest_logreport(report=report_from(report))
            self._server.end(_PATIENCE)
        for workers in (self._measuring, self._native):
            if workers is not None:
                workers.end()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        """Takes the place of running a test that has a budget."""
        if self._measuring is not None:
            return self._measuring.pytest_runtest_protocol(item, nextitem)
        if self._server is None or item not in self._next:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._reports(item, nextitem):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        tear_down(item, nextitem)
        return True

    def _reports(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Sequence[pytest.TestReport]:
        """The reports of a counted test, or a report of why there are none."""
        place, following = self._next[item]
        if nextitem in self._next:  # pytest-xdist chooses the order
            following, _ = self._next[nextitem]
        _flush(item.config)
        try:
            answer = self._ask({"item": place, "next": following})
        except pytest.fail.Exception as error:  # a plugin's time limit, while we wait
            answer = {"lost": f"was given up: {error}"}
        lost = answer.get("lost", answer.get("died"))
        if lost is None:
            self._take(item, answer)
            return self._with_native(item, [report_from(report) for report in answer["reports"]])
        said = f"{item.name} could not be counted: the process that counted it {lost}"
        report = failed(item, said)
        report.sections = _output(item.config)
        return [report]

    def _with_native(
        self, item: pytest.Item, reports: list[pytest.TestReport]
    ) -> Sequence[pytest.TestReport]:
        """The reports of a test, with its native instructions if they are asked for."""
        verdicts = verdicts_of(reports)
        if self._native is None:
            self._native = self._start_native()
        told = self._native.added(item, verdicts, lambda: None)
        return reports if told == verdicts else amended(Found(reports, told), self._complaint)

    def _ask(self, request: Mapping[str, Any]) -> Answer:
        assert self._server is not None
        self._asking = True
        answer = self._server.ask(json.dumps(request), None)
        self._asking = False
        return answer

    def _take(self, item: pytest.Item, answer: Answer) -> None:
        """Adds what was recorded where the test ran."""
        for watcher, handed in zip(self._watchers(), answer["seen"], strict=True):
            watcher.take(handed)
        coverage.take(answer["covered"])
        for row in answer["warnings"]:
            kind = getattr(sys.modules.get(row["module"]), row["category"], UserWarning)
            message = warnings.WarningMessage(row["message"], kind, row["file"], row["line"])
            item.ihook.pytest_warning_recorded.call_historic(
                kwargs={
                    "warning_message": message,
                    "nodeid": row["nodeid"],
                    "when": row["when"],
                    "location": None,
                }
            )


class Server:
    """The server: it passes requests on to a process that counts."""

    def __init__(
        self, session: pytest.Session, timeout: float, watchers: Sequence[Watcher]
    ) -> None:
        self.session = session
        self.timeout = timeout
        self.watchers = watchers
        self._counter: Child | None = None

    def answer(self, request: str, ends: Ends) -> Answer:
        """Answers a request, by a new process if the last one died."""
        if self._counter is None:
            self._counter = Child(Counter(self.session, self.watchers).answer, closed=ends)
        answer = self._counter.ask(request, self.timeout, ends[0])
        if "died" not in answer:
            return answer
        self._counter = None
        return {"lost": answer["died"]}


class Counter:
    """The process that counts: pytest itself, without its reporting."""

    def __init__(self, session: pytest.Session, watchers: Sequence[Watcher]) -> None:
        self.session = session
        self.watchers = watchers
        self.told: Collected | None = None

    def answer(self, request: str, _: Ends) -> Answer:
        """Runs a test, or tears all fixtures down if none is named."""
        if self.told is None:
            self.told = _alone(self.session.config)
        told, data = self.told, json.loads(request)
        told.reports.clear()
        told.warnings.clear()
        for watcher in self.watchers:
            watcher.begin_anew()
        coverage.begin_anew()
        items = self.session.items
        following = None if data.get("next") is None else items[data["next"]]
        try:
            if "item" in data:
                item = items[data["item"]]
                tear_down(item, item)
                item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
                told.last = item
            elif told.last is not None:
                tear_down(told.last, None)
        except BaseException:
            self.session._setupstate.teardown_exact(None)
            raise
        _flush(self.session.config)
        return {
            "reports": told.reports,
            "warnings": told.warnings,
            "seen": [watcher.handed() for watcher in self.watchers],
            "covered": coverage.handed(),
        }


class Collected:
    """Collects reports and warnings for pytest's own process."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.reports: list[Any] = []
        self.warnings: list[dict[str, Any]] = []
        self.last: pytest.Item | None = None
        """The last test."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps a report."""
        hook = self.config.hook.pytest_report_to_serializable
        self.reports.append(hook(config=self.config, report=report))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str
    ) -> None:
        """Keeps a warning."""
        kind = warning_message.category
        self.warnings.append(
            {
                "module": kind.__module__,
                "category": kind.__qualname__,
                "message": str(warning_message.message),
                "file": warning_message.filename,
                "line": warning_message.lineno,
                "when": when,
                "nodeid": nodeid,
            }
        )

    def pytest_enter_pdb(self) -> None:
        """Fails, as there is no terminal to debug with."""
        pytest.fail(
            "a breakpoint in a test that is counted in a process of its own: "
            "say --pdb, or leave --overhead-budget out",
            pytrace=False,
        )


def _alone(config: pytest.Config) -> Collected:
    """Turns this process into one that counts: disables all other reporting."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() > 1:
        # Threads that collecting started do not survive the fork: waiting for them would never end.
        torch.set_num_threads(1)
    if faulthandler.is_enabled():
        faulthandler.enable(2)  # a crash is shown with its test
    config.pluginmanager.unregister(name="dispatchguard-counting")
    for name in _TOLD_BY_OTHERS:
        caller = getattr(config.hook, name)
        for implementation in caller.get_hookimpls():
            caller._remove_plugin(implementation.plugin)
    told = Collected(config)
    config.pluginmanager.register(told, "dispatchguard-told")
    return told


def _is_by_hand(config: pytest.Config) -> bool:
    """Whether the user debugs, or wants to see fixtures being set up."""
    options = ("usepdb", "trace", "setuponly", "setupshow")
    return any(config.getoption(name, False) for name in options)


def _flush(config: pytest.Config) -> None:
    """Flushes output, which a forked process would write again."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        reporter.flush()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def _output(config: pytest.Config) -> list[tuple[str, str]]:
    """What a process printed before it died, as sections of a report."""
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is None or not capture.is_globally_capturing():
        return []
    read = zip(("stdout", "stderr"), capture.read_global_capture(), strict=True)
    return [(f"Captured {name} call", text) for name, text in read if text]
