"""Has a test measured by a worker of the work tree and one of another revision, which take turns."""

from __future__ import annotations

import math
import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Literal

from pytest_dispatchguard.measure.budgets.messages import Request, unpack_samples
from pytest_dispatchguard.measure.timing.lockstep import LOST, THE_OTHER, Ends, Partner
from pytest_dispatchguard.measure.timing.measurements import measurement
from pytest_dispatchguard.measure.timing.pairs import (
    MOST_PAIRS,
    MOST_TIMES,
    TIMES_LONGER,
    WORKER_PAIRS,
    inverse,
    is_due,
    over_pairs,
    worker_of,
)
from pytest_dispatchguard.measure.timing.timing import Sample
from pytest_dispatchguard.measure.workers.reports import Found, failure, report_from
from pytest_dispatchguard.measure.workers.sources import LEAST_SECONDS, Options, Source, share
from pytest_dispatchguard.measure.workers.workers import GRACE, Worker
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.measurements import Interval, Measurement
from pytest_dispatchguard.model.verdicts import Base, Verdict

_TICK = 0.2


@dataclass(slots=True)
class Pipes:
    """The pipes between pairs of workers, by the number of the pair. They last as long as the run: workers
    that die are started again with the same."""

    _pairs: dict[int, tuple[Ends, Ends]] = field(default_factory=dict)

    def of(self, number: int, *, base: bool) -> Ends:
        """The ends that one worker of a pair has."""
        if number not in self._pairs:
            here, there = os.pipe(), os.pipe()
            self._pairs[number] = Ends(here[0], there[1]), Ends(there[0], here[1])
        return self._pairs[number][base]

    def close(self) -> None:
        """Closes them all."""
        for pair in self._pairs.values():
            for ends in pair:
                os.close(ends.reading)
                os.close(ends.writing)
        self._pairs.clear()


@dataclass(slots=True)
class Paired:
    """What pairs of processes found, by the names of subjects."""

    head: dict[str, list[Sample]] = field(default_factory=dict)
    base: dict[str, list[Sample]] = field(default_factory=dict)
    seconds: float = 0.0
    """What pairs took, each at most what it was given."""
    pairs: int = 0
    broken: str = ""
    """Why there are no more."""
    here: bool = False
    """Whether that lies at the head, not at the base."""
    first: int = WORKER_PAIRS
    """How many pairs of workers are forked from the beginning."""
    over: bool = False
    """Whether there are no more because the time is up, or there are enough."""
    by_clock: float = 0.0
    """What pairs took by the clock: `seconds`, and what a busy machine adds."""

    def change(self, subject: str, confidence: float) -> Interval | None:
        """How many times what a call of a subject takes in the base it takes; None where nobody knows."""
        here, there = (found.get(subject, ()) for found in (self.head, self.base))
        changes = [sample.change for sample in here if sample.change]
        changes += [inverse(sample.change) for sample in there if sample.change]
        return over_pairs(changes, confidence, last=self.over) if changes else None

    def there(self, subject: str, confidence: float) -> Measurement | None:
        """What a call of a subject takes in the base; None where nobody knows."""
        samples = self.base.get(subject)
        return measurement(samples, confidence) if samples else None

    def turned(self) -> bool:
        """Whether the head follows in the next pair: by turns, for each pair of workers."""
        worker = worker_of(self.pairs, self.first)
        before = sum(worker_of(pair, self.first) == worker for pair in range(self.pairs))
        return (worker + before) % 2 == 1

    def told_of(self, verdict: Verdict, base: Base, confidence: float) -> Base:
        """The base of a verdict, with what was found."""
        measured = self.there(verdict.subject, confidence)
        change = self.change(verdict.subject, confidence)
        if measured is None or change is None or (self.broken and change.high == math.inf):
            place = "in the work tree, " if self.here else ""
            return replace(base, untimed=place + self.broken if self.broken else "it was not timed")
        return replace(base, measured=measured, change=change)


_MEETINGS = count(1)
_PARTS: tuple[Literal["lead"], Literal["follow"]] = ("lead", "follow")


