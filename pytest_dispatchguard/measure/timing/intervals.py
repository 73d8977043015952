"""How sure a measured figure is: intervals that stay true however often they are looked at.

An error of the promised rate is spent in equal parts on all looks that can be taken: LOOKS at the blocks of
each of PROCESSES processes. So looking again and again costs width, never truth. What blocks leave open and
what processes leave open are errors that know nothing of each other, so their widths add as squares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

from pytest_dispatchguard.model.measurements import Interval

LOOKS = 12
"""The most looks at the blocks of one process."""
PROCESSES = 8
"""The most processes that measure one subject."""

_DEPENDENCE = 2
"""Pairs that follow one another are not quite independent of each other: seen, medians of half the pairs
differ by up to 1.4 times what independent ones would, so that two pairs count as one."""
_SPREAD_KNOWN = 30
"""How many processes the assumed spread between processes is worth, beside those that are seen."""
_PROCESSES_KNOWN = 4
"""The same where a figure is held against one of another run."""
_RUNS_KNOWN = 15
"""How many runs the assumed spread between runs was seen in."""


def median_interval(
    values: Sequence[float],
    confidence: float,
    looks: int = LOOKS * PROCESSES,
    dependence: int = _DEPENDENCE,
) -> Interval | None:
    """The median with an interval that holds at every look; None for too few values. It assumes no
    distribution: its ends are order statistics. So many values that follow one another count as one, as
    `dependence` says."""
    ordered = sorted(values)
    count = len(ordered) // dependence
    rank = _rank(count, _each(confidence, looks))
    if rank is None:
        return None
    low = int(rank / count * len(ordered))
    return Interval(median(ordered), ordered[low], ordered[-1 - low])


def median(ordered: Sequence[float]) -> float:
    """The median of sorted values."""
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2


def over_processes(
    intervals: Sequence[Interval],
    spread: float,
    confidence: float,
    looks: int = LOOKS * PROCESSES,
    known: int = _SPREAD_KNOWN,
) -> Interval:
    """What several processes say together. `spread` is the standard deviation that processes of one program
    have among each other anyway: one process alone cannot tell it; it is worth as many processes as are
    `known`. Processes that had time for too few pairs are left out where others had not."""
    intervals = [i for i in intervals if math.isfinite(i.high - i.low)] or intervals
    count = len(intervals)
    centre = sum(i.value for i in intervals) / count
    seen = sum((i.value - centre) ** 2 for i in intervals)
    freedom = known + count - 1
    sd = math.sqrt((known * spread**2 + seen) / freedom)
    between = t_quantile(1 - _each(confidence, looks), freedom) * sd / math.sqrt(count)
    below = math.sqrt(sum((i.value - i.low) ** 2 for i in intervals)) / count
    above = math.sqrt(sum((i.high - i.value) ** 2 for i in intervals)) / count
    return Interval(
        centre, centre - math.hypot(below, between), centre + math.hypot(above, between)
    )


def between_runs(values: Sequence[float], spread: float, runs: float, confidence: float) -> float:
    """By how much, as a logarithm, the figure of these processes may be another in a run at another time.
    `spread` is what processes differ by anyway, of which what is seen of these says more than of an interval
    within a run: one that stuck to a slow way by chance is not outvoted by others. `runs` is the spread among
    runs, however many processes each had."""
    logs = [math.log(value) for value in values if value > 0]
    if not logs:
        return math.inf
    centre = math.fsum(logs) / len(logs)
    seen = math.fsum((log - centre) ** 2 for log in logs)
    freedom = _PROCESSES_KNOWN + len(logs) - 1
    sd = math.sqrt((_PROCESSES_KNOWN * spread**2 + seen) / freedom)
    level = 1 - (1 - confidence) / 2 / PROCESSES
    between = t_quantile(level, freedom) * sd / math.sqrt(len(logs))
    return math.hypot(between, t_quantile(level, _RUNS_KNOWN) * runs)


def between_share(
    spread: float,
    confidence: float,
    looks: int = LOOKS * PROCESSES,
    known: int = _SPREAD_KNOWN,
) -> float:
    """The half width that remains with one process, however long it measures."""
    return t_quantile(1 - _each(confidence, looks), known) * spread


def _each(confidence: float, looks: int = LOOKS * PROCESSES) -> float:
    """The chance of error that one look may have on one side."""
    return (1 - confidence) / 2 / looks


@lru_cache(maxsize=1024)
def _rank(count: int, chance: float) -> int | None:
    """The greatest rank, from 0, that the median of so many values lies below with at most this chance."""
    if count > 1000:
        z = NormalDist().inv_cdf(1 - chance)
        return int(count / 2 - z * math.sqrt(count) / 2 - 1)
    total, found = 0.0, None
    for rank in range(count):
        total += math.comb(count, rank) / 2**count
        if total > chance:
            break
        found = rank
    return found


@lru_cache(maxsize=1024)
def t_quantile(level: float, freedom: int) -> float:
    """Student's quantile by the expansion of Cornish and Fisher: right to 0.5% from 30 degrees on, and
    some percent too small at the few that runs are held against each other with."""
    z = NormalDist().inv_cdf(level)
    terms: tuple[float, ...] = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return sum(term / float(freedom) ** power for power, term in enumerate(terms))
