"""Times the same subject in two processes that take turns, block by block: one sleeps while the other runs.

Both so meet the machine at the same pace, and the fastest blocks of each say how the two differ. One
process leads: it says whose turn it is, keeps the times of both, and decides when they are enough."""

from __future__ import annotations

import gc
import math
import os
import random
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from statistics import fmean, stdev
from struct import Struct

from pytest_dispatchguard.measure.timing.calibration import pace, undisturbed
from pytest_dispatchguard.measure.timing.calling import Block, Call, empty_block
from pytest_dispatchguard.measure.timing.devices import HOST, Device
from pytest_dispatchguard.measure.timing.intervals import median, median_interval
from pytest_dispatchguard.measure.timing.pairs import is_fine
from pytest_dispatchguard.measure.timing.timeouts import said_nothing
from pytest_dispatchguard.measure.timing.timing import Clock, Sample, growth, thinned
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.runtime.code.placement import at_some_depth

_MESSAGE = Struct("<BIq")
"""What is said, in which meeting, and a number."""
HELLO, WARM, GO, DONE, STOP, LOST = range(6)
THE_OTHER = "the other revision"
"""Whom a process blames that only waited."""
_WARM = 8
"""Of a block, so many parts are called before it, untimed: while it slept the other used the caches."""
_LEAST_WARM, _WARM_NS = 2, 400_000
"""So many calls at least, as long as they take no longer than that. A long call meets the caches as the other
left them, in both processes alike: neighbors that are nearer in time say more than warm ones."""
_SETTLE = 30e-6
"""Seconds that a process sleeps before a turn: the other, which has just spoken, still has to fall asleep,
and would do so on this core within the turn. And both come to all turns from sleep."""
_PR_SET_TIMERSLACK, _EXACT = 29, 1
_BLOCK_NS = 100_000
"""What a block takes, at least: to hand over takes as long, and the first calls after it are slower. Longer
ones are no better, as neighbors are further apart then."""
_TIMES_MORE = 8
"""How many times the calls of its block a process makes, at most, as the other's calls are shorter."""
_FIRST_LOOK = 25
_LEAST_SECONDS = 0.1
_MOST_ROUNDS = 128
"""What is not sure enough after so many, and that time, is left to other pairs of processes."""
_BATCH = 25
"""Rounds between collections of garbage."""
_REFERENCE_EVERY = 4
"""Rounds from one in which the reference is timed, too, to the next."""
_PARTS = 1000
"""Of a nanosecond, in which times are told."""
_STANDARD_ERROR = 0.683
"""The confidence of an interval of one standard deviation."""
_DEPENDENCE = 1
"""Rounds that count as one. As chance says who begins, ratios of neighboring rounds hardly have to do with
each other: they correlate by 0.06 at most, for calls of 4 to 300 µs."""
_FASTEST, _FIRST_OF_ALL = 0.2, 0.02
"""Of all blocks, the mean of the fastest counts, but not the very fastest. What the machine does besides
makes blocks slower, those of a single call by up to a half, and none faster: for a training step of 0.3 ms
that mean is as sure after 100 rounds as the median of all ratios is after 400."""
_GROUPS = 8
"""Of rounds, whose means tell how sure theirs is."""
_LEAST_FAST = 40
"""Rounds, at least, for that."""
_BY_CHANCE = 4.0
"""So many standard errors the median of all ratios may be off. Where it is further off, the two differ in
other blocks than the fastest, and the median counts."""
_CHANCE = random.Random()
"""A generator of its own, as a subject may seed Python's."""


@dataclass(frozen=True, slots=True)
class Ends:
    """The ends of the two pipes between the processes, as one of them has them."""

    reading: int
    writing: int


@dataclass(slots=True)
class Partner:
    """The other process, in one meeting."""

    ends: Ends
    meeting: int
    """Its number: what was said in others is passed over."""
    patience: float
    """Seconds without a word after which the other counts as lost."""

    def say(self, what: int, number: int = 0) -> None:
        """Says something."""
        try:
            os.write(self.ends.writing, _MESSAGE.pack(what, self.meeting, number))
        except BrokenPipeError:
            raise _lost() from None

    def hear(self, *expected: int) -> tuple[int, int]:
        """Waits for one of these: what was said, and the number."""
        until = time.monotonic() + self.patience
        while True:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.ends.reading], [], [], left)[0]:
                raise UserError(said_nothing(THE_OTHER, self.patience))
            # Both ends write whole messages, which are shorter than what a pipe may divide.
            heard = os.read(self.ends.reading, _MESSAGE.size)
            if len(heard) < _MESSAGE.size:
                raise _lost()
            what, meeting, number = _MESSAGE.unpack(heard)
            if meeting != self.meeting:
                continue
            if what == LOST or what not in expected:
                raise _lost()
            return what, number


