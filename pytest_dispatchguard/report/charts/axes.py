"""Axes of charts: positions of values, tick marks, and number formats."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pytest_dispatchguard.report.figures import number

LARGEST = 1e100
"""The largest number that is drawn; the smallest is its inverse."""
_NEARLY = 1e-9


def finite(values: Sequence[float]) -> Sequence[float]:
    """The values, after checking that all of them can be drawn."""
    for value in values:
        if not abs(value) <= LARGEST:
            raise ValueError(f"a chart takes finite numbers, not {value}")
    return values


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps values from ``low`` to ``high`` to positions in a drawing."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """The position of a value; on a logarithmic axis, values below its beginning are placed there."""
        if self.log:
            part = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def marks(self, extent: Callable[[str], float]) -> list[float]:
        """As many round values as there is room for; ``extent`` returns the room that a label takes."""
        marks: list[float] = []
        for marks in _choices(self.low, self.high, self.log):
            taken = sorted((self.at(mark), extent(number(mark)) / 2) for mark in marks)
            if all(b - a >= half_a + half_b for (a, half_a), (b, half_b) in pairwise(taken)):
                break
        return marks


def domain(
    values: Sequence[float], *, log: bool = False, zero: bool = False, rounded: bool = False
) -> tuple[float, float]:
    """The range that an axis must cover for all values, optionally with zero, optionally with round ends."""
    finite(values)
    if log and min(values, default=1.0) <= 1 / LARGEST:
        raise ValueError(f"a logarithmic axis takes numbers above zero, not {min(values)}")
    known = [*values, *([0.0] if zero and not log else [])]
    low, high = min(known, default=1.0), max(known, default=1.0)
    if high - low <= max(_NEARLY * max(abs(low), abs(high)), 1 / LARGEST):
        around = abs(high) / 2 if abs(high) > 1 / LARGEST else 1.0
        low, high = (high / 2, high * 2) if log else (high - (not zero) * around, high + around)
    if rounded and log:
        return _rounded(low, up=False), _rounded(high, up=True)
    if rounded:
        step = next(_steps((high - low) / 6))
        return math.floor(low / step + _NEARLY) * step, math.ceil(high / step - _NEARLY) * step
    return low, high


def _rounded(value: float, *, up: bool) -> float:
    power = math.floor(math.log10(value))
    near = [float(f"{digit}e{power}") for digit in (1, 2, 5, 10)]
    if up:
        return min(step for step in near if step >= value * (1 - _NEARLY))
    return max(step for step in near if step <= value * (1 + _NEARLY))


def _steps(least: float) -> Iterator[float]:
    """1, 2 and 5 times powers of ten, from the smallest one on."""
    power = math.floor(math.log10(least))
    while True:
        yield from (s for d in (1, 2, 5) if (s := float(f"{d}e{power}")) >= least * (1 - _NEARLY))
        power += 1


def _choices(low: float, high: float, log: bool) -> Iterator[list[float]]:
    """Sets of round values from low to high, each with fewer than the previous one."""
    if log and high / low >= 10:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        for digits, every in ((1, 2, 5), 1), *(((1,), n) for n in range(1, last - first + 1)):
            powers = range(first, last + 1, every)
            marks = [float(f"{digit}e{power}") for power in powers for digit in digits]
            yield [m for m in marks if low * (1 - _NEARLY) <= m <= high * (1 + _NEARLY)]
        return
    for step in _steps((high - low) / 12):
        begin, end = math.ceil(low / step - _NEARLY), math.floor(high / step + _NEARLY)
        yield [float(f"{n * step:.12g}") for n in range(begin, end + 1)]
        if end - begin < 2:
            return
