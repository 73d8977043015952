"""What pairs of processes that took turns say together of how one revision differs from the other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from pytest_dispatchguard.measure.timing.intervals import median, t_quantile
from pytest_dispatchguard.model.measurements import Interval

WORKER_PAIRS, MOST_WORKER_PAIRS = 4, 8
"""Pairs of workers, at least, that are forked in turn, and as many as there are where more is needed than
`_FORKED_FIRST` forks of each of the first."""
_FORKED_FIRST = 3
MOST_PAIRS = 48
"""Pairs, at most: forks of these workers, each with its code placed anew."""
_DUE = (3, 4, 5, 6, 8, 10, 13, 17, 22, 28, 36, MOST_PAIRS)
"""How many pairs there are when it is asked whether they are enough: the more often, the wider intervals
must be."""
_LOOKS = len(_DUE) - 1
"""Before the last one, when there are as many as can be or the time is up. That one has half of the error:
what is still open then has had all the time that there is."""
TIMES_LONGER = 1.8
"""How much longer than other measuring a comparison of two revisions may measure."""
MOST_TIMES = 2.2
"""How much longer it may take by the clock, with what a busy machine adds."""
LEAST_PAIRS = 3
"""Pairs, at least, before anything is told."""
_APART, _KNOWN = 0.006, 15
"""The standard deviation that pairs have among each other, as a logarithm, and how many pairs it is worth:
0.2 to 0.7% were seen."""
_WORKERS_APART, _WORKERS_KNOWN = 0.003, 60
"""The standard deviation that pairs of workers have among each other, however often they are forked, and how
many pairs that counts for. The same code was seen 0.2% apart, and releases that differ a little no more than
0.3%: two answers to one question about them are 0.23% apart, forks of workers included."""
_APART_OF_CHANGE = 0.02
"""The same as `_APART`, in addition, as a part of what only the dearer revision does (58% of a call that came
to take 42% of what it took)."""
_WORKERS_OF_CHANGE = 0.013
"""The same as `_WORKERS_APART`, in addition, as a part of what only the dearer revision does: 1.3% were seen
between eight pairs of workers that were forked six times each, for five calls that came to take a half to a
fifth."""
_OF_CHANGE = 0.008
"""The standard deviation of answers given at different times, as a part of the same. How dear that is depends
on how the machine does meanwhile, for minutes, so more pairs do not average it. Six answers about a release
that cut five calls to 20 to 47%, within 35 minutes, were 0.75% of that part apart, by the fastest blocks; by
the median of all blocks it was 4%."""
_FAR = 2.5
"""So many standard deviations from the median a pair counts at most: one in a hundred was in a slow state, 10
to 27% off, as the interpreter had specialized its code in another way."""
_MAD = 1.4826
"""The standard deviation of normal values, as times of the median of their distances from the median."""


def is_fine(change: Interval) -> bool:
    """Whether another pair says more than more blocks of this one, by its value and standard error: pairs
    differ by more anyway."""
    return (change.high - change.low) / 2 < _APART * change.value


def is_due(pairs: int) -> bool:
    """Whether it is asked after so many pairs if they are enough."""
    return pairs in _DUE


def worker_of(pair: int, first: int = WORKER_PAIRS) -> int:
    """The pair of workers that is forked for a pair of processes, by their numbers: the `first` ones in turn,
    then the others as often, then all."""
    most = max(first, MOST_WORKER_PAIRS)
    begun, all_begun = _FORKED_FIRST * first, _FORKED_FIRST * most
    if pair < begun:
        return pair % first
    return first + (pair - begun) % (most - first) if pair < all_begun else pair % most


def _effective_workers(count: int) -> float:
    """How many pairs of workers that are forked equally often say as much."""
    forks = Counter(map(worker_of, range(count)))
    return count**2 / math.fsum(number**2 for number in forks.values())


def over_pairs(
    changes: Sequence[Interval], confidence: float, *, last: bool = False, forked: bool = True
) -> Interval:
    """How many times dearer a call is in one of two revisions, from the values of pairs and their standard
    errors. Of few pairs one may be in a slow state and nobody knows, so they tell no ends. `last` says that
    no more will come, whatever this says; without `forked` each pair was started anew."""
    logs = [_logarithm(change) for change in changes]
    logs = _reined_in([one for one in logs if math.isfinite(one.high - one.low)] or logs)
    centre = math.fsum(one.value for one in logs) / len(logs)
    half = math.inf
    if len(logs) >= LEAST_PAIRS:
        workers = _effective_workers(len(logs)) if forked else len(logs)
        half = _half_width(logs, centre, confidence, workers, last)
    if not math.isfinite(half):
        return Interval(math.exp(centre), 0.0, math.inf)
    return Interval(math.exp(centre), math.exp(centre - half), math.exp(centre + half))


def _half_width(
    logs: Sequence[Interval], centre: float, confidence: float, workers: float, last: bool
) -> float:
    """What pairs differ by is assumed, as is what their blocks leave open, and what is seen of it counts more
    with every pair."""
    count = len(logs)
    of_one = -math.expm1(-abs(centre))
    apart = math.hypot(_APART, _APART_OF_CHANGE * of_one)
    blocks = math.fsum(((one.high - one.low) / 2) ** 2 for one in logs) / count
    seen = math.fsum((one.value - centre) ** 2 for one in logs)
    freedom = _KNOWN + count - 1
    sd = math.sqrt((_KNOWN * (apart**2 + blocks) + seen) / freedom)
    error = (1 - confidence) / 2
    spent = error / 2 if last else error / 2 / _LOOKS
    pairs = t_quantile(1 - spent, freedom) * sd / math.sqrt(count)
    # What is due to the workers, and to the time, is the same at all looks.
    common = math.hypot(_WORKERS_APART, _WORKERS_OF_CHANGE * of_one) / math.sqrt(workers)
    return math.hypot(
        pairs, t_quantile(1 - error, _WORKERS_KNOWN) * math.hypot(common, _OF_CHANGE * of_one)
    )


def inverse(change: Interval) -> Interval:
    """The same change, as the other of the two found it."""
    high = 1 / change.low if change.low > 0 else math.inf
    return Interval(1 / change.value, 1 / change.high, high)


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
