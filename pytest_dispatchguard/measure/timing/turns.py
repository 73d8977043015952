"""Times several kinds of calls by turns in one process: what one takes more than another, round by round.

Every round has a block of each kind, in random order. What disturbs the machine disturbs a whole round, or
one block of many: the median of the rounds' differences hardly notices.
"""

from __future__ import annotations

import gc
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import repeat

from pytest_dispatchguard.measure.timing.calibration import pace, undisturbed
from pytest_dispatchguard.measure.timing.calling import Block, empty_block
from pytest_dispatchguard.measure.timing.devices import HOST, Device
from pytest_dispatchguard.measure.timing.intervals import median, median_interval, over_processes
from pytest_dispatchguard.model.measurements import Interval

Clock = Callable[[], int]
"""Nanoseconds."""
Sum = Mapping[str, float]
"""Arms, each times a factor: ``{"whole": 1, "torch": -1}``."""

_CHANCE = random.Random()
"""One's own: a subject may well seed that of Python."""
_LONGEST_NS = 300_000
"""A block that is longer catches more of what disturbs the machine."""
_BATCH = 10
"""Rounds between collections of garbage."""
_LEAST_ROUNDS = 60
# Standard deviations that runs have among each other, as parts of the longer side, for thin wrappers of a
# long call and torch's binding in a short one: half of it is seen in 8 processes that follow each other for
# each of 8 calls, more where the processor goes at another pace.
_ALIKE, _UNLIKE = 0.005, 0.03
_HALFWAY = 0.1
"""The part of the longer side by which both differ where half of that is reached."""
_PATIENCE = 5
"""Times the seconds that are allowed, where so few rounds need it."""


def _nothing() -> None:
    """No state to make anew."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One kind of call that takes its turn."""

    block: Block
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    """What is entered before a block and left after it."""
    fresh: Callable[[], object] = _nothing
    """What is done before every block, untimed."""
    empty: Block | None = None
    """The same block around nothing, which is taken off; None for that of Python's own loop."""
    least: int = 1
    """Calls in a block, unless that makes it too long: where a block costs something however many it has."""


@dataclass(frozen=True, slots=True)
class Turned:
    """What the rounds say: nanoseconds of one call of each arm, round by round."""

    times: Mapping[str, Sequence[float]]
    confidence: float
    loops: Mapping[str, int] = field(default_factory=dict)
    """Calls in a block of each arm."""

    def us(self, parts: Sum) -> Interval:
        """A sum of arms, in microseconds. It is found as a share of the first arm's time, so that a round in
        which the machine was slow counts for no more than another. The interval holds for other processes
        too, which have their own memory, and so differ by more than rounds do."""
        first = next(iter(self.times.values()))
        usual = median(sorted(first)) / 1000
        values = [
            usual * sum(factor * self.times[name][i] for name, factor in parts.items()) / whole
            for i, whole in enumerate(first)
        ]
        # Medians do not add up of themselves: those of single arms are what sums are made of.
        levels = [factor * self._level(name) * usual for name, factor in parts.items()]
        value = sum(levels)
        found = median_interval(values, self.confidence, looks=1)
        if found is None:
            return Interval(value, -math.inf, math.inf)
        here = Interval(value, min(found.low, value), max(found.high, value))
        return over_processes([here], _spread(levels), self.confidence, looks=1)

    def alone(self, name: str) -> Interval:
        """What an arm takes, in microseconds, held against nothing."""
        return self._sure([took / 1000 for took in self.times[name]])

    def ratio(self, name: str, other: str) -> Interval:
        """How many times one arm takes what another does."""
        return self._sure([a / b for a, b in zip(self.times[name], self.times[other], strict=True)])

    def _sure(self, values: Sequence[float]) -> Interval:
        found = median_interval(values, self.confidence, looks=1)
        if found is None:
            return Interval(median(sorted(values)), -math.inf, math.inf)
        return over_processes([found], _UNLIKE * found.value, self.confidence, looks=1)

    def _level(self, name: str) -> float:
        """What an arm takes of the first one's time."""
        first = next(iter(self.times.values()))
        return median(sorted(t / whole for t, whole in zip(self.times[name], first, strict=True)))

    @property
    def rounds(self) -> int:
        """How many rounds there were."""
        return min(map(len, self.times.values()), default=0)


def _spread(levels: Sequence[float]) -> float:
    """The standard deviation among processes of a sum of arms, some of them taken off: small where both sides
    are nearly the same."""
    more, less = (math.fsum(max(sign * level, 0.0) for level in levels) for sign in (1, -1))
    longer = max(more, less)
    if not longer:
        return 0.0
    unlike = abs(more - less) / longer
    rise = unlike**2 / (unlike**2 + _HALFWAY**2)
    return longer * (_ALIKE + (_UNLIKE - _ALIKE) * rise)


def turned(
    arms: Mapping[str, Arm],
    *,
    seconds: float,
    confidence: float = 0.999,
    device: Device = HOST,
    clock: Clock = time.perf_counter_ns,
    tell: Callable[[float], object] = lambda done: None,
) -> Turned:
    """Lets the arms take turns until the time is up. `tell` hears now and then what part of it is."""
    nothing = empty_block(clock)
    times: dict[str, list[float]] = {name: [] for name in arms}
    with undisturbed():
        loops = _loops(arms, device)
        empty: dict[str, list[float]] = {name: [] for name in arms}
        order = list(arms)
        start = clock()
        while True:
            spent = (clock() - start) / 1e9
            few = len(times[order[0]]) < _LEAST_ROUNDS
            if spent >= (seconds * _PATIENCE if few else seconds):
                break
            tell(min(spent / seconds, 1.0) if seconds else 1.0)
            for _ in range(_BATCH):
                if clock() - start > _PATIENCE * seconds * 1e9 and times[order[0]]:
                    break
                _CHANCE.shuffle(order)
                for name in order:
                    arm = arms[name]
                    arm.fresh()
                    device.wait()
                    with arm.around():
                        took = arm.block(repeat(None, loops[name]))
                    times[name].append(took / loops[name])
                device.wait()
            for name, arm in arms.items():
                bare = arm.empty or nothing
                empty[name].append(bare(repeat(None, loops[name])) / loops[name])
            gc.collect(1)
    for name, found in times.items():
        off = median(sorted(empty[name]))
        found[:] = [max(took - off, 0.1) for took in found]
    return Turned(times, confidence, loops)


def _loops(arms: Mapping[str, Arm], device: Device) -> dict[str, int]:
    """Calls in a block of each arm: the same in all as far as that makes no block too long or too short, as
    the first call of a block is dearer than the next."""
    found = {}
    for _ in range(2):  # the first calls of all make room that later ones find
        for name, arm in arms.items():
            with arm.around():
                found[name] = pace(arm.block, arm.fresh, device)
    most = max((max(one.loops, arms[name].least) for name, one in found.items()), default=1)
    plain = [one.call_ns for name, one in found.items() if arms[name].least == 1]
    slowest = max(plain or (one.call_ns for one in found.values()), default=1.0)
    common = max(1, min(most, _fitting(slowest)))
    return {
        name: max(common, min(max(one.loops, arms[name].least), _fitting(one.call_ns)))
        for name, one in found.items()
    }


def _fitting(call_ns: float) -> int:
    """How many calls make the longest block."""
    return int(_LONGEST_NS / max(call_ns, 1.0))
