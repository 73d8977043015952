"""Compares a subject with itself in another revision or run: counters exactly, then times."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

from pytest_dispatchguard.measure.budgets.paces import refusal
from pytest_dispatchguard.measure.timing.instruction_price import implied_us
from pytest_dispatchguard.measure.timing.measurements import AGAINST_BASE, kept, unfit
from pytest_dispatchguard.model.compiled import Compiled
from pytest_dispatchguard.model.measurements import CostlyLine, Interval, Measurement, Pace
from pytest_dispatchguard.model.verdicts import ROUGHLY, Base, Limit, Outcome, Verdict

_REGRESSION = Limit(AGAINST_BASE, 1.05)
"""The default limit: how many times slower than its base a subject may be."""


def needs_times(verdict: Verdict, base: Base, precision: float | None = None) -> bool:
    """Whether times are needed, after counters: to decide, or as it was asked how precise they are to be."""
    timed = not base.note and verdict.measured is not None
    return timed and (precision is not None or _limit(verdict, base) is not None)


def _limit(verdict: Verdict, base: Base) -> Limit | None:
    """The limit on times. A subject with equal counters needs none, unless the user set a limit."""
    for limit in verdict.limits:
        if limit.name == AGAINST_BASE:
            return limit
    return None if _of_python(base.counters) == _of_python(verdict.counters) else _REGRESSION


def _of_python(counters: Mapping[str, int]) -> dict[str, int]:
    """The counters that repeat to the unit."""
    return {name: number for name, number in counters.items() if name not in ROUGHLY}


def is_open(verdict: Verdict, base: Base, precision: float | None = None) -> bool:
    """Whether times are needed, and could not decide so far, or are less precise than was asked for: more of
    them may, whatever counters say."""
    limit, change = _limit(verdict, base), base.change
    if change is None:
        return False
    return is_wide(change, precision) or (limit is not None and kept(limit, change) is None)


def is_wide(change: Interval, precision: float | None) -> bool:
    """Whether half of an interval is a larger part of its value than was asked for."""
    return precision is not None and not (change.high - change.low) / 2 <= precision * change.value


def less_precise(verdicts: Sequence[Verdict], precision: float | None) -> list[str]:
    """What a run says of changes that it could not tell as precisely as was asked."""
    changes = [verdict.base.change for verdict in verdicts if verdict.base and verdict.base.change]
    wide = sum(is_wide(change, precision) for change in changes)
    if precision is None or not wide:
        return []
    which = "a change is" if wide == 1 else f"{wide} changes are"
    return [
        f"warning: {which} known less precisely than ±{100 * precision:.3g}%: raise --overhead-max-time"
    ]


def against(verdict: Verdict, base: Base) -> Verdict:
    """Adds the comparison with the base to a verdict: a counter that grew without a limit, or a slower
    time."""
    if base.note or verdict.verdict == "error" or not verdict.counters:
        return replace(verdict, base=base)
    change = base.change or _change(verdict.measured, base.measured, base.earlier, base.pace)
    base = replace(base, change=change)
    limited = {limit.name for limit in verdict.limits}
    dearer = [
        f"{name}: {number}, in {base.name} {base.counters[name]}"
        for name, number in verdict.counters.items()
        if name not in limited
        and name not in verdict.varying
        and number > base.counters.get(name, number)
    ]
    outcome: Outcome = "fail" if dearer else "pass"
    limit = _limit(verdict, base)
    if change is not None and limit is not None:
        fine = kept(limit, change)
        bad = [unfit(m) for m in (verdict.measured, base.measured) if m is not None and unfit(m)]
        if fine is False and bad:
            fine = None
            dearer.append(bad[0])
        if fine is not True:
            outcome = "fail" if fine is False or outcome == "fail" else "undecided"
            dearer.append(
                f"{AGAINST_BASE}: {change.value:.3f} times {base.name} "
                f"({change.low:.3f} to {change.high:.3f}), allowed {limit.shown}"
                f"{'' if fine is False else ': too uncertain to decide'}"
            )
            if fine is None and base.earlier:
                by_ratio = _has_ratios(verdict.measured, base.measured)
                dearer += filter(None, [refusal(base, limit, by_ratio=by_ratio)])
    if base.untimed and limit is not None:
        outcome = "fail" if outcome == "fail" else "undecided"
        dearer.append(f"{AGAINST_BASE}: {base.name} could not be timed: {base.untimed}")
    base, estimate = _implied(verdict, base)
    if dearer:
        dearer += estimate
    told = "; ".join([*([verdict.reason] if verdict.reason else []), *dearer])
    worst = max((verdict.verdict, outcome), key=_ORDER.index)
    lines = _extra(verdict.lines, base.lines) if base.lines else verdict.lines
    compiled = _new_guards(verdict.compiled, base.compiled)
    return replace(verdict, verdict=worst, reason=told, base=base, lines=lines, compiled=compiled)


def _implied(verdict: Verdict, base: Base) -> tuple[Base, list[str]]:
    """The base with what moved instructions are estimated to take, where times cannot tell; and that in
    words."""
    name = "instructions"
    moved = verdict.counters.get(name, 0) - base.counters.get(name, 0)
    counted = name in verdict.counters and name in base.counters and name not in verdict.varying
    change = base.change
    told = change is not None and not change.low <= 1 <= change.high
    if not moved or not counted or told:
        return base, []
    us = implied_us(moved)
    each = sorted(abs(end / moved * 1000) for end in (us.low, us.high))
    least, most = sorted(map(abs, (us.low, us.high)))
    words = (
        f"{abs(moved)} {'more' if moved > 0 else 'fewer'} instructions: estimated "
        f"{_short(least)} to {_short(most)} µs {'more' if moved > 0 else 'less'}, at {_short(each[0])} to "
        f"{_short(each[1])} ns each on this machine; {_not_measured(change)}"
    )
    return replace(base, implied_us=us), [words]


def _not_measured(change: Interval | None) -> str:
    if change is None:
        return "this was not timed"
    return "times cannot tell"


def _short(number: float) -> str:
    """Two digits that count."""
    return f"{number:.2g}" if number < 100 else f"{number:.0f}"


def _new_guards(now: Compiled | None, before: Compiled | None) -> Compiled | None:
    """Marks how many guards of each group the base does not have. Guards are matched by kind and source, as
    lines move."""
    if now is None or before is None:
        return now
    left = Counter[tuple[str, str]]()
    for group in before.guards:
        left[group.kind, group.pattern] += group.number
    found = []
    for group in now.guards:
        known = min(left[group.kind, group.pattern], group.number)
        left[group.kind, group.pattern] -= known
        found.append(replace(group, extra=group.number - known))
    return replace(now, guards=tuple(found))


def _extra(now: Sequence[CostlyLine], before: Sequence[CostlyLine]) -> tuple[CostlyLine, ...]:
    """Marks how many instructions of each line the base does not have. Lines are matched by file name and
    text, as they move."""
    left = Counter[tuple[str, str]]()
    for line in before:
        left[PurePath(line.path).name, line.text] += line.instructions
    found = []
    for line in now:
        key = (PurePath(line.path).name, line.text)
        known = min(left[key], line.instructions)
        left[key] -= known
        found.append(replace(line, extra=line.instructions - known))
    return tuple(sorted(found, key=lambda line: -(line.extra or 0)))


_ORDER = ("pass", "skipped", "undecided", "fail", "error")


def _has_ratios(now: Measurement | None, before: Measurement | None) -> bool:
    return bool(now and before and now.ratio and before.ratio)


def _change(
    now: Measurement | None, before: Measurement | None, earlier: bool, pace: Pace | None = None
) -> Interval | None:
    """The ratio of ratios, or of times where one side has no reference. Independent errors add up as
    squares, so the result has the same confidence as both intervals. If the base was measured `earlier`, the
    spread between runs is added; from times the change of the machine's pace is divided out, if known."""
    if now is None or before is None:
        return None
    one, other = now.ratio, before.ratio
    if one is None or other is None:
        if pace is not None and pace.subject is not None:
            return pace.subject
        one, other = now.subject_us, before.subject_us
    value = one.value / other.value
    runs = (now.apart, before.apart) if earlier else ()
    below = math.hypot(_apart(one.low, one.value), _apart(other.value, other.high), *runs)
    above = math.hypot(_apart(one.value, one.high), _apart(other.low, other.value), *runs)
    below, above = (wide + (pace.apart if pace is not None else 0.0) for wide in (below, above))
    return Interval(value, value * math.exp(-below), value * math.exp(above))


def _apart(low: float, high: float) -> float:
    """The logarithm of the ratio of two values."""
    return math.log(high / low) if low > 0 and math.isfinite(high) else math.inf
