"""Decides whether a subject keeps its limits."""

from __future__ import annotations

import linecache
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FunctionType

from pytest_dispatchguard.measure.budgets.device_waits import judged_on_ghost
from pytest_dispatchguard.measure.layers.guards import checking
from pytest_dispatchguard.measure.timing.controls import Controls
from pytest_dispatchguard.measure.timing.devices import HOST, Device
from pytest_dispatchguard.measure.timing.intervals import over_processes
from pytest_dispatchguard.measure.timing.measurements import (
    OF_GUARDS,
    OF_TIME,
    figure,
    measurement,
    telling,
    unfit,
)
from pytest_dispatchguard.measure.timing.measurements import kept as limit_kept
from pytest_dispatchguard.measure.timing.subject import Subject
from pytest_dispatchguard.measure.timing.timing import Sample, sample
from pytest_dispatchguard.model.compiled import Compiled
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.measurements import CostlyLine, Interval, Measurement
from pytest_dispatchguard.model.verdicts import Limit, Outcome, Verdict
from pytest_dispatchguard.runtime.code.foreign import is_foreign, is_foreign_file
from pytest_dispatchguard.runtime.compiled import counts as compiled
from pytest_dispatchguard.runtime.counters import counters
from pytest_dispatchguard.runtime.counters.instructions import instructions_by_place
from pytest_dispatchguard.runtime.syncs import syncs

_MOST_LINES, _WIDEST = 200, 80
"""How many costly lines a failing verdict has, and characters of each."""
_GUARD_SECONDS = 0.3
_GUARDS_APART = 0.15
"""The relative standard deviation between processes of the time of checking guards: memory layout changes it
by up to a third."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How a subject is timed."""

    seconds: float
    confidence: float
    known: Sequence[Sample] = ()
    """The samples of other processes."""
    device: Device = field(default=HOST)
    fully: bool = False
    """Whether the ratio gets as certain as one process can make it, whatever the limits."""
    controls: bool = False
    """Whether control calls are timed, too."""


_WORST: tuple[Outcome, ...] = ("error", "fail", "undecided", "pass", "skipped")
_UNCOUNTED = {
    "py_allocations": "before Python 3.11",
    "functions": "of compiled code by this torch: it would be compiled anew for who counts",
}
"""Counters that may be missing, and when."""


def judged(
    node_id: str,
    subject: Subject,
    limits: Mapping[str, Limit],
    recorded: Mapping[str, float] | None = None,
    timing: Timing | None = None,
    note: str = "",
    *,
    compared: bool = False,
    counted: Collection[str] = (),
) -> tuple[Verdict, Sample | None]:
    """Counts what one call of the subject does, times it where `timing` says so, and compares both with the
    limits, or with what is recorded where there is no limit. `note` is added to the reason; `compared` asks
    for costly lines even if all limits are kept, as a comparison with a base may still fail; `counted` are
    counters of the test's device."""
    if syncs.is_there():
        return judged_on_ghost(node_id, subject, limits, recorded, note), None
    _refuse_other_devices(limits, counted)
    run = subject.call.once()
    allowed = {
        name: limit
        for name, limit in limits.items()
        if name in counters.NAMES or (timing and name in (*OF_TIME, OF_GUARDS))
    }
    with subject.in_mode():
        asked = {*counters.ALWAYS, *counted, *allowed, *(recorded or {})}
        counts, made, note = _count(run, subject, limits, asked, note)
        with_ratio = bool(timing and subject.reference)
        allowed |= _recorded_limits(recorded or {}, allowed, counts, with_ratio=with_ratio)
        outcome, reasons = _by_counters(allowed, counts, note)
        taken = measured = None
        if timing is not None:
            timed = [limit for name, limit in allowed.items() if name in OF_TIME]
            _refuse_unmeasurable(timed, timing.device)
            taken = _taken(subject, timed, timing)
            measured = measurement([*timing.known, taken], timing.confidence)
            by_time, words = _by_time(timed, measured)
            reasons += words
            if outcome == "pass" or by_time == "fail":
                outcome = by_time
        lines: tuple[CostlyLine, ...] = ()
        if "instructions" in counts.values and (outcome == "fail" or compared):
            lines = _costly_lines(subject)
        facts = made.facts if made is not None else None
        if facts is not None and timing is not None:
            facts, by_guards, words = _time_guards(run, subject, facts, allowed, timing, measured)
            reasons += words
            outcome = min(outcome, by_guards, key=_WORST.index)
    verdict = Verdict(
        *(node_id, subject.name, outcome, counts.values, tuple(limits.values())),
        "; ".join(reasons),
        recorded,
        lines,
        measured,
        varying=counts.varying,
        form=subject.call.form,
        compiled=facts,
    )
    return verdict, taken