def meet(
    workers: Sequence[Worker],
    ends: Sequence[Ends],
    request: Request,
    names: Sequence[str],
    found: Paired,
    tick: Callable[[], None],
) -> list[str]:
    """Has the subjects of a test timed by one pair of workers, that of the work tree first, and adds what
    they found. Whatever becomes of one of them, the other is told, and answers. Gives why each worker is
    gone; empty for one that is not.

    They lead by turns, each pair of workers as often as the other way round: which of the two does makes some
    tenths of a percent, as the other comes to each of its turns from sleep."""
    request = replace(request, meeting=next(_MEETINGS), subjects=tuple(names))
    parts = _PARTS[::-1] if found.turned() else _PARTS
    asked = [replace(request, lockstep=part) for part in parts]
    answers: dict[int, Mapping[str, Any]] = {}
    waiting: list[int] = []
    for side, worker in enumerate(workers):
        try:
            worker.send(asked[side], tick)
            waiting.append(side)
        except UserError as error:
            answers[side] = {"gone": str(error)}
    patience = request.timeout + GRACE
    give_up, told = time.monotonic() + patience, False
    while waiting:
        if not told and not all(answer.get("samples") for answer in answers.values()):
            told = True
            for side in waiting:
                # Said with the ends of the one that it waits for.
                Partner(ends[1 - side], request.meeting, 0.0).say(LOST)
        ready, _, _ = select.select([workers[side] for side in waiting], [], [], _TICK)
        tick()
        if not ready and time.monotonic() > give_up:
            for side in waiting:
                workers[side].end()
                answers[side] = {
                    "gone": f"the worker said nothing for {patience:g} s and was ended"
                }
            break
        for side in [side for side in waiting if workers[side] in ready]:
            waiting.remove(side)
            try:
                answers[side] = workers[side].receive(asked[side], tick)
            except UserError as error:
                answers[side] = {"gone": str(error)}
    for side, known in ((0, found.head), (1, found.base)):
        samples = unpack_samples(answers[side].get("samples") or {})
        for number, name in enumerate(names):
            known.setdefault(name, []).extend(samples.get(number, ()))
    lost = [(why, side == 0) for side, answer in answers.items() if (why := _why(answer))]
    # One that only waited can say no more than that it was left alone.
    lost.sort(key=lambda one: THE_OTHER in one[0])
    found.broken, found.here = lost[0] if lost else ("", False)
    found.pairs += 1
    return [str(answers[side].get("gone", "")) for side in (0, 1)]


def _why(answer: Mapping[str, Any]) -> str:
    """Why there is nothing; empty where there is."""
    if "samples" in answer:
        reports = list(map(report_from, answer.get("reports", ())))
        return "" if answer["samples"] else failure(Found(reports)) or "it could not be timed there"
    if "died" in answer:
        return f"the process that measured it {answer['died']}"
    return str(answer.get("missing") or answer.get("gone"))


def by_turns(
    sides: tuple[Source, Source],
    node_id: str,
    names: Sequence[str],
    options: Options,
    decided: Callable[[Paired], bool],
    tick: Callable[[], None],
) -> Paired:
    """Has subjects of a test timed by turns in two source trees, head and base: in as many pairs of processes
    as a decision needs."""
    paired = Paired()
    while True:
        seconds = min(share(_left(paired, options)), options.seconds / 4)
        request = Request(node_id, seconds, options.confidence, options.timeout + seconds)
        _meet(sides, request, names, paired, tick)
        paired.over = paired.pairs >= MOST_PAIRS or _left(paired, options) < LEAST_SECONDS
        if paired.broken or paired.over or (is_due(paired.pairs) and decided(paired)):
            return paired


def _left(paired: Paired, options: Options) -> float:
    """The seconds that are left for more pairs."""
    return min(
        options.seconds * TIMES_LONGER - paired.seconds,
        options.seconds * MOST_TIMES - paired.by_clock,
    )


def _meet(
    sides: tuple[Source, Source],
    request: Request,
    names: Sequence[str],
    paired: Paired,
    tick: Callable[[], None],
) -> None:
    """Has one more pair of processes measure."""
    paired.first = max(sides[0].number, WORKER_PAIRS)
    number = worker_of(paired.pairs, paired.first)
    workers = []
    side = sides[0]
    try:
        for side in sides:
            side.worker(number)  # they import side by side
        for side in sides:
            worker = side.worker(number)
            worker.wait(tick)
            workers.append(worker)
    except UserError as error:
        side.drop(number, str(error))
        paired.broken, paired.here = str(error), side is sides[0]
        return
    ends = [side.ends(number) for side in sides]
    start = time.monotonic()
    gone = meet(workers, ends, request, names, paired, tick)
    took = time.monotonic() - start
    paired.by_clock += took
    paired.seconds += min(took, request.seconds)
    for side, why in zip(sides, gone, strict=True):
        if why:
            side.drop(number, why)
