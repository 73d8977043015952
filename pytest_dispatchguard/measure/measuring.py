"""The part of a pytest run that has tests with budgets measured by workers, and takes their reports."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.measure.intervals import PROCESSES
from pytest_dispatchguard.measure.messages import (
    Request,
    pack_verdicts,
    unpack_samples,
    unpack_verdicts,
)
from pytest_dispatchguard.measure.timing import Sample
from pytest_dispatchguard.measure.workers import Launch, Worker
from pytest_dispatchguard.model import UserError, Verdict

PROPERTY = "dispatchguard-verdicts"
"""The property of a test's report that carries its verdicts to the process that tells them."""

_LEAST_SECONDS = 0.3
"""A process with less time than that can tell nothing."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a run measures."""

    confidence: float = 0.999
    seconds: float = 5.0
    """For each test."""
    workers: int = 2
    timeout: float = 60.0


class Measuring:
    """Has tests measured, one at a time."""

    def __init__(self, launch: Launch, options: Options, lock: Path | None) -> None:
        self.launch = launch
        self.options = options
        self.lock = lock
        self.workers: dict[int, Worker] = {}

    def is_measured(self, item: pytest.Item) -> bool:
        """Whether a test may name subjects."""
        return (
            "overhead" in getattr(item, "fixturenames", ())
            or item.get_closest_marker("overhead_budget") is not None
        )

    def pytest_collection(self, session: pytest.Session) -> None:
        """Starts the first worker, so that it imports while this process does."""
        if not session.config.getoption("collectonly"):
            self.workers[0] = Worker(self.launch, 0)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Ends the worker again where there is nothing to measure."""
        if not any(map(self.is_measured, session.items)):
            self.pytest_unconfigure()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        """Takes the place of running a test that has a budget."""
        if not self.is_measured(item):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        with _alone(self.lock):
            reports = self.reports(item)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        # Fixtures of wider scope, set up here for the tests before: the next one may not want them.
        item.session._setupstate.teardown_exact(nextitem)
        return True

    def reports(self, item: pytest.Item) -> list[pytest.TestReport]:
        """The reports of a test, from the last process that measured it: the first, where that one was
        sure; else from as many as the time allows."""
        known: dict[int, list[Sample]] = {}
        processes, spent = 0, 0.0
        reports: list[pytest.TestReport] = []
        while True:
            left = self.options.seconds - spent
            request = Request(
                item.nodeid,
                share(left),
                self.options.confidence,
                self.options.timeout + left,
                known,
            )
            try:
                answer, took = self._asked(processes % self.options.workers, request)
            except UserError as error:
                return reports or [self._broken(item, str(error))]
            if "reports" not in answer:
                return [self._broken(item, _told(answer))]
            from_serializable = item.config.hook.pytest_report_from_serializable
            reports = [from_serializable(config=item.config, data=r) for r in answer["reports"]]
            for number, samples in unpack_samples(answer["samples"]).items():
                known.setdefault(number, []).extend(samples)
            processes += 1
            spent += took
            undecided = any(v.verdict == "undecided" for v in _verdicts(reports))
            if (
                not undecided
                or processes == PROCESSES
                or self.options.seconds - spent < _LEAST_SECONDS
            ):
                return reports

    def _asked(self, number: int, request: Request) -> tuple[dict[str, Any], float]:
        """An answer, and the seconds it took; that a worker imports first is not the test's time."""
        if number not in self.workers:
            self.workers[number] = Worker(self.launch, number)
        try:
            self.workers[number].wait(tick=lambda: None)
            start = time.monotonic()
            return self.workers[number].ask(request, tick=lambda: None), time.monotonic() - start
        except UserError:
            del self.workers[number]
            raise

    def _broken(self, item: pytest.Item, said: str) -> pytest.TestReport:
        verdict = Verdict(item.nodeid, item.name, "error", {}, reason=said)
        return pytest.TestReport(
            item.nodeid,
            item.location,
            dict.fromkeys(item.keywords, 1),
            "failed",
            f"{item.name} could not be measured: {said}",
            "call",
            user_properties=[(PROPERTY, pack_verdicts([verdict]))],
        )

    def pytest_unconfigure(self) -> None:
        """Ends the workers."""
        while self.workers:
            self.workers.popitem()[1].end()


def share(left: float) -> float:
    """How much of the seconds that are left the next process may take at most: most of them, so that a noisy
    machine is overcome, and never all while there is enough for another process."""
    return min(left, max(_LEAST_SECONDS, left * 0.4))


def _verdicts(reports: list[pytest.TestReport]) -> Iterator[Verdict]:
    for report in reports:
        for name, value in report.user_properties:
            if name == PROPERTY and report.when == "call":
                yield from unpack_verdicts(str(value))


def _told(answer: dict[str, Any]) -> str:
    if "missing" in answer:
        return "the worker, which is pytest on the same selection, does not find this test"
    return f"the process that measured it {answer['died']}"


@contextmanager
def _alone(lock: Path | None) -> Iterator[None]:
    """Waits until no other process of this run measures."""
    if lock is None or sys.platform == "win32":
        yield
        return
    import fcntl

    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def launch_of(config: pytest.Config) -> Launch:
    """How workers of this run are started."""
    inner = getattr(config, "workerinput", None)
    arguments = list(config.invocation_params.args) if inner is None else inner["mainargv"][1:]
    if config.pluginmanager.hasplugin("_cov"):
        arguments = [*arguments, "--no-cov"]
    return Launch([str(a) for a in arguments], config.invocation_params.dir, list(sys.path))


def lock_of(config: pytest.Config) -> Path | None:
    """The file that lets one process of pytest-xdist measure at a time; None where there is but one."""
    inner = getattr(config, "workerinput", None)
    if inner is None:
        return None
    return Path(tempfile.gettempdir()) / f"dispatchguard-{inner['testrunuid']}.lock"