def _lost() -> UserError:
    return UserError(f"the process of {THE_OTHER} is gone")


@dataclass(slots=True)
class Turns:
    """The turns of one process."""

    block: Block
    reference: Block | None
    empty: Block
    prepare: Callable[[], object] | None
    device: Device
    clock: Clock
    loops: int = 1
    reference_loops: int = 1
    warm: int = _LEAST_WARM
    """Calls, at least, that lead a block."""
    reference_warm: int = _LEAST_WARM
    times: list[float] = field(default_factory=list)
    """Nanoseconds of a call, turn by turn."""
    pairs: list[tuple[float, float]] = field(default_factory=list)
    """The same of subject and reference, where both were timed."""
    nothing: list[float] = field(default_factory=list)
    """Nanoseconds of an empty loop's turn."""

    def calibrate(self) -> tuple[int, int]:
        """How many calls make a block here, and how many lead it, at least."""
        if self.reference is not None:
            self.reference_loops, self.reference_warm = self._paced(self.reference)
        return self._paced(self.block)

    def agree(self, partner: Partner, *, first: bool) -> None:
        """Settles both numbers with the other process. A call that follows another one is faster: were the
        blocks of one process led and the other's not, the same code would seem to differ. They find them one
        after the other, as calls of two processes on one core take twice as long."""
        loops = warm = there = warm_there = 0
        for own in (first, not first):
            if own:
                loops, warm = self.calibrate()
                partner.say(HELLO, loops)
                partner.say(WARM, warm)
            else:
                there, warm_there = partner.hear(HELLO)[1], partner.hear(WARM)[1]
        self.loops, self.warm = _in_both(loops, there), min(warm, warm_there)

    def _paced(self, block: Block) -> tuple[int, int]:
        """The calls in a block, and those that lead it, at least."""
        found = pace(block, self.prepare, self.device)
        took = max(found.call_ns, 1.0)
        loops = max(found.loops, min(round(_BLOCK_NS / took), self.device.most_calls))
        return loops, min(_LEAST_WARM, round(_WARM_NS / took))

    def take(self, *, both: bool = False) -> float:
        """Takes a turn; gives the nanoseconds of a call. `both`: the reference is timed, too."""
        return at_some_depth(partial(self._take, both))

    def _take(self, both: bool) -> float:
        took = self._timed(self.block, self.loops, self.warm)
        self.times.append(took)
        if both and self.reference is not None:
            there = self._timed(self.reference, self.reference_loops, self.reference_warm)
            self.pairs.append((took, there))
        if len(self.times) % _BATCH == 1:
            self.nothing.append(self.empty(repeat(None, self.loops)) / self.loops)
            gc.collect(1)
        return took

    def _timed(self, block: Block, loops: int, warm: int) -> float:
        time.sleep(_SETTLE)
        prepare = self.prepare
        if prepare is not None:
            prepare()
        block(repeat(None, max(warm, loops // _WARM)))
        if prepare is not None:
            prepare()
        self.device.wait()
        took = block(repeat(None, loops)) / loops
        self.device.wait()
        return took


def turns_of(
    subject: Call,
    reference: Call | None,
    prepare: Callable[[], object] | None = None,
    device: Device = HOST,
    clock: Clock = time.perf_counter_ns,
) -> Turns:
    """The turns of a process that times these calls."""
    against = None if reference is None else reference.block(clock)
    return Turns(subject.block(clock), against, empty_block(clock), prepare, device, clock)


@contextmanager
def _on_one_core() -> Iterator[None]:
    """Both processes run on the same core, where the system allows: cores of one machine can differ by half
    in their pace, and would then tell of themselves. Short sleeps are not made longer."""
    _sleep_exactly()
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {max(before)})
    except OSError:
        before = set()
    try:
        yield
    finally:
        if before:
            os.sched_setaffinity(0, before)


def _sleep_exactly() -> None:
    """Linux lets sleeps of this thread last 50 µs longer, unless told otherwise."""
    if sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _EXACT, 0, 0, 0)


def lead(turns: Turns, partner: Partner, seconds: float, confidence: float) -> Sample:
    """Leads until more blocks would say no more, or the time is up. The sample's `change` is how many times
    what a call takes there it takes here."""
    clock = turns.clock
    other: list[float] = []
    with undisturbed(), _on_one_core():
        turns.agree(partner, first=True)
        start = clock()
        look = _FIRST_LOOK
        while True:
            both = len(other) % _REFERENCE_EVERY == 0
            first = _CHANCE.random() < 0.5
            if first:
                turns.take(both=both)
            partner.say(GO, both)
            other.append(partner.hear(DONE)[1] / _PARTS)
            if not first:
                turns.take(both=both)
            spent = (clock() - start) / 1e9
            enough = spent >= _LEAST_SECONDS
            due = enough and len(other) >= look
            over = spent >= seconds or (enough and len(other) >= _MOST_ROUNDS)
            if due or over:
                found = _sample(turns, other, confidence)
                if over or (found.change is not None and is_fine(found.change)):
                    partner.say(STOP)
                    return found
                while look <= len(other):
                    look *= 2


def _in_both(own: int, there: int) -> int:
    """The calls in a block of two processes: as many in both, and in neither fewer than its block takes, as
    long as the dearer one's are not many times as long for that."""
    fewer, more = sorted((max(1, own), max(1, there)))
    return min(more, _TIMES_MORE * fewer)


def follow(turns: Turns, partner: Partner, confidence: float) -> Sample:
    """Takes turns until the one that leads, which keeps the time, has enough."""
    with undisturbed(), _on_one_core():
        turns.agree(partner, first=False)
        while True:
            said, both = partner.hear(GO, STOP)
            if said == STOP:
                return _sample(turns, (), confidence)
            partner.say(DONE, round(turns.take(both=bool(both)) * _PARTS))


def _sample(turns: Turns, other: Sequence[float], confidence: float) -> Sample:
    nothing = median(sorted(turns.nothing)) if turns.nothing else 0.0

    def of_a_call(took: float) -> float:
        return max(took - nothing, 0.1) / 1000

    def interval(values: Sequence[float]) -> Interval:
        return median_interval(values, confidence) or Interval(
            median(sorted(values)), -math.inf, math.inf
        )

    own = [of_a_call(took) for took in turns.times] or [of_a_call(0.0)]
    theirs = [of_a_call(took) for took in other]
    pairs = [(of_a_call(one), of_a_call(there)) for one, there in turns.pairs]
    return Sample(
        subject_us=interval(own),
        reference_us=interval([there for _, there in pairs]) if pairs else None,
        ratio=interval([one / there for one, there in pairs]) if pairs else None,
        extra_us=interval([one - there for one, there in pairs]) if pairs else None,
        control=1.0,
        pairs=len(own),
        loops=(turns.loops, turns.reference_loops),
        grows=growth([one / there for one, there in zip(own, theirs, strict=False)]),
        values=(thinned(own), thinned([there for _, there in pairs])),
        change=_change(own, theirs) if theirs else None,
    )


def _change(own: Sequence[float], theirs: Sequence[float]) -> Interval:
    """How many times as long the one takes, and its standard error: what pairs of processes say together has
    the confidence."""
    ratios = [one / there for one, there in zip(own, theirs, strict=False)]
    known = median_interval(ratios, _STANDARD_ERROR, looks=1, dependence=_DEPENDENCE)
    known = known or Interval(median(sorted(ratios)), 0.0, math.inf)
    rounds = len(ratios)
    if rounds < _LEAST_FAST:
        return known
    change = _fast(own[:rounds]) / _fast(theirs[:rounds])
    groups = (slice(start, rounds, _GROUPS) for start in range(_GROUPS))
    error = stdev(math.log(_fast(own[g]) / _fast(theirs[g])) for g in groups) / math.sqrt(_GROUPS)
    usual = (known.high - known.low) / 2 / known.value
    if abs(math.log(change / known.value)) > _BY_CHANCE * math.hypot(error, usual):
        return known
    return Interval(change, change * math.exp(-error), change * math.exp(error))


def _fast(times: Sequence[float]) -> float:
    """What a call takes where little else happens."""
    ordered = sorted(times)
    first = int(_FIRST_OF_ALL * len(ordered))
    return fmean(ordered[first : max(first + 1, round(_FASTEST * len(ordered)))])
