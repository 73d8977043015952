"""Combines the samples of several processes into measurements with intervals, and checks limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pytest_dispatchguard.measure.timing.intervals import (
    PROCESSES,
    between_runs,
    between_share,
    over_processes,
)
from pytest_dispatchguard.measure.timing.timing import Sample
from pytest_dispatchguard.model.measurements import Beside, Interval, Measurement
from pytest_dispatchguard.model.verdicts import Limit

OF_TIME = ("ratio", "extra_us", "host_us", "device_us")
"""Limits on times."""
OF_GUARDS = "guard_us"
"""The limit on the time of checking guards."""
AGAINST_BASE = "regression"
"""The limit on a subject compared with itself in another revision or run."""

_UNFIT = 0.005
"""How far the reference, timed against itself, may be from 1."""
_FEW_PAIRS = 200
"""Fewer pairs cannot show that, and give wide intervals anyway."""

# Standard deviations that processes running one program have among each other, as parts of the figure: in
# 36 to 80 processes each, 0.09% where both sides run the same path, 0.6% where a thin wrapper is held against
# C (a ratio of 1.1), 1.0% and 1.1% at 1.3 and 1.6.
_ALIKE, _UNLIKE = 0.001, 0.012
_HALFWAY = 0.1
"""The part of the longer call by which both differ where half of that is reached."""
_ABSOLUTE = 0.03
_TINY_US, _SHORT_US = 0.001, 0.2
"""What a call of nanoseconds may take more or less in one process than in another, and how long a call is
that hardly notices: seen, 31 and 37 times a reference of 0.02 µs by the same subject."""


_RUNS, _RUNS_ABSOLUTE = 4, 0.3
"""How many times the spread of a ratio between processes that between runs is, and the spread of times: in 16
runs within minutes, ratios of 1.5 and 3.9 had 4% and 5%, while the processor went at two paces."""


def measurement(samples: Sequence[Sample], confidence: float) -> Measurement:
    """Combines the samples of all processes."""
    subject_us = _over([s.subject_us for s in samples], _ABSOLUTE, confidence)
    devices = [s.device_us for s in samples if s.device_us is not None]
    device_us = _over(devices, _ABSOLUTE, confidence) if devices else None
    pairs = sum(s.pairs for s in samples)
    times = [s.subject_us.value for s in samples]
    alone = Measurement(
        subject_us,
        device_us=device_us,
        control=sum(s.control * s.pairs for s in samples) / pairs,
        pairs=pairs,
        processes=len(samples),
        grows=max(s.grows for s in samples),
        note=_note(samples, subject_us, device_us),
        apart=between_runs(times, _ABSOLUTE, _RUNS_ABSOLUTE, confidence),
        beside=tuple(Beside(s.subject_us.value, s.controls) for s in samples if s.controls),
    )
    ratios = [s.ratio for s in samples if s.ratio is not None]
    if not ratios:
        return alone
    extras = [s.extra_us for s in samples if s.extra_us is not None]
    references = [s.reference_us for s in samples if s.reference_us is not None]
    reference_us = _over(references, _ABSOLUTE, confidence)
    apart = spread(_mean(ratios), reference_us.value)
    ratio = over_processes(ratios, apart, confidence)
    part = apart / ratio.value if ratio.value > 0 else 1.0
    extra_apart = apart / ratio.value * subject_us.value + _ABSOLUTE * abs(_mean(extras))
    return replace(
        alone,
        reference_us=reference_us,
        ratio=ratio,
        extra_us=over_processes(extras, extra_apart, confidence),
        apart=between_runs([r.value for r in ratios], part, _RUNS * part, confidence),
    )


def _note(samples: Sequence[Sample], subject_us: Interval, device_us: Interval | None) -> str:
    """The notes about devices, each once, as processes repeat them."""
    notes = list(dict.fromkeys(part for s in samples for part in s.note.split("; ") if part))
    if device_us is not None and not notes and device_us.low > subject_us.high:
        notes.append(
            f"the device works {device_us.value:.1f} µs on a call that returns after "
            f"{subject_us.value:.1f} µs: host time hides behind it where calls follow one another"
        )
    return "; ".join(notes)


def spread(ratio: float, reference_us: float) -> float:
    """The standard deviation of a ratio between processes: small if both sides run the same path and take
    more than nanoseconds."""
    unlike = abs(1 - 1 / ratio) if ratio > 0 else 1.0
    rise = unlike**2 / (unlike**2 + _HALFWAY**2)
    return ratio * math.hypot(_ALIKE + (_UNLIKE - _ALIKE) * rise, _tiny(reference_us))


def _tiny(reference_us: float) -> float:
    """The relative spread of calls that take nanoseconds."""
    if reference_us <= 0:
        return 0.0
    return _TINY_US / reference_us / (1 + reference_us / _SHORT_US)


def _over(intervals: Sequence[Interval], relative: float, confidence: float) -> Interval:
    return over_processes(intervals, relative * _mean(intervals), confidence)


def _mean(intervals: Sequence[Interval]) -> float:
    return math.fsum(interval.value for interval in intervals) / len(intervals)


def figure(measured: Measurement, name: str) -> Interval | None:
    """The measured value that a limit is about; None if it was not measured."""
    figures = {
        "ratio": measured.ratio,
        "extra_us": measured.extra_us,
        "host_us": measured.subject_us,
        "device_us": measured.device_us,
    }
    return figures[name]


def kept(limit: Limit, interval: Interval) -> bool | None:
    """Whether a limit is kept for certain; None if undecided."""
    if interval.high <= limit.most:
        return True
    return False if interval.low > limit.most else None


def unfit(measured: Measurement) -> str:
    """Why the times cannot be used; empty if they can."""
    off = measured.control - 1
    against = measured.reference_us or measured.subject_us
    if abs(off) <= _UNFIT + _tiny(against.value) or measured.pairs < _FEW_PAIRS:
        return ""
    return (
        f"the machine is unfit: the reference compared with itself gives {measured.control:.4f}, "
        f"more than {_UNFIT:.1%} off"
    )


def telling(
    sample: Sample, confidence: float, name: str = "", before: int = 0
) -> Literal["more blocks", "more processes"]:
    """Whether more blocks or more processes would narrow the interval most, given `before` processes. A new
    process costs about as much time as it measures at first, so stopping early pays; but the number of
    processes is limited, and the last ones measure longer."""
    if before + 1 >= PROCESSES:
        return "more blocks"
    on_device = sample.device_us if name == "device_us" else None
    interval = on_device or sample.ratio or sample.subject_us
    share = _ABSOLUTE * interval.value
    if sample.ratio is interval:
        share = spread(interval.value, sample.reference_us.value if sample.reference_us else 0.0)
    wide = (interval.high - interval.low) / 2
    fine_enough = between_share(share, confidence) * (1 if before < PROCESSES / 2 else 1 / 3)
    return "more blocks" if wide > fine_enough else "more processes"
