"""What pairs of processes that took turns say together of how one revision differs from the other."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_dispatchguard.measure.timing.intervals import between_share, median, over_processes
from pytest_dispatchguard.model.measurements import Interval

MOST_PAIRS = 36
"""Pairs, at most: forks of a few workers, each with its code placed anew."""
TIMES_LONGER = 2.0
"""How much longer than other measuring a comparison of two revisions may take."""
LEAST_PAIRS = 3
"""Pairs, at least, before anything is told."""
_APART, _KNOWN = 0.006, 15
"""The standard deviation that pairs have among each other, as a logarithm, and how many pairs it is worth:
0.5% for most calls, up to 1.7% for Python that builds many objects."""
_FAR = 2.5
"""So many standard deviations from the median a pair counts at most: one in a hundred was in a slow state, 10
to 27% off, as the interpreter had specialized its code in another way."""
_MAD = 1.4826
"""The standard deviation of normal values, as times of the median of their distances from the median."""


def pairs_share(confidence: float) -> float:
    """The half width that one pair of processes leaves open, however long it measures."""
    return between_share(_APART, confidence, MOST_PAIRS, _KNOWN)


def over_pairs(changes: Sequence[Interval], confidence: float) -> Interval:
    """How many times dearer a call is in one of two revisions. Of few pairs one may be in a slow state and
    nobody knows, so they tell no ends."""
    found = over_processes(
        _reined_in([_logarithm(change) for change in changes]),
        _APART,
        confidence,
        MOST_PAIRS,
        _KNOWN,
    )
    value = math.exp(found.value)
    if len(changes) < LEAST_PAIRS:
        return Interval(value, 0.0, math.inf)
    return Interval(value, math.exp(found.low), math.exp(found.high))


def _logarithm(change: Interval) -> Interval:
    ends = ((change.value, 1), (change.low, -1), (change.high, 1))
    return Interval(*(math.log(one) if 0 < one < math.inf else end * math.inf for one, end in ends))


def _reined_in(logs: Sequence[Interval]) -> list[Interval]:
    """The same, but those that are far from the others are moved to where they are no longer."""
    values = sorted(one.value for one in logs)
    centre = median(values)
    usual = median(sorted(abs(value - centre) for value in values)) * _MAD
    far = _FAR * max(usual, _APART)
    moved = []
    for one in logs:
        by = min(max(one.value, centre - far), centre + far) - one.value
        moved.append(Interval(one.value + by, one.low + by, one.high + by))
    return moved
