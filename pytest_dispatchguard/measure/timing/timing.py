"""Times a subject and its reference in one process, in short alternating blocks of calls.

A disturbance of the machine affects both blocks of a pair, or one of many, so it hardly changes the median
of the ratios. The garbage collector is off within blocks, tracers are paused."""

from __future__ import annotations

import gc
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

from pytest_dispatchguard.measure.timing.calibration import pace, undisturbed
from pytest_dispatchguard.measure.timing.calling import Block, Call, empty_block
from pytest_dispatchguard.measure.timing.devices import HOST, Device
from pytest_dispatchguard.measure.timing.intervals import LOOKS, median, median_interval
from pytest_dispatchguard.measure.timing.queues import DeviceTimes, Watched, watched
from pytest_dispatchguard.model.measurements import Interval

Clock = Callable[[], int]
"""Nanoseconds."""

_ALIKE = 10
"""Where one call takes at most so many times what the other does, blocks of both have the same number of
calls: the first call of a block is dearer than the next, by some 15% of a call, so that blocks of 7 and of 6
calls would read 0.4% apart."""
_CHANCE = random.Random()
"""A generator of its own, as a subject may seed Python's."""
_FIRST_LOOK = 25
_LEAST_SECONDS = 0.1
_BATCH = 25
"""Pairs between collections of garbage."""
_CONTROL_EVERY, _EMPTY_EVERY = 4, 8
_DEVICE_BLOCKS = 200
"""Blocks in a process whose device time is taken where nothing limits it: each takes longer than a pair."""
_KEPT_VALUES = 200
"""Times of blocks that are kept for files."""
_GROWTH = 0.05
"""Smaller slowdowns over time are not reported."""
_SURE_TREND = 4.5
"""Standard deviations: chance reaches this once in 300,000 times."""
_SURE_OF_HALF = 3.0
"""The same of either half."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The measurement of one process; times are of one call, in microseconds."""

    subject_us: Interval
    reference_us: Interval | None
    ratio: Interval | None
    extra_us: Interval | None
    control: float
    pairs: int
    loops: tuple[int, int]
    grows: float
    values: tuple[Sequence[float], Sequence[float]]
    """Some of the blocks' times, of subject and reference."""
    device_us: Interval | None = None
    """None if the device has no clock of its own."""
    note: str = ""
    """Notes about the device."""
    change: Interval | None = None
    """How many times what it takes in another process that took turns with this one, and the standard error;
    None without one."""
    controls: Mapping[str, float] = field(default_factory=dict)
    """What control calls took beside it; empty where none were timed."""


class Arms:
    """The blocks that take turns."""

    def __init__(self, subject: Call, reference: Call | None, clock: Clock) -> None:
        against = reference or subject
        self.alone = reference is None
        self.blocks: list[Block] = [made.block(clock) for made in (subject, against, against)]
        self.empty = empty_block(clock)
        self.loops = [1, 1, 1]
        self.block_ns = [0.0, 0.0]
        """The times of a block of the subject and one of the reference."""
        self.times: tuple[list[float], list[float]] = ([], [])
        """Nanoseconds of a call, pair by pair."""
        self.control: list[float] = []
        """The ratio of the reference to itself."""
        self.nothing: dict[int, list[float]] = {}
        """Nanoseconds of a turn of the empty loop, by how many turns a block has: one figure for both arms
        where their blocks have the same number."""
        self.device: DeviceTimes | None = None
        self.notes: list[str] = []


def sample(
    subject: Call,
    reference: Call | None,
    *,
    enough: Callable[[Sample], bool],
    seconds: float,
    confidence: float,
    prepare: Callable[[], object] | None = None,
    device: Device = HOST,
    clock: Clock = time.perf_counter_ns,
    beside: Callable[[], object] | None = None,
    device_limited: bool = False,
) -> Sample:
    """Measures until `enough` returns true, checked now and then, or the time is up. `beside` is called
    between batches of blocks. `device_limited`: device time, too, is to be known better and better."""
    arms = Arms(subject, reference, clock)
    with undisturbed():
        _calibrate(arms, prepare, device)
        _watch(arms, (subject, reference), prepare, device)
        start = clock()
        look, looks = _FIRST_LOOK, 0
        while True:
            until = start + int(seconds * 1e9)
            _batch(arms, prepare, device, until=until, clock=clock)
            if beside is not None:
                beside()
            if arms.device is not None and (device_limited or arms.device.blocks < _DEVICE_BLOCKS):
                _device_batch(arms.device, until=until, clock=clock)
            spent = (clock() - start) / 1e9
            pairs = len(arms.times[0])
            due = pairs >= look and spent >= _LEAST_SECONDS
            over = spent >= seconds or looks == LOOKS - 1
            if due or over:
                found = _summary(arms, confidence, last=over)
                if found is not None and (over or enough(found)):
                    return found
                looks += due
                while look <= pairs:
                    look *= 2