def _refuse_other_devices(limits: Iterable[str], counted: Collection[str]) -> None:
    """Raises for limits on counters that only the ghost or the lazy device has."""
    if any(name in counters.OF_GHOST for name in limits):
        raise UserError("syncs are counted where there is a ghost: let the test ask for ghost_cuda")
    if any(name in counters.OF_LAZY and name not in counted for name in limits):
        raise UserError(
            "lazy_ops are counted on torch's lazy device: let the test take overhead_device, run it with "
            '--overhead-device=lazy, and limit them there alone: "*test_add[lazy]" = { lazy_ops = 3 }'
        )


def _count(
    run: FunctionType,
    subject: Subject,
    limits: Iterable[str],
    asked: Collection[str],
    note: str,
) -> tuple[counters.Counts, compiled.Found | None, str]:
    """Counts one call, what is compiled for it included, and extends the note."""
    counts = counters.count(run, asked, subject.prepare)
    idle = subject.call.idle()
    if idle is not None and counts.values:
        counts = counts.less(counters.count(idle, asked))
    given = subject.call.args, dict(subject.call.kwargs)
    made = compiled.counted(run, subject.prepare, given) if counts.compiled else None
    if made is None:
        _refuse_uncompiled(limits)
        return counts, None, note
    if not counts.values:
        note = _uncounted(limits, note)
    return _with_compiler_s(counts, made), made, note


def _recorded_limits(
    recorded: Mapping[str, float],
    allowed: Collection[str],
    counts: counters.Counts,
    *,
    with_ratio: bool,
) -> dict[str, Limit]:
    """Limits from the budget file. The test's own take precedence; counters that vary are only reported."""
    return {
        name: Limit(name, number, recorded=True)
        for name, number in recorded.items()
        if name not in allowed
        and name not in (*counts.varying, *counters.OF_GHOST)
        and (name not in OF_TIME or with_ratio)
    }


def _by_counters(
    allowed: Mapping[str, Limit], counts: counters.Counts, note: str
) -> tuple[Outcome, list[str]]:
    """The outcome that the counters give, with the reasons."""
    over = [
        limit
        for name, limit in allowed.items()
        if name in counters.NAMES and counts.values.get(name, 0) > limit.most
    ]
    reasons = [note] if note else []
    reasons += [
        f"{name} is not counted {_UNCOUNTED[name]}"
        for name in allowed
        if name in _UNCOUNTED and counts.values and name not in counts.values
    ]
    reasons += [_too_many(limit, counts.values[limit.name]) for limit in over]
    reasons += [
        f"{name} differ from call to call, at most {counts.values[name]}: "
        "does the subject keep something?"
        for name in counts.varying
    ]
    return "fail" if over else "pass", reasons


def _time_guards(
    run: FunctionType,
    subject: Subject,
    facts: Compiled,
    allowed: Mapping[str, Limit],
    timing: Timing,
    measured: Measurement | None,
) -> tuple[Compiled, Outcome, list[str]]:
    """Times the guards of compiled code, and compares that with its limit where there is one."""
    seconds = min(_GUARD_SECONDS, timing.seconds)
    guard_us = checking(run, subject.prepare, seconds)
    facts = replace(facts, guard_us=guard_us)
    if OF_GUARDS not in allowed:
        return facts, "pass", []
    bad = "" if measured is None else unfit(measured)
    return facts, *_by_guards(allowed[OF_GUARDS], guard_us, timing.confidence, bad)


def _with_compiler_s(counts: counters.Counts, made: compiled.Found) -> counters.Counts:
    return counters.Counts(
        {**counts.values, **made.values}, (*counts.varying, *made.varying), compiled=True
    )


def _uncounted(limits: Iterable[str], note: str) -> str:
    """The note about a subject that compiles at every call; raises if that leaves limits unchecked."""
    why = "it compiles at every call, so what else it does is not counted"
    names = [name for name in limits if name in counters.OF_PYTHON + counters.OF_TORCH]
    if names:
        raise UserError(
            f"{', '.join(names)} cannot be told: {why}; see recompiles=0 for the reasons"
        )
    return "; ".join(filter(None, (note, why)))


def _refuse_uncompiled(limits: Iterable[str]) -> None:
    names = [name for name in limits if name in (*counters.OF_COMPILER, OF_GUARDS)]
    if names:
        raise UserError(
            f"{', '.join(names)} can be told of compiled code alone, and a call runs none: compile the "
            f"subject, or take the {'limit' if len(names) == 1 else 'limits'} out"
        )


def _too_many(limit: Limit, number: int) -> str:
    return f"{limit.name}: {number}, {limit.said}"


def require_references(subject: Subject, limits: Iterable[str]) -> None:
    """Raises for limits that need a reference where there is none."""
    for name in limits:
        if name in ("ratio", "extra_us") and subject.reference is None:
            raise UserError(f"{name} needs a reference to compare with: call .against(...)")


