"""The plugin that has tests with budgets measured by workers, and takes their reports."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_dispatchguard.measure.budgets.comparison import against, is_open, needs_times
from pytest_dispatchguard.measure.budgets.messages import Request
from pytest_dispatchguard.measure.budgets.paces import paced
from pytest_dispatchguard.measure.budgets.session import keyed
from pytest_dispatchguard.measure.processes.launching import Launch, packages_of
from pytest_dispatchguard.measure.timing.intervals import PROCESSES
from pytest_dispatchguard.measure.timing.measurements import AGAINST_BASE
from pytest_dispatchguard.measure.workers.alone import alone
from pytest_dispatchguard.measure.workers.items import is_measured, node_id_of, tear_down
from pytest_dispatchguard.measure.workers.lockstep import Paired, by_turns
from pytest_dispatchguard.measure.workers.reports import Found, amended, failed, failure
from pytest_dispatchguard.measure.workers.sources import LEAST_SECONDS, Options, Source, share
from pytest_dispatchguard.model.layers import Layers
from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.model.verdicts import Base, Verdict

if TYPE_CHECKING:
    from pytest_dispatchguard.measure.workers.native import Native

_LAYER_SECONDS = 1.0
"""Seconds for the layers of a failing call, at most: no more than its times took."""
_BETWEEN_RUNS = 3
"""The least processes for a comparison with another run: a single one may be in a slow state."""


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
        native: Native | None = None,
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
        """Starts the first worker, so that it imports while this process does. Of those that take turns none
        starts before it is known whether they need torch."""
        if self.base is None and not session.config.getoption("collectonly"):
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
        with alone(self.lock):
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
            for side in (self.head, self.base):
                if side is not None:
                    side.abandon()
            found = Found(broken=str(error))
        if not found.reports:
            return [failed(item, f"{item.name} could not be measured: {found.broken}")]
        for report in found.reports:
            report.nodeid = item.nodeid  # with the suffix of pytest-xdist
        return amended(found, self.complaint)

    def _count_native(self, item: pytest.Item, found: Found) -> None:
        if self.native is not None:

            def tick() -> None:
                self.tell(item.name, self.done, self.of)

            found.verdicts = self.native.added(item, found.verdicts, tick)

    def _tick(self, name: str) -> None:
        """Says what is measured, or waited for."""
        sides = [side for side in (self.head, self.base) if side is not None and side.imports]
        self.tell(f"{name} ({sides[0].name} is importing)" if sides else name, self.done, self.of)

    def _left(self, found: Found) -> float:
        return self.options.seconds - found.seconds

    def _is_over(self, found: Found) -> bool:
        return len(found.metadata) >= PROCESSES or self._left(found) < LEAST_SECONDS

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
            self.options.saving or self.saved is not None,
        )
        source.ask(found, request, partial(self._tick, item.name))

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
        confidence = self.options.confidence
        return [
            against(verdict, paced(verdict, saved.get(key, none), confidence))
            for key, verdict in keyed(verdicts)
        ]

    def _compare_with_base(self, item: pytest.Item, found: Found, source: Source) -> None:
        alone, before = found.verdicts, Found()
        self._ask(source, before, item, 0.0, False)  # counters alone
        bases = self._bases(before, alone)
        names = [
            verdict.subject
            for verdict, base in zip(alone, bases, strict=True)
            if needs_times(verdict, base, self.options.precision)
        ]
        if names:
            bases = self._in_lockstep(item, alone, bases, source, names)
        found.verdicts = list(map(against, alone, bases))

    def _in_lockstep(
        self,
        item: pytest.Item,
        alone: Sequence[Verdict],
        bases: Sequence[Base],
        source: Source,
        names: Sequence[str],
    ) -> list[Base]:
        """The bases, with how the subjects of these names differ from them: timed by turns in as many pairs
        of processes as verdicts, and the precision that was asked for, need."""
        options = self.options

        def told(paired: Paired) -> list[Base]:
            return [
                paired.told_of(v, base, options.confidence) if v.subject in names else base
                for v, base in zip(alone, bases, strict=True)
            ]

        def decided(paired: Paired) -> bool:
            return not any(
                v.subject in names and is_open(v, base, options.precision)
                for v, base in zip(alone, told(paired), strict=True)
            )

        sides, tick = (self.head, source), partial(self._tick, item.name)
        return told(by_turns(sides, node_id_of(item), names, options, decided, tick))

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
            if base is None and len(here) == len(there) == 1:
                base = next(iter(there.values()))  # by another name
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
            layers=min(_LAYER_SECONDS, self.options.seconds),
        )
        source.ask(apart, request, partial(self._tick, item.name))
        if apart.broken:
            return {"": Verdict(item.nodeid, "", "error", {}, reason=apart.broken)}
        return {verdict.subject: verdict for verdict in apart.verdicts}

    def _bases(self, before: Found, verdicts: Sequence[Verdict]) -> list[Base]:
        """The base of each verdict, in order."""
        note = before.broken or failure(before)
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
        if self.base is not None:
            self.head.let_go()
            self.base.end()
        self.head.end()
        if self.native is not None:
            self.native.end()


def _at_one_pace(here: Layers, there: Layers | None, ratio: Interval | None) -> Layers | None:
    """Scales the layers of another call to the measured ratio, as the machine may have been faster for one
    of them."""
    if there is None or ratio is None or not there.whole_us.value:
        return there
    return there.at_pace(here.whole_us.value / ratio.value / there.whole_us.value)


def _without_base(verdict: Verdict) -> Verdict:
    """Notes that a limit on regressions has no base to compare with."""
    if not any(limit.name == AGAINST_BASE for limit in verdict.limits):
        return verdict
    note = f"{AGAINST_BASE} needs a base: --overhead-against or --overhead-compare"
    return replace(verdict, reason="; ".join(filter(None, (verdict.reason, note))))


def _undecided(verdicts: Sequence[Verdict]) -> bool:
    """Whether more measuring could decide."""
    return any(verdict.verdict == "undecided" for verdict in verdicts)


def launch_of(config: pytest.Config) -> Launch:
    """How workers of this run are started."""
    arguments = list(config.invocation_params.args)
    if config.pluginmanager.hasplugin("_cov"):
        arguments = [*arguments, "--no-cov"]
    return Launch(
        [str(a) for a in arguments],
        config.invocation_params.dir,
        list(sys.path),
        packages=packages_of(sys.path, config.rootpath),
    )
