"""Times the same subject in two processes that take turns, block by block: one sleeps while the other runs.

Both so meet the machine at the same pace, and the ratio of neighbouring blocks says how the two differ. One
process leads: it says whose turn it is, keeps the times of both, and decides when they are enough."""

from __future__ import annotations

import gc
import os
import random
import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from struct import Struct

from pytest_dispatchguard.measure.timing.calibration import pace, undisturbed
from pytest_dispatchguard.measure.timing.calling import Block, Call, empty_block
from pytest_dispatchguard.measure.timing.devices import HOST, Device
from pytest_dispatchguard.measure.timing.intervals import LOOKS, median, median_interval
from pytest_dispatchguard.measure.timing.measurements import pairs_share
from pytest_dispatchguard.measure.timing.timing import Clock, Sample, growth, thinned
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.measurements import Interval

_MESSAGE = Struct("<BIq")
"""What is said, in which meeting, and a number."""
HELLO, READY, GO, DONE, STOP, LOST = range(6)
_WARM = 8
"""Of a block, so many parts are called before it, untimed: while it slept the other used the caches."""
_LEAST_WARM = 2
_FIRST_LOOK = 25
_LEAST_SECONDS = 0.1
_BATCH = 25
"""Rounds between collections of garbage."""
_FEWEST_LOOPS = 1
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
                raise UserError(
                    f"the other revision said nothing for {self.patience:g} s "
                    "(--overhead-timeout allows longer)"
                )
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
    return UserError("the process of the other revision is gone")


@dataclass(slots=True)
class _Turns:
    """The turns of one process."""

    block: Block
    prepare: Callable[[], object] | None
    device: Device
    loops: int = 1
    times: list[float] = field(default_factory=list)
    """Nanoseconds of a call, turn by turn."""

    def calibrate(self) -> int:
        """How many calls make a block here."""
        return pace(self.block, self.prepare, self.device).loops

    def take(self) -> int:
        """Takes a turn; gives the nanoseconds of its block."""
        block, prepare = self.block, self.prepare
        if prepare is not None:
            prepare()
        block(repeat(None, max(_LEAST_WARM, self.loops // _WARM)))
        if prepare is not None:
            prepare()
        self.device.wait()
        took = block(repeat(None, self.loops))
        self.device.wait()
        self.times.append(took / self.loops)
        if len(self.times) % _BATCH == 0:
            gc.collect(1)
        return took


def lead(
    subject: Call,
    partner: Partner,
    seconds: float,
    confidence: float,
    *,
    prepare: Callable[[], object] | None = None,
    device: Device = HOST,
    clock: Clock = time.perf_counter_ns,
) -> Sample:
    """Leads until more blocks would say no more, or the time is up. The sample's `change` is how many times
    what a call takes there it takes here."""
    turns = _Turns(subject.block(clock), prepare, device)
    empty, nothing = empty_block(clock), list[float]()
    other: list[float] = []
    with undisturbed():
        own = turns.calibrate()
        partner.say(HELLO, own)
        _, theirs = partner.hear(HELLO)
        turns.loops = max(_FEWEST_LOOPS, min(own, theirs))
        partner.say(READY, turns.loops)
        start = clock()
        look, looks = _FIRST_LOOK, 0
        while True:
            first = _CHANCE.random() < 0.5
            if first:
                turns.take()
            partner.say(GO)
            other.append(partner.hear(DONE)[1] / turns.loops)
            if not first:
                turns.take()
            rounds = len(other)
            if rounds % _FIRST_LOOK == 1:
                nothing.append(empty(repeat(None, turns.loops)) / turns.loops)
            spent = (clock() - start) / 1e9
            due = rounds >= look and spent >= _LEAST_SECONDS
            over = spent >= seconds or looks == LOOKS - 1
            if due or over:
                found = _sample(turns, other, median(sorted(nothing)), confidence)
                if over or _fine_enough(found, confidence):
                    partner.say(STOP)
                    return found
                looks += 1
                while look <= rounds:
                    look *= 2


def follow(
    subject: Call,
    partner: Partner,
    seconds: float,
    confidence: float,
    *,
    prepare: Callable[[], object] | None = None,
    device: Device = HOST,
    clock: Clock = time.perf_counter_ns,
) -> Sample:
    """Takes turns until the one that leads has enough, which has the time in its hands."""
    turns = _Turns(subject.block(clock), prepare, device)
    with undisturbed():
        own = turns.calibrate()
        partner.hear(HELLO)
        partner.say(HELLO, own)
        _, turns.loops = partner.hear(READY)
        while partner.hear(GO, STOP)[0] == GO:
            partner.say(DONE, turns.take())
        nothing = empty_block(clock)(repeat(None, turns.loops)) / turns.loops
    return _sample(turns, (), nothing, confidence)


def _fine_enough(found: Sample, confidence: float) -> bool:
    """Whether what processes differ by anyway leaves more open than the blocks do."""
    change = found.change
    return change is not None and change.high - change.low < pairs_share(confidence) * change.value


def _sample(turns: _Turns, other: Sequence[float], nothing: float, confidence: float) -> Sample:
    own = [max(took - nothing, 0.1) / 1000 for took in turns.times]
    change = None
    if other:
        # A turn that is not answered yet has no partner.
        there = [max(took - nothing, 0.1) / 1000 for took in other]
        ratios = [mine / theirs for mine, theirs in zip(own, there, strict=False)]
        change = _interval(ratios, confidence)
    return Sample(
        subject_us=_interval(own, confidence),
        reference_us=None,
        ratio=None,
        extra_us=None,
        control=1.0,
        pairs=len(own),
        loops=(turns.loops, turns.loops),
        grows=growth(ratios) if other else 0.0,
        values=(thinned(own), ()),
        change=change,
    )


def _interval(values: Sequence[float], confidence: float) -> Interval:
    return median_interval(values, confidence) or Interval(
        median(sorted(values)) if values else 0.0, 0.0, float("inf")
    )
