"""Times several kinds of calls in turn in one process, to compare them round by round.

Every round has a block of each kind, in random order. A disturbance of the machine affects a whole
round, or one block of many, so it hardly changes the median of the differences.
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
"""A weighted sum of arms: ``{"whole": 1, "torch": -1}``."""

_CHANCE = random.Random()
"""A generator of its own, as a subject may seed Python's."""
_LONGEST_NS = 300_000
"""Longer blocks catch more disturbances."""
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
"""How many times the allowed seconds may be used if there are too few rounds."""


def _nothing() -> None:
    """Does nothing."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One kind of call that is timed against others."""

    block: Block
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    """A context that is entered for each block."""
    fresh: Callable[[], object] = _nothing
    """Called before every block, untimed."""
    empty: Block | None = None
    """The empty block whose time is subtracted; None for a plain Python loop."""
    least: int = 1
    """The least calls in a block, unless that makes it too long, for blocks that have a fixed cost."""


@dataclass(frozen=True, slots=True)
class InterleavedTimes:
    """Nanoseconds of one call of each arm, by round."""

    times: Mapping[str, Sequence[float]]
    confidence: float
    loops: Mapping[str, int] = field(default_factory=dict)
    """Calls in a block of each arm."""

    def us(self, parts: Sum) -> Interval:
        """A sum of arms, in microseconds. It is computed relative to the first arm, so that rounds on a slow
        machine count the same. The interval covers other processes too, which differ more than rounds do, as
        each has its own memory layout."""
        first = next(iter(self.times.values()))
        usual = median(sorted(first)) / 1000
        values = [
            usual * sum(factor * self.times[name][i] for name, factor in parts.items()) / whole
            for i, whole in enumerate(first)
        ]
        # The median of sums is not the sum of medians: sums are made from the medians of single arms.
        levels = [factor * self._level(name) * usual for name, factor in parts.items()]
        value = sum(levels)
        found = median_interval(values, self.confidence, looks=1)
        if found is None:
            return Interval(value, -math.inf, math.inf)
        here = Interval(value, min(found.low, value), max(found.high, value))
        return over_processes([here], _spread(levels), self.confidence, looks=1)

    def alone(self, name: str) -> Interval:
        """The time of one arm, in microseconds."""
        return self._sure([took / 1000 for took in self.times[name]])

    def ratio(self, name: str, other: str) -> Interval:
        """The ratio of two arms."""
        return self._sure([a / b for a, b in zip(self.times[name], self.times[other], strict=True)])

    def _sure(self, values: Sequence[float]) -> Interval:
        found = median_interval(values, self.confidence, looks=1)
        if found is None:
            return Interval(median(sorted(values)), -math.inf, math.inf)
        return over_processes([found], _UNLIKE * found.value, self.confidence, looks=1)

    def _level(self, name: str) -> float:
        """The time of an arm relative to the first one."""
        first = next(iter(self.times.values()))
        return median(sorted(t / whole for t, whole in zip(self.times[name], first, strict=True)))

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return min(map(len, self.times.values()), default=0)


def _spread(levels: Sequence[float]) -> float:
    """The standard deviation between processes of a sum of arms with both signs: small if both sides are
    nearly equal."""
    more, less = (math.fsum(max(sign * level, 0.0) for level in levels) for sign in (1, -1))
    longer = max(more, less)
    if not longer:
        return 0.0
    unlike = abs(more - less) / longer
    rise = unlike**2 / (unlike**2 + _HALFWAY**2)
    return longer * (_ALIKE + (_UNLIKE - _ALIKE) * rise)


def time_interleaved(
    arms: Mapping[str, Arm],
    *,
    seconds: float,
    confidence: float = 0.999,
    device: Device = HOST,
    clock: Clock = time.perf_counter_ns,
    tell: Callable[[float], object] = lambda done: None,
) -> InterleavedTimes:
    """Times the arms in turn until the time is up. `tell` is called with the part of it that has passed."""
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
    return InterleavedTimes(times, confidence, loops)


def _loops(arms: Mapping[str, Arm], device: Device) -> dict[str, int]:
    """Calls in a block of each arm: equal where that makes no block too long or too short, as the first call
    of a block costs more than the next."""
    found = {}
    for _ in range(2):  # the first calls allocate memory that later ones reuse
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
