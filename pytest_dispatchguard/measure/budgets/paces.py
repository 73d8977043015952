"""How the machine's pace differs between two runs, as control calls show it that both have timed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from pytest_dispatchguard.measure.timing.intervals import PROCESSES, median, t_quantile
from pytest_dispatchguard.model.measurements import Beside, Interval, Pace
from pytest_dispatchguard.model.verdicts import Base, Limit, Verdict

# Standard deviations, as logarithms (`make bench-saved`): between processes of a run; between the changes of
# control calls and of another call from run to run, on one machine and on two; and among control calls.
_PROCESSES, _KINDS, _KINDS_ELSEWHERE, _CONTROLS = 0.02, 0.03, 0.3, 0.025
_PROCESSES_KNOWN, _KINDS_KNOWN = 4, 15
"""How many processes and calls these are worth, beside those that are seen."""

Logs = Sequence[Sequence[float]]
"""Logarithms of what control calls took, by process and call."""


def paced(verdict: Verdict, base: Base, confidence: float) -> Base:
    """The base of an earlier run with how the machine's pace differs from then."""
    if not base.earlier or verdict.measured is None or base.measured is None:
        return base
    alike = not base.other
    found = between(verdict.measured.beside, base.measured.beside, confidence, alike=alike)
    return replace(base, pace=found)


def between(
    now: Sequence[Beside], before: Sequence[Beside], confidence: float, *, alike: bool = True
) -> Pace | None:
    """How the pace of one run differs from that of an earlier one; None if they have no control call in
    common. `alike` says whether processor, Python and torch are the same."""
    names = _common([*now, *before]) if now and before else []
    if not names:
        return None
    level = 1 - (1 - confidence) / 2 / PROCESSES
    here, there = _logs(now, names), _logs(before, names)
    changes = [
        _mean(one) - _mean(other)
        for one, other in zip(_by_call(here), _by_call(there), strict=True)
    ]
    centre = median(sorted(changes))
    kinds = _kinds(changes, level, _KINDS if alike else _KINDS_ELSEWHERE)
    noise = _noise(here, there, level, _mean)
    wide = math.hypot(kinds, noise)
    return Pace(
        _around(centre, wide),
        {name: math.exp(change) for name, change in zip(names, changes, strict=True)},
        _certainly_apart(here, there, level),
        _subject(now, before, names, level, centre, kinds),
    )


def _subject(
    now: Sequence[Beside],
    before: Sequence[Beside],
    names: Sequence[str],
    level: float,
    centre: float,
    kinds: float,
) -> Interval | None:
    """The subject's change with that of the control calls divided out. As no call need follow the pace of
    others, the interval is wider by all that is divided out."""
    if not all(one.subject_us > 0 for one in (*now, *before)):
        return None
    # The subject first, then the control calls, of the same process.
    here, there = (
        [(math.log(one.subject_us), *row) for one, row in zip(run, _logs(run, names), strict=True)]
        for run in (now, before)
    )
    change = _difference(here, there, lambda row: row[0]) - centre
    noise = _noise(here, there, level, lambda row: row[0] - _mean(row[1:]))
    return _around(change, math.hypot(kinds, noise) + abs(centre))


def _common(run: Sequence[Beside]) -> list[str]:
    """The control calls that every process has timed."""
    names = (name for name in run[0].controls if all(one.controls.get(name, 0) > 0 for one in run))
    return sorted(names)


def _logs(run: Sequence[Beside], names: Sequence[str]) -> Logs:
    return [[math.log(one.controls[name]) for name in names] for one in run]


def _by_call(logs: Logs) -> Logs:
    return list(zip(*logs, strict=True))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


Figure = Callable[[Sequence[float]], float]
"""What is compared, from the logarithms of one process."""


def _difference(here: Logs, there: Logs, figure: Figure) -> float:
    return _mean([figure(row) for row in here]) - _mean([figure(row) for row in there])


def _noise(here: Logs, there: Logs, level: float, figure: Figure) -> float:
    """By how much a difference between two runs may be off, as processes of each differ among themselves."""
    return math.hypot(
        *(_of_processes([figure(row) for row in run], level) for run in (here, there))
    )


def _of_processes(values: Sequence[float], level: float) -> float:
    centre, freedom = _mean(values), _PROCESSES_KNOWN + len(values) - 1
    seen = math.fsum((value - centre) ** 2 for value in values)
    sd = math.sqrt((_PROCESSES_KNOWN * _PROCESSES**2 + seen) / freedom)
    return t_quantile(level, freedom) * sd / math.sqrt(len(values))


def _kinds(changes: Sequence[float], level: float, spread: float) -> float:
    """By how much the change of one more call may differ from the middle of these."""
    centre, freedom = median(sorted(changes)), _KINDS_KNOWN + len(changes) - 1
    seen = math.fsum((change - centre) ** 2 for change in changes)
    sd = math.sqrt((_KINDS_KNOWN * spread**2 + seen) / freedom)
    return t_quantile(level, freedom) * sd * math.sqrt(1 + 1 / len(changes))


def _certainly_apart(here: Logs, there: Logs, level: float) -> float:
    """By how much the changes of two control calls differ at least, beyond what chance makes of them."""
    found = 0.0
    for i in range(len(here[0])):
        for j in range(i):

            def pair(row: Sequence[float], i: int = i, j: int = j) -> float:
                return row[i] - row[j]

            off = abs(_difference(here, there, pair))
            chance = math.hypot(
                _noise(here, there, level, pair), t_quantile(level, _KINDS_KNOWN) * _CONTROLS
            )
            found = max(found, off - chance)
    return found


def _around(log: float, wide: float) -> Interval:
    return Interval(math.exp(log), math.exp(log - wide), math.exp(log + wide))


def refusal(base: Base, limit: Limit, *, by_ratio: bool) -> str:
    """Why the machine's pace leaves a comparison undecided; empty if the limit leaves room for it."""
    pace = base.pace
    if pace is None or limit.most <= 0:
        return ""
    off = pace.apart if by_ratio else abs(math.log(pace.change.value))
    if off <= math.log(max(limit.most, 1.0)):
        return ""
    part = f"{math.exp(off) - 1:.0%}"
    why = (
        f"control calls differ by {part} in how they changed since then"
        if by_ratio
        else f"the machine alone differs by {part}"
    )
    return f"{why}: measure base and head in one run with --overhead-against"
