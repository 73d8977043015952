"""A subject against itself in another revision or run: counters first and exactly, then times."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from pytest_dispatchguard.measure.timing.figures import AGAINST_BASE, kept, unfit
from pytest_dispatchguard.model.compiled import Compiled
from pytest_dispatchguard.model.measurements import CostlyLine, Interval, Measurement
from pytest_dispatchguard.model.verdicts import Base, Limit, Outcome, Verdict

_REGRESSION = Limit(AGAINST_BASE, 1.05)
"""How many times dearer than its base a subject may be where nobody says."""


def needs_times(verdict: Verdict, base: Base) -> bool:
    """Whether counters leave open what times are needed for."""
    return not base.note and verdict.measured is not None and _limit(verdict, base) is not None


def _limit(verdict: Verdict, base: Base) -> Limit | None:
    """What times are held against. A subject that does exactly what it did takes as long as it did, unless
    a limit asks for proof."""
    for limit in verdict.limits:
        if limit.name == AGAINST_BASE:
            return limit
    return None if dict(base.counters) == dict(verdict.counters) else _REGRESSION


def against(verdict: Verdict, base: Base) -> Verdict:
    """The verdict with what its base says: dearer in a counter that no limit allows, or by time."""
    if base.note or verdict.verdict == "error" or not verdict.counters:
        return replace(verdict, base=base)
    change = _change(verdict.measured, base.measured, base.earlier)
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
                f"{'' if fine is False else ': too unsure to tell'}"
            )
    told = "; ".join([*([verdict.reason] if verdict.reason else []), *dearer])
    worst = max((verdict.verdict, outcome), key=_ORDER.index)
    lines = _extra(verdict.lines, base.lines) if base.lines else verdict.lines
    compiled = _new_guards(verdict.compiled, base.compiled)
    return replace(verdict, verdict=worst, reason=told, base=base, lines=lines, compiled=compiled)


def _new_guards(now: Compiled | None, before: Compiled | None) -> Compiled | None:
    """What was compiled, each group of guards with how many of them the base has not: known by kind and
    source, for lines move and change."""
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
    """Lines with what they do beyond the base, which has moved lines: known by their file's name and text."""
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


def _change(now: Measurement | None, before: Measurement | None, earlier: bool) -> Interval | None:
    """The ratio of ratios, or of times where one side has no reference. Both intervals hold as surely as was
    asked, and so does what they make together: errors of independent figures add up as squares. Where the
    base was measured `earlier`, each side may have met a machine that was not itself."""
    if now is None or before is None:
        return None
    one, other = now.ratio, before.ratio
    if one is None or other is None:
        one, other = now.subject_us, before.subject_us
    value = one.value / other.value
    runs = (now.apart, before.apart) if earlier else ()
    below = math.hypot(_apart(one.low, one.value), _apart(other.value, other.high), *runs)
    above = math.hypot(_apart(one.value, one.high), _apart(other.low, other.value), *runs)
    return Interval(value, value * math.exp(-below), value * math.exp(above))


def _apart(low: float, high: float) -> float:
    """How far two figures are apart, as the logarithm of their ratio."""
    return math.log(high / low) if low > 0 and math.isfinite(high) else math.inf
