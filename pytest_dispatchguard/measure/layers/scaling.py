"""How the time of a call grows with the size of its input: a fixed part and a slope."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytest_dispatchguard.measure.layers.layers import Wanted, layers
from pytest_dispatchguard.measure.timing.calling import Call
from pytest_dispatchguard.measure.timing.interleaved import Arm, time_interleaved
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.measurements import Interval, Scaling, Sized

_LEAST_SIZES = 3
_ENOUGH_SIZES = 5
"""With fewer sizes any power fits."""
_WORST_FIT = 0.3
"""The worst relative error of a fit."""
_POWERS = [power / 20 for power in range(4, 81)]
"""The exponents that are tried: from 0.2 to 4."""
_GROWS = 1.2
"""The least ratio of the times at the largest and the smallest size that counts as growth."""


def scaling(
    name: str,
    sizes: Sequence[int],
    made: Callable[[int], tuple[Wanted, Call | None]],
    tell: Callable[[str, int, int], object] = lambda what, done, of: None,
) -> Scaling:
    """Measures a call at every size. `made` returns the call, and its reference if it has one."""
    if len(set(sizes)) < _LEAST_SIZES:
        raise UserError(f"--sizes needs {_LEAST_SIZES} sizes at least, to tell what grows")
    found = []
    for number, size in enumerate(sorted(set(sizes))):
        tell(f"size {size}", number, len(sizes))
        wanted, reference = made(size)
        parts = layers(wanted)
        kernels = [part.us for part in parts.layers if part.kind == "kernel"]
        ratio = None if reference is None else _ratio(wanted, reference)
        found.append(Sized(size, parts.whole_us, kernels[0] if kernels else None, ratio))
    return fitted(name, found)


def _ratio(wanted: Wanted, reference: Call) -> Interval:
    with wanted.mode():
        found = time_interleaved(
            {
                "reference": Arm(reference.block(wanted.clock)),
                "subject": Arm(wanted.call.block(wanted.clock)),
            },
            seconds=wanted.seconds / 2,
            confidence=wanted.confidence,
            device=wanted.device,
            clock=wanted.clock,
        )
    return found.ratio("subject", "reference")


def fitted(name: str, sizes: Sequence[Sized]) -> Scaling:
    """The fixed part and the slope with the least relative errors."""
    dominates = _dominating(sizes)
    points = [(float(one.size), one.whole_us.value) for one in sizes]
    best: tuple[float, float, float, float] | None = None
    powers = _POWERS if len(points) >= _ENOUGH_SIZES else [1.0]
    for power in powers if points[-1][1] >= _GROWS * points[0][1] else ():
        fixed, slope = _line([(size**power, took) for size, took in points])
        off = sum(((fixed + slope * size**power) / took - 1) ** 2 for size, took in points)
        if fixed > 0 and slope > 0 and (best is None or off < best[0]):
            best = (off, fixed, slope, power)
    if best is None:
        return Scaling(name, tuple(sizes), dominates=dominates)
    _, fixed, slope, power = best
    error = max(abs((fixed + slope * size**power) / took - 1) for size, took in points)
    if error > _WORST_FIT:
        return Scaling(name, tuple(sizes), dominates=dominates)
    return Scaling(name, tuple(sizes), fixed, slope, power, dominates, error)


def _dominating(sizes: Sequence[Sized]) -> float | None:
    """The size from which kernels take more than half of the time, interpolated."""
    shares = [(one.size, one.overhead) for one in sizes if one.overhead is not None]
    number = len(shares)
    while number and shares[number - 1][1] <= 0.5:
        number -= 1
    if number == len(shares):
        return None
    size, share = shares[number]
    if not number:
        return float(size)
    before, more = shares[number - 1]
    part = (more - 0.5) / (more - share)
    return float(before ** (1 - part) * size**part)


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The intercept and slope of a line by least squares of the relative errors."""
    weights = [1 / took**2 for _, took in points]
    total = sum(weights)
    x = sum(w * p[0] for w, p in zip(weights, points, strict=True)) / total
    y = sum(w * p[1] for w, p in zip(weights, points, strict=True)) / total
    spread = sum(w * (p[0] - x) ** 2 for w, p in zip(weights, points, strict=True))
    if not spread:
        return y, 0.0
    slope = sum(w * (p[0] - x) * (p[1] - y) for w, p in zip(weights, points, strict=True)) / spread
    return y - slope * x, slope
