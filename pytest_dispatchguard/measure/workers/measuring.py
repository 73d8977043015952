"""The plugin that has tests with budgets measured by workers, and takes their reports."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from pytest_dispatchguard.measure.budgets.comparison import against, is_open, needs_times
from pytest_dispatchguard.measure.budgets.messages import (
    Request,
    pack_samples,
    pack_verdicts,
    unpack_samples,
    unpack_verdicts,
)
from pytest_dispatchguard.measure.budgets.session import keyed
from pytest_dispatchguard.measure.timing.intervals import PROCESSES
from pytest_dispatchguard.measure.timing.lockstep import Ends
from pytest_dispatchguard.measure.timing.measurements import AGAINST_BASE
from pytest_dispatchguard.measure.timing.timing import Sample
from pytest_dispatchguard.measure.workers.lockstep import Paired, meet
from pytest_dispatchguard.measure.workers.workers import Launch, Worker
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.layers import Layers
from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.model.verdicts import Base, Verdict

_LEAST_SECONDS = 0.3
"""A process needs at least this time to measure anything."""
_LAYER_SECONDS = 1.0
"""Seconds for the layers of a failing call."""
_PAIRS = 4
"""Different pairs of workers that take turns, at least, before one measures again."""
_BETWEEN_RUNS = 3
"""The least processes for a comparison with another run: a single one may be in a slow state."""


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


@dataclass(slots=True)
class Found:
    """The results of a test in one source tree, over all processes that measured it."""

    reports: list[pytest.TestReport] = field(default_factory=list)
    """Of the last process."""
    verdicts: list[Verdict] = field(default_factory=list)
    samples: dict[int, list[Sample]] = field(default_factory=dict)
    """By the order of subjects in the test."""
    metadata: list[dict[str, Any]] = field(default_factory=list)
    """Of each process."""
    seconds: float = 0.0
    """That measuring took."""
    broken: str = ""
    """Why there are no reports; empty if there are."""


class Source:
    """One source tree and the workers that measure it."""

    def __init__(
        self,
        launch: Callable[[], Launch],
        workers: int,
        turns: Callable[[int], Ends] | None = None,
    ) -> None:
        """`turns` gives the ends of the pipes between workers of the same number."""
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
            self._workers[number] = Worker(self._launch(), number, turns)
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

    def end(self) -> None:
        """Ends the workers."""
        for worker in self._workers.values():
            worker.end()
        self._workers.clear()


class Adding(Protocol):
    """Workers that count what needs a process of its own."""

    def added(
        self, item: pytest.Item, verdicts: Sequence[Verdict], tick: Callable[[], None]
    ) -> list[Verdict]:
        """The verdicts of a test with what was counted. `tick` is called now and then."""

    def end(self) -> None:
        """Ends the workers."""


class Measuring:
    """The plugin that has tests measured, one at a time."""

    def __init__(
        self,
        head: Source,
        options: Options,
        *,
        complaint: Callable[[Sequence[Verdict]], str],
        lock: Path | None = None,
        base: Source | None = None,
        base_name: str = "",
        saved: Mapping[str, Base] | None = None,
        tell: Callable[[str, int, int], None] = lambda what, done, of: None,
        native: Adding | None = None,
    ) -> None:
        self.head = head
        self.base = base
        self.base_name = base_name
        self.saved = saved
        self.options = options
        self.complaint = complaint
        self.lock = lock
        self.native = native
        self.tell = tell
        """Called with what is measured, how many are done, and the total."""
        self.done, self.of = 0, 0

    def pytest_collection(self, session: pytest.Session) -> None:
        """Starts the first worker, so that it imports while this process does."""
        if not session.config.getoption("collectonly"):
            self.head.start()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Ends it if there is nothing to measure."""
        self.of = sum(map(is_measured, session.items))
        if not self.of:
            self.head.end()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        """Takes the place of running a test that has a budget."""
        if not is_measured(item):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        with _alone(self.lock):
            reports = self.reports(item)
        self.done += 1
        self.tell("", self.done, self.of)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        tear_down(item, nextitem)
        return True

    def reports(self, item: pytest.Item) -> list[pytest.TestReport]:
        """The reports of a test, with its verdicts."""
        found = Found()
        try:
            while self._more(self.head, found, item):
                kept = self.options.fully and found.samples
                enough = not kept or len(found.metadata) >= _BETWEEN_RUNS
                if (enough and not _undecided(found.verdicts)) or self._is_over(found):
                    break
            if found.reports:
                self._compare(item, found)
                self._count_native(item, found)
                self._take_apart(item, found)
        except pytest.fail.Exception as error:  # a plugin's time limit, while we wait
            found = Found(broken=str(error))
        if not found.reports:
            return [failed(item, f"{item.name} could not be measured: {found.broken}")]
        for report in found.reports:
            report.nodeid = item.nodeid  # with the suffix of pytest-xdist
        return amended(found, self.complaint)

    def _count_native(self, item: pytest.Item, found: Found) -> None:
        if self.native is not None:
            found.verdicts = self.native.added(
                item, found.verdicts, lambda: self.tell(item.name, self.done, self.of)
            )

    def _left(self, found: Found) -> float:
        return self.options.seconds - found.seconds

    def _is_over(self, found: Found) -> bool:
        return len(found.metadata) >= PROCESSES or self._left(found) < _LEAST_SECONDS

    def _more(
        self, source: Source, found: Found, item: pytest.Item, *, fully: bool = False
    ) -> bool:
        """Has a test measured by one more process; whether it was."""
        self._ask(source, found, item, share(self._left(found)), fully)
        return not found.broken

    def _ask(
        self, source: Source, found: Found, item: pytest.Item, seconds: float, fully: bool
    ) -> None:
        request = Request(
            node_id_of(item),
            seconds,
            self.options.confidence,
            self.options.timeout + seconds,
            found.samples,
            fully or self.options.fully or self.saved is not None,
        )
        source.ask(found, request, lambda: self.tell(item.name, self.done, self.of))

    def _compare(self, item: pytest.Item, found: Found) -> None:
        """Compares verdicts with the base or with a saved run."""
        if not found.verdicts:
            return
        if self.saved is not None:
            compared = self._against_saved(found.verdicts, self.saved)
            timed = [v.base is not None and needs_times(v, v.base) for v in compared]
            while not self._is_over(found):
                enough = not any(timed) or len(found.metadata) >= _BETWEEN_RUNS
                if enough and not _undecided(compared):
                    break
                if not self._more(self.head, found, item):
                    break
                compared = self._against_saved(found.verdicts, self.saved)
            found.verdicts = compared
        elif self.base is not None:
            self._compare_with_base(item, found, self.base)
        else:
            found.verdicts = [_without_base(verdict) for verdict in found.verdicts]

    def _against_saved(
        self, verdicts: Sequence[Verdict], saved: Mapping[str, Base]
    ) -> list[Verdict]:
        none = Base(self.base_name, {}, note=f"{self.base_name} has no such subject")
        return [against(verdict, saved.get(key, none)) for key, verdict in keyed(verdicts)]

    def _compare_with_base(self, item: pytest.Item, found: Found, source: Source) -> None:
        alone, before = found.verdicts, Found()
        self._ask(source, before, item, 0.0, False)  # counters alone
        bases = self._bases(before, alone)
        if any(map(needs_times, alone, bases)):
            bases = self._in_lockstep(item, alone, bases, source)
        found.verdicts = list(map(against, alone, bases))

    def _in_lockstep(
        self,
        item: pytest.Item,
        alone: Sequence[Verdict],
        bases: Sequence[Base],
        source: Source,
    ) -> list[Base]:
        """The bases, with how subjects differ from them: timed by turns in as many pairs of processes as the
        verdicts need."""
        names = [v.subject for v, base in zip(alone, bases, strict=True) if needs_times(v, base)]
        paired, options = Paired(), self.options
        while True:
            left = options.seconds - paired.seconds
            request = Request(
                node_id_of(item), share(left), options.confidence, options.timeout + share(left)
            )
            self._meet(source, request, names, paired, item.name)
            told = [
                paired.told_of(v, base, options.confidence) if v.subject in names else base
                for v, base in zip(alone, bases, strict=True)
            ]
            over = paired.pairs >= PROCESSES or options.seconds - paired.seconds < _LEAST_SECONDS
            if paired.broken or over or not any(map(is_open, alone, told)):
                return told

    def _meet(
        self, source: Source, request: Request, names: Sequence[str], paired: Paired, name: str
    ) -> None:
        """Has one more pair of processes measure."""
        number = paired.pairs % max(self.head.number, _PAIRS)

        def tick() -> None:
            self.tell(name, self.done, self.of)

        workers, ends = [], []
        for side in (self.head, source):
            try:
                worker = side.worker(number)
                worker.wait(tick)
            except UserError as error:
                side.drop(number, str(error))
                paired.broken = str(error)
                return
            workers.append(worker)
            ends.append(side.ends(number))
        start = time.monotonic()
        gone = meet(workers, ends, request, names, paired, tick)
        paired.seconds += min(time.monotonic() - start, request.seconds)
        for side, why in zip((self.head, source), gone, strict=True):
            if why:
                side.drop(number, why)

    def _take_apart(self, item: pytest.Item, found: Found) -> None:
        """Adds layers to failing verdicts, for this tree and for the base."""
        failing = [v for v in found.verdicts if v.verdict == "fail" and v.measured is not None]
        if not failing:
            return
        here = self._layers(self.head, item)
        there = self._layers(self.base, item) if self.base is not None else {}
        for number, verdict in enumerate(found.verdicts):
            known = here.get(verdict.subject, here.get(""))
            base = there.get(verdict.subject)
            if verdict not in failing or known is None or verdict.measured is None:
                continue
            if known.layers is None:
                told = filter(None, (verdict.reason, known.reason))
                found.verdicts[number] = replace(verdict, reason="; ".join(told))
                continue
            measured = verdict.measured
            mine = known.layers.at_pace(measured.subject_us.value / known.layers.whole_us.value)
            reference = _at_one_pace(mine, known.reference_layers, measured.ratio)
            apart = replace(verdict, layers=mine, reference_layers=reference)
            if verdict.base is not None and base is not None:
                layers = _at_one_pace(mine, base.layers, verdict.base.change)
                apart = replace(apart, base=replace(verdict.base, layers=layers))
            found.verdicts[number] = apart

    def _layers(self, source: Source, item: pytest.Item) -> Mapping[str, Verdict]:
        """The subjects of a test with their layers in one source tree; nothing if that fails."""
        apart = Found()
        request = Request(
            node_id_of(item),
            0.0,
            self.options.confidence,
            self.options.timeout,
            layers=_LAYER_SECONDS,
        )
        source.ask(apart, request, lambda: self.tell(item.name, self.done, self.of))
        if apart.broken:
            return {"": Verdict(item.nodeid, "", "error", {}, reason=apart.broken)}
        return {verdict.subject: verdict for verdict in apart.verdicts}

    def _bases(self, before: Found, verdicts: Sequence[Verdict]) -> list[Base]:
        """The base of each verdict, in order."""
        note = before.broken or _failure(before)
        known = dict(keyed(before.verdicts))
        bases = []
        for key, _ in keyed(verdicts):
            verdict = known.get(key)
            if verdict is None or not verdict.counters:
                why = note or (verdict.reason if verdict else "it has no such subject")
                bases.append(Base(self.base_name, {}, note=f"{self.base_name}: {why}"))
            else:
                bases.append(
                    Base(
                        self.base_name,
                        verdict.counters,
                        verdict.measured,
                        lines=verdict.lines,
                        compiled=verdict.compiled,
                    )
                )
        return bases

    def pytest_unconfigure(self) -> None:
        """Ends the workers."""
        self.end()

    def end(self) -> None:
        """Ends the workers."""
        self.head.end()
        if self.base is not None:
            self.base.end()
        if self.native is not None:
            self.native.end()


