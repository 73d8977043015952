"""Compares two traces of one program, step by step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import zip_longest
from statistics import fmean, variance

from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.model.trace_changes import Change, TraceComparison, WaitChange, What
from pytest_dispatchguard.model.traces import Trace, Wait

_LEVEL = 0.99
"""How surely an interval holds the difference: many waits are compared at once."""
_ORDER: dict[What, int] = {"came": 0, "grew": 1, "went": 2, "shrank": 3, "same": 4}


def compared(before: Trace, after: Trace) -> TraceComparison:
    """What became of the waits, the idle share and the steps of a trace in another."""
    step_us = _change([step.us for step in before.steps], [step.us for step in after.steps])
    longest = max(step_us.before, step_us.after)
    waits = [
        WaitChange(
            earlier,
            later,
            _change(
                _of_steps(before, earlier, lambda one: one.step_times),
                _of_steps(after, later, lambda one: one.step_times),
            ),
            _change(
                _of_steps(before, earlier, lambda one: one.step_us),
                _of_steps(after, later, lambda one: one.step_us),
            ),
            longest,
        )
        for earlier, later in _pairs(before.waits, after.waits)
    ]
    return TraceComparison(
        before,
        after,
        step_us,
        _change(_idle_shares(before), _idle_shares(after)),
        tuple(sorted(waits, key=_rank)),
    )


def _rank(one: WaitChange) -> tuple[object, ...]:
    wait = one.wait
    size = -abs(one.us.difference.value)
    return not one.sure, _ORDER[one.what], size, wait.line, wait.call, wait.operator


def _of_steps(
    trace: Trace, wait: Wait | None, figures: Callable[[Wait], Sequence[float]]
) -> Sequence[float]:
    return [0.0] * len(trace.steps) if wait is None else figures(wait)


def _idle_shares(trace: Trace) -> list[float]:
    if not trace.devices or trace.damage:
        return []
    return [step.idle_us / step.us for step in trace.steps if step.us]


def _pairs(
    before: Iterable[Wait], after: Iterable[Wait]
) -> Iterable[tuple[Wait | None, Wait | None]]:
    """The waits of both that are the same: lines move when code is edited, the order in a function
    rarely does. What no step holds is the profiler's own, or comes before and after them."""
    groups: dict[tuple[str, ...], tuple[list[Wait], list[Wait]]] = {}
    for at, waits in enumerate((before, after)):
        for wait in waits:
            if wait.times_in_steps:
                line = wait.line
                key = (line.file, line.function, wait.call, wait.operator, wait.annotation)
                groups.setdefault(key, ([], []))[at].append(wait)
    for old, new in groups.values():
        same = {wait.line.line for wait in old} & {wait.line.line for wait in new}
        for number in sorted(same):
            yield _at(old, number), _at(new, number)
        left, right = (
            sorted((w for w in side if w.line.line not in same), key=lambda w: w.line)
            for side in (old, new)
        )
        yield from zip_longest(left, right)


def _at(waits: Iterable[Wait], number: int) -> Wait:
    return next(wait for wait in waits if wait.line.line == number)


def _change(before: Sequence[float], after: Sequence[float]) -> Change:
    old, new = (fmean(side) if side else 0.0 for side in (before, after))
    difference = new - old
    half = _half(before, after)
    return Change(old, new, Interval(difference, difference - half, difference + half))


def _half(before: Sequence[float], after: Sequence[float]) -> float:
    """Half of Welch's interval for the difference of two means."""
    if min(len(before), len(after)) < 2:
        return math.inf
    a, b = (variance(side) / len(side) for side in (before, after))
    if a + b <= 0:
        return 0.0
    freedom = (a + b) * (a + b) / (a * a / (len(before) - 1) + b * b / (len(after) - 1))
    # Cut off, it asks for more rather than less, and traces with many waits ask for few quantiles.
    return _t_quantile(max(1, int(freedom + 1e-9))) * math.sqrt(a + b)


@cache
def _t_quantile(freedom: int) -> float:
    """Between what and its negative Student's t lies as surely as `_LEVEL`: by the angle whose tangent is
    t over the root of the degrees of freedom, in which its density is a power of the cosine."""
    scale = 2 * math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
    scale /= math.sqrt(math.pi)

    def density(angle: float) -> float:
        return scale * math.pow(math.cos(angle), freedom - 1)

    def inside(angle: float, steps: int = 400) -> float:
        """Simpson's rule."""
        width = angle / steps
        between = sum((4 if n % 2 else 2) * density(n * width) for n in range(1, steps))
        return (density(0.0) + between + density(angle)) * width / 3

    low, high = 0.0, math.pi / 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if inside(middle) < _LEVEL else (low, middle)
    return math.sqrt(freedom) * math.tan(low)