def _batch(
    arms: Arms,
    prepare: Callable[[], object] | None,
    device: Device,
    *,
    until: int,
    clock: Clock,
) -> None:
    wait = device.wait
    for turn in range(_BATCH):
        order = [0, 1] if _CHANCE.random() < 0.5 else [1, 0]
        control = turn % _CONTROL_EVERY == 0
        if control:
            order.insert(_CHANCE.randrange(3), 2)
        took = [0.0, 0.0, 0.0]
        for arm in order:
            if prepare is not None:
                prepare()
            wait()
            took[arm] = arms.blocks[arm](repeat(None, arms.loops[arm])) / arms.loops[arm]
        wait()
        if turn % _EMPTY_EVERY == 0:
            for loops in set(arms.loops):
                took_nothing = arms.empty(repeat(None, loops)) / loops
                arms.nothing.setdefault(loops, []).append(took_nothing)
        arms.times[0].append(took[0])
        arms.times[1].append(took[1])
        if control:
            arms.control.append(took[2] / took[1] if took[1] else 1.0)
        if clock() > until:
            break
    gc.collect(1)


def _device_batch(times: DeviceTimes, *, until: int, clock: Clock) -> None:
    """The device's own time, apart from the host's: marks between calls would cost the host."""
    for turn in range(_BATCH):
        times.block()
        if turn % _EMPTY_EVERY == 0:
            times.empty()
        if clock() > until:
            break


def _calibrate(arms: Arms, prepare: Callable[[], object] | None, device: Device) -> None:
    """Finds how many calls make a block."""
    paces = [pace(block, prepare, device) for block in arms.blocks]
    subject, reference, again = (found.loops for found in paces)
    reference = max(reference, again)
    most, least = max(subject, reference), min(subject, reference)
    arms.loops[:] = [most] * 3 if most <= _ALIKE * least else [subject, reference, reference]
    arms.block_ns[:] = [paces[arm].call_ns * arms.loops[arm] for arm in (0, 1)]


def _watch(
    arms: Arms,
    calls: tuple[Call, Call | None],
    prepare: Callable[[], object] | None,
    device: Device,
) -> None:
    """Facts about calls on an accelerator that timing needs."""
    queue = device.queue
    if queue is None:
        return
    fresh = prepare or _nothing
    sides: list[Watched] = []
    for arm, call in enumerate(calls):
        if call is None:
            continue
        side = watched(arms.blocks[arm], arms.loops[arm], arms.block_ns[arm], device, queue, fresh)
        fresh()
        side.syncs = queue.syncs(call.once())
        device.wait()
        arms.loops[arm] = side.loops
        arms.notes.append(side.said(("the subject", "the reference")[arm]))
        sides.append(side)
    if arms.alone:
        arms.loops[1] = arms.loops[0]
    arms.loops[2] = arms.loops[1]
    arms.device = DeviceTimes(sides[0], device, queue, fresh)


def _nothing() -> None:
    """Does nothing."""


def _summary(arms: Arms, confidence: float, *, last: bool) -> Sample | None:
    """What is known by now; None while that is too little for intervals, which at the last look are
    as wide as can be."""
    one, other = (
        [max(t - nothing, 0.1) / 1000 for t in times]
        for times, nothing in (
            (times, median(sorted(arms.nothing[loops])))
            for times, loops in zip(arms.times, arms.loops, strict=False)
        )
    )
    if median_interval(one, confidence) is None and not last:
        return None

    def interval(values: Sequence[float]) -> Interval:
        return median_interval(values, confidence) or Interval(
            median(sorted(values)), -math.inf, math.inf
        )

    ratios = [a / b for a, b in zip(one, other, strict=True)]
    extra = [a - b for a, b in zip(one, other, strict=True)]
    device = arms.device
    return Sample(
        interval(one),
        None if arms.alone else interval(other),
        None if arms.alone else interval(ratios),
        None if arms.alone else interval(extra),
        median(sorted(arms.control)),
        len(one),
        (arms.loops[0], arms.loops[1]),
        0.0 if arms.alone else growth(ratios),
        (thinned(one), () if arms.alone else thinned(other)),
        None if device is None else interval([t / 1000 for t in device.values()]),
        "; ".join(filter(None, [*arms.notes, "" if device is None else device.said()])),
    )


def growth(ratios: Sequence[float]) -> float:
    """By what part the last quarter of pairs is slower than the first, where that counts and goes on from
    beginning to end: a machine whose load changes on the way makes a step, not a trend in both halves."""
    quarter, half = len(ratios) // 4, len(ratios) // 2
    if not quarter:
        return 0.0
    first, last = (median(sorted(part)) for part in (ratios[:quarter], ratios[-quarter:]))
    if last / first - 1 < _GROWTH:
        return 0.0
    halves = (ratios[:half], ratios[half:])
    sure = _trend(ratios) > _SURE_TREND and all(_trend(part) > _SURE_OF_HALF for part in halves)
    return last / first - 1 if sure else 0.0


def _trend(ratios: Sequence[float]) -> float:
    """How many times as strong a trend is as chance gives as a rule (Spearman's rank correlation with
    time)."""
    count = len(ratios)
    order = sorted(range(count), key=ratios.__getitem__)
    apart = sum((rank - i) ** 2 for rank, i in enumerate(order))
    return (1 - 6 * apart / (count * (count**2 - 1))) * math.sqrt(count - 1)


def thinned(values: Sequence[float]) -> Sequence[float]:
    """Some of them, evenly spread: as many as are kept for files."""
    step = max(1, -(-len(values) // _KEPT_VALUES))
    return values[::step]
