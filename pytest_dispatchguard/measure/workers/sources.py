"""A source tree and the workers that measure it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pytest_dispatchguard.measure.budgets.messages import Request, unpack_samples
from pytest_dispatchguard.measure.processes.launching import Launch
from pytest_dispatchguard.measure.processes.signals import uninterrupted
from pytest_dispatchguard.measure.timing.lockstep import Ends
from pytest_dispatchguard.measure.workers.reports import Found, report_from, verdicts_of
from pytest_dispatchguard.measure.workers.workers import Worker
from pytest_dispatchguard.model.errors import UserError

LEAST_SECONDS = 0.3
"""A process needs at least this time to measure anything."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a run measures."""

    confidence: float = 0.999
    seconds: float = 5.0
    """For each test."""
    workers: int = 2
    timeout: float = 60.0
    fully: bool = False
    """Whether ratios are kept, and so are to be as sure as one process can make them."""
    saving: bool = False
    """Whether the run is saved, for later ones to be compared with."""
    precision: float | None = None
    """How large a part of its value half the interval of a comparison with the base may be; None if all that
    is asked is a verdict."""


class Source:
    """One source tree and the workers that measure it."""

    def __init__(
        self,
        launch: Callable[[], Launch],
        workers: int,
        turns: Callable[[int], Ends] | None = None,
        name: str = "the work tree",
    ) -> None:
        """`turns` gives the ends of the pipes between workers of the same number."""
        self.name = name
        self._launch = launch
        self.number = workers
        self._turns = turns
        self._workers: dict[int, Worker] = {}
        self._broken = ""

    def start(self) -> None:
        """Starts the first worker, so that it imports while others do."""
        try:
            self.worker(0)
        except UserError as error:
            self._broken = str(error)

    def ask(self, found: Found, request: Request, tick: Callable[[], None]) -> None:
        """Has a test measured by one more process, and adds its results."""
        number = len(found.metadata) % self.number
        try:
            worker = self.worker(number)
            worker.wait(tick)
            start = time.monotonic()
            answer = worker.ask(request, tick)
            # Imports and fixtures are not counted as measuring.
            found.seconds += min(time.monotonic() - start, request.seconds)
        except UserError as error:
            found.broken = str(error)
            self.drop(number, found.broken)
            return
        if "reports" not in answer:
            found.broken = answer.get("missing") or f"the process that measured it {answer['died']}"
            return
        found.reports = [report_from(data) for data in answer["reports"]]
        for report in found.reports:
            vars(report)["overhead_shared"] = not worker.forks
        found.verdicts = verdicts_of(found.reports)
        for i, samples in unpack_samples(answer["samples"]).items():
            found.samples.setdefault(i, []).extend(samples)
        found.metadata.append(answer["metadata"])

    def worker(self, number: int) -> Worker:
        """A worker, started now or before."""
        if self._broken:
            raise UserError(self._broken)
        if number not in self._workers:
            turns = None if self._turns is None else self._turns(number)
            launch = self._launch()
            with uninterrupted():  # a worker that nobody knows of would be left behind
                self._workers[number] = Worker(launch, number, turns)
        return self._workers[number]

    def ends(self, number: int) -> Ends:
        """The ends that a worker has of the pipes to the one it takes turns with."""
        assert self._turns is not None
        return self._turns(number)

    def drop(self, number: int, why: str) -> None:
        """Gives up a worker. One that cannot start will not start for the next test either."""
        ended = self._workers.pop(number, None)
        if ended is None or ended.forks is None:
            self._broken = why
        if ended is not None:
            ended.end()

    def abandon(self) -> None:
        """Ends workers that may still be measuring what nobody waits for any more. The next request starts
        others."""
        for worker in self._workers.values():
            worker.end()
        self._workers.clear()

    @property
    def imports(self) -> bool:
        """Whether a worker is not ready yet."""
        return any(worker.forks is None for worker in self._workers.values())

    def let_go(self) -> None:
        """Tells the workers to end, without waiting for them."""
        for worker in self._workers.values():
            worker.let_go()

    def end(self) -> None:
        """Ends the workers."""
        self.let_go()
        for worker in self._workers.values():
            worker.end()
        self._workers.clear()


def share(left: float) -> float:
    """The most seconds that the next process may take: many, against noise, but not all while another
    process fits."""
    return min(left, max(LEAST_SECONDS, left * 0.4))