def _at_one_pace(here: Layers, there: Layers | None, ratio: Interval | None) -> Layers | None:
    """Scales the layers of another call to the measured ratio, as the machine may have been faster for one
    of them."""
    if there is None or ratio is None or not there.whole_us.value:
        return there
    return there.at_pace(here.whole_us.value / ratio.value / there.whole_us.value)


def tear_down(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Tears down fixtures of earlier tests in this process that the next test does not need."""
    call = pytest.CallInfo.from_call(
        lambda: item.session._setupstate.teardown_exact(nextitem),
        "teardown",
        reraise=(pytest.exit.Exception, KeyboardInterrupt),
    )
    if call.excinfo is not None:
        report = item.ihook.pytest_runtest_makereport(item=item, call=call)
        item.ihook.pytest_runtest_logreport(report=report)


def node_id_of(item: pytest.Item) -> str:
    """The node id of a test, without the group that pytest-xdist appends."""
    if not item.config.getoption("loadgroup", False):
        return item.nodeid
    node_id, at, group = item.nodeid.rpartition("@")
    mark = item.get_closest_marker("xdist_group")
    return node_id if at and mark is not None and group in map(str, _words(mark)) else item.nodeid


def _words(mark: pytest.Mark) -> tuple[object, ...]:
    return (*mark.args, *mark.kwargs.values())


def _without_base(verdict: Verdict) -> Verdict:
    """Notes that a limit on regressions has no base to compare with."""
    if not any(limit.name == AGAINST_BASE for limit in verdict.limits):
        return verdict
    note = f"{AGAINST_BASE} needs a base: --overhead-against or --overhead-compare"
    return replace(verdict, reason="; ".join(filter(None, (verdict.reason, note))))


def is_measured(item: pytest.Item) -> bool:
    """Whether a test may name subjects."""
    return (
        "overhead" in getattr(item, "fixturenames", ())
        or item.get_closest_marker("overhead_budget") is not None
    )


def share(left: float) -> float:
    """The most seconds that the next process may take: many, against noise, but not all while another
    process fits."""
    return min(left, max(_LEAST_SECONDS, left * 0.4))


def _undecided(verdicts: Sequence[Verdict]) -> bool:
    """Whether more measuring could decide."""
    return any(verdict.verdict == "undecided" for verdict in verdicts)


def verdicts_of(reports: Sequence[pytest.TestReport]) -> list[Verdict]:
    """The verdicts that the reports of a test carry."""
    return [v for report in reports for v in unpack_verdicts(getattr(report, "overhead", "[]"))]


def report_from(data: dict[str, Any]) -> pytest.TestReport:
    """A report that another process made."""
    if data["outcome"] == "skipped" and isinstance(data["longrepr"], list):
        # JSON has no tuples, and pytest needs one.
        data["longrepr"] = tuple(data["longrepr"])
    report = pytest.TestReport._from_json(data)
    report.user_properties = [(name, value) for name, value in report.user_properties]
    return report


def _failure(found: Found) -> str:
    """Why a test has no verdicts; empty if nothing failed."""
    for report in found.reports:
        if report.failed:
            text = str(getattr(report.longrepr, "reprcrash", None) or report.longreprtext)
            return f"the test fails there: {text.strip().splitlines()[-1]}"
    return ""


def failed(item: pytest.Item, said: str) -> pytest.TestReport:
    """The report of a test that could not be measured, with its verdict."""
    keywords: dict[str, Any] = dict.fromkeys(item.keywords, 1)
    report = pytest.TestReport(item.nodeid, item.location, keywords, "failed", said, "call")
    carry(report, [Verdict(item.nodeid, item.name, "error", {}, reason=said)])
    return report


def carry(report: pytest.TestReport, verdicts: Sequence[Verdict]) -> None:
    """Attaches verdicts to a report, for the process that shows them."""
    vars(report)["overhead"] = pack_verdicts(verdicts)


def amended(found: Found, complaint: Callable[[Sequence[Verdict]], str]) -> list[pytest.TestReport]:
    """The reports of a test with its final verdicts."""
    for report in found.reports:
        if report.when == "call" and found.verdicts:
            wrong = complaint(found.verdicts)
            if wrong and report.passed and not hasattr(report, "wasxfail"):
                report.outcome, report.longrepr = "failed", wrong
            elif wrong and report.failed and any(v.base or v.layers for v in found.verdicts):
                by_itself = any(verdict.verdict == "error" for verdict in found.verdicts)
                if not by_itself and "[XPASS" not in report.longreprtext:
                    report.longrepr = wrong  # adds base and layers; a traceback is kept
            carry(report, found.verdicts)
            vars(report)["overhead_samples"] = json.dumps(
                {"samples": pack_samples(found.samples), "metadata": found.metadata}
            )
    return found.reports


@contextmanager
def _alone(lock: Path | None) -> Iterator[None]:
    """Waits until no other process of this run measures."""
    if lock is None or sys.platform == "win32":
        yield
        return
    handle = _locked(lock)
    try:
        yield
    finally:
        # A process that waits for it finds it removed, and makes a new one.
        lock.unlink(missing_ok=True)
        os.close(handle)


def _locked(path: Path) -> int:
    """Waits for a lock; gives the open file that holds it."""
    import fcntl

    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        except FileNotFoundError:
            pass  # it was removed while this process waited
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def launch_of(config: pytest.Config) -> Launch:
    """How workers of this run are started."""
    arguments = list(config.invocation_params.args)
    if config.pluginmanager.hasplugin("_cov"):
        arguments = [*arguments, "--no-cov"]
    return Launch([str(a) for a in arguments], config.invocation_params.dir, list(sys.path))


def lock_of(config: pytest.Config) -> Path | None:
    """The lock file for measuring in one pytest-xdist process at a time; None without pytest-xdist."""
    inner = getattr(config, "workerinput", None)
    if inner is None:
        return None
    return Path(tempfile.gettempdir()) / f"dispatchguard-{inner['testrunuid']}.lock"