def _refuse_unmeasurable(limits: Sequence[Limit], device: Device) -> None:
    for limit in limits:
        if limit.name == "device_us" and device.queue is None:
            raise UserError(
                "device_us needs an accelerator: on the CPU there is host_us"
                if device is HOST
                else f"device_us needs a device with a clock of its own: {device.name} shows none"
            )


def _taken(subject: Subject, limits: Sequence[Limit], timing: Timing) -> Sample:
    """Measures in this process until all limits are decided, or the time is up, or only other processes
    could decide."""

    def enough(found: Sample) -> bool:
        so_far = measurement([*timing.known, found], timing.confidence)
        if unfit(so_far):
            return False
        open_ = [limit.name for limit in limits if _decided(limit, so_far) is None]
        open_ = open_ or (["ratio"] if timing.fully else [])
        before = len(timing.known)
        return all(telling(found, timing.confidence, n, before) == "more processes" for n in open_)

    controls = Controls() if timing.controls else None
    found = sample(
        subject.call,
        subject.reference,
        enough=enough,
        seconds=timing.seconds,
        confidence=timing.confidence,
        prepare=subject.fresh,
        device=timing.device,
        beside=controls.beside if controls else None,
        device_limited=any(limit.name == "device_us" for limit in limits),
    )
    return replace(found, controls=controls.found_us()) if controls else found


def _decided(limit: Limit, measured: Measurement) -> bool | None:
    interval = figure(measured, limit.name)
    return True if interval is None else limit_kept(limit, interval)


def _by_time(limits: Sequence[Limit], measured: Measurement) -> tuple[Outcome, list[str]]:
    """The outcome that times give, with the reasons."""
    kept_or_not = {limit: _decided(limit, measured) for limit in limits}
    told = [f"gets slower call by call: {measured.grows:.0%} while it was measured"]
    told = told if measured.grows else []
    told += filter(None, [measured.note])
    if not limits:
        return "pass", told
    bad = unfit(measured)
    if bad and not all(kept_or_not.values()):
        return "undecided", [*told, bad]
    for limit, fine in kept_or_not.items():
        interval = figure(measured, limit.name)
        if fine is False and interval is not None:
            told.append(f"{limit.name}: {_shown(interval, limit)}, {limit.said}")
    if False in kept_or_not.values():
        return "fail", told
    for limit, fine in kept_or_not.items():
        interval = figure(measured, limit.name)
        if fine is None and interval is not None:
            told.append(
                f"{limit.name}: {_shown(interval, limit)}, {limit.said}: {_missing(interval, limit)}"
            )
    return "undecided" if None in kept_or_not.values() else "pass", told


def _by_guards(
    limit: Limit, here: Interval | None, confidence: float, bad: str
) -> tuple[Outcome, list[str]]:
    """The outcome that the time of checking guards gives, with the reasons. `bad` says why times of this
    machine cannot be used."""
    if here is None:
        raise UserError(
            f"{limit.name} cannot be measured, as the guards hold only within the call, or are of many "
            "functions: limit their number by guards="
        )
    interval = over_processes([here], _GUARDS_APART * here.value, confidence)
    fine = limit_kept(limit, interval)
    if fine:
        return "pass", []
    said = f"{limit.name}: {_shown(interval, limit)}, {limit.said}"
    if bad:
        return "undecided", [said, bad]
    return ("fail" if fine is False else "undecided"), [said]


def _shown(interval: Interval, limit: Limit) -> str:
    unit = " µs" if limit.name.endswith("_us") else ""
    if not math.isfinite(interval.high - interval.low):
        return f"{interval.value:.3f}{unit}, and anything around it"
    return f"{interval.value:.3f}{unit} ({interval.low:.3f} to {interval.high:.3f})"


def _missing(interval: Interval, limit: Limit) -> str:
    """What would decide the limit."""
    wide = (interval.high - interval.low) / 2
    needed = abs(interval.value - limit.most)
    if not math.isfinite(wide):
        return "too few calls in the time there is: raise --overhead-max-time"
    times = (wide / needed) ** 2 if needed else float("inf")
    if times > 100:
        return "too close to the limit to decide"
    return (
        f"measuring about {times:.0f} times as long would decide it (--overhead-max-time, "
        "--overhead-workers)"
    )


def _costly_lines(subject: Subject) -> tuple[CostlyLine, ...]:
    """The lines that run most instructions in one call. Instructions of Python's modules and of torch count
    for the user's line that called them, and are left out if there is none."""
    subject.prepare()
    places = instructions_by_place(subject.call.once(), is_foreign)
    own = {place: times for place, times in places.items() if not is_foreign_file(place[0])}
    most = sorted(own.items(), key=lambda item: (-item[1], item[0]))[:_MOST_LINES]
    return tuple(
        CostlyLine(path, line, times, linecache.getline(path, line).strip()[:_WIDEST])
        for (path, line), times in most
    )
