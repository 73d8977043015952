"""From one subject to its verdict: does it keep its limits."""

from __future__ import annotations

import linecache
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_dispatchguard.measure.budgets.device_waits import judged_on_ghost
from pytest_dispatchguard.measure.budgets.subject import Subject
from pytest_dispatchguard.measure.layers.guards import checking
from pytest_dispatchguard.measure.timing.devices import HOST, Device
from pytest_dispatchguard.measure.timing.figures import (
    OF_GUARDS,
    OF_TIME,
    figure,
    measurement,
    telling,
    unfit,
)
from pytest_dispatchguard.measure.timing.figures import kept as limit_kept
from pytest_dispatchguard.measure.timing.intervals import over_processes
from pytest_dispatchguard.measure.timing.timing import Sample, sample
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.measurements import CostlyLine, Interval, Measurement
from pytest_dispatchguard.model.verdicts import Limit, Outcome, Verdict
from pytest_dispatchguard.runtime.compiled import counts as compiled
from pytest_dispatchguard.runtime.counters import counters
from pytest_dispatchguard.runtime.counters.instructions import instructions_by_place
from pytest_dispatchguard.runtime.foreign import is_foreign, is_foreign_file
from pytest_dispatchguard.runtime.syncs import syncs

_MOST_LINES, _WIDEST = 200, 80
"""Lines of source that are kept for a failing budget, and characters of each."""
_GUARD_SECONDS = 0.3
_GUARDS_APART = 0.15
"""The standard deviation among processes of what checking guards takes, as a part of it: how trees lie in
memory makes up to a third."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How a subject is to be timed."""

    seconds: float
    confidence: float
    known: Sequence[Sample] = ()
    """What other processes measured of it."""
    device: Device = field(default=HOST)
    fully: bool = False
    """Whether the ratio is to be as sure as one process can make it, whatever the limits."""


_WORST: tuple[Outcome, ...] = ("error", "fail", "undecided", "pass", "skipped")
_UNCOUNTED = {
    "py_allocations": "before Python 3.11",
    "functions": "of compiled code by this torch: it would be compiled anew for who counts",
}
"""Counters that may be missing where others are there, and where."""


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
    """Counts what one call of the subject does, times it where that is asked for, and holds both against
    the limits; figures that these leave open, against what is recorded. `note` is what else to say of it;
    `compared` has it tell costly lines also where the limits are kept: against a base it may fail yet;
    `counted` are counters of the test's device."""
    if syncs.is_there():
        return judged_on_ghost(node_id, subject, limits, recorded, note), None
    if any(name in limits for name in counters.OF_GHOST):
        raise UserError("syncs are counted where there is a ghost: let the test ask for ghost_cuda")
    if any(name in limits and name not in counted for name in counters.OF_LAZY):
        raise UserError(
            "lazy_ops are counted on torch's lazy device: let the test take overhead_device, run it with "
            '--overhead-device=lazy, and limit them there alone: "*test_add[lazy]" = { lazy_ops = 3 }'
        )
    run = subject.call.once()
    allowed = {
        name: limit
        for name, limit in limits.items()
        if name in counters.NAMES or (timing and name in (*OF_TIME, OF_GUARDS))
    }
    with subject.in_mode():
        asked = {*counters.ALWAYS, *counted, *allowed, *(recorded or {})}
        counts = counters.count(run, asked, subject.prepare)
        given = subject.call.args, dict(subject.call.kwargs)
        made = compiled.counted(run, subject.prepare, given) if counts.compiled else None
        if made is None:
            _refuse_uncompiled(limits)
        else:
            if not counts.values:
                note = _uncounted(limits, note)
            counts = _with_compiler_s(counts, made)
        for name, number in (recorded or {}).items():
            if name in allowed or name in (*counts.varying, *counters.OF_GHOST):
                continue  # what is told by hand wins; what varies is told as such
            if name not in OF_TIME or (timing and subject.reference is not None):
                allowed[name] = Limit(name, number, recorded=True)
        over = [
            limit
            for name, limit in allowed.items()
            if name in counters.NAMES and counts.values.get(name, 0) > limit.most
        ]
        told = [note] if note else []
        told += [
            f"{name} is not counted {_UNCOUNTED[name]}"
            for name in allowed
            if name in _UNCOUNTED and counts.values and name not in counts.values
        ]
        told += [_too_many(limit, counts.values[limit.name]) for limit in over]
        told += [
            f"{name} differ from call to call, at most {counts.values[name]}: "
            "does the subject keep something?"
            for name in counts.varying
        ]
        outcome: Outcome = "fail" if over else "pass"
        taken = measured = None
        if timing is not None:
            timed = [limit for name, limit in allowed.items() if name in OF_TIME]
            _refuse_unmeasurable(timed, timing.device)
            taken = _taken(subject, timed, timing)
            measured = measurement([*timing.known, taken], timing.confidence)
            by_time, words = _by_time(timed, measured)
            told += words
            if outcome == "pass" or by_time == "fail":
                outcome = by_time
        telling_lines = "instructions" in counts.values and (outcome == "fail" or compared)
        lines = _costly_lines(subject) if telling_lines else ()
        facts = made.facts if made is not None else None
        if facts is not None and timing is not None:
            guard_us = checking(run, subject.prepare, min(_GUARD_SECONDS, timing.seconds))
            facts = replace(facts, guard_us=guard_us)
            if OF_GUARDS in allowed:
                bad = "" if measured is None else unfit(measured)
                by_guards, words = _by_guards(allowed[OF_GUARDS], guard_us, timing.confidence, bad)
                told += words
                outcome = min(outcome, by_guards, key=_WORST.index)
    verdict = Verdict(
        node_id,
        subject.name,
        outcome,
        counts.values,
        tuple(limits.values()),
        "; ".join(told),
        recorded,
        lines,
        measured,
        varying=counts.varying,
        form=subject.call.form,
        compiled=facts,
    )
    return verdict, taken


def _with_compiler_s(counts: counters.Counts, made: compiled.Found) -> counters.Counts:
    return counters.Counts(
        {**counts.values, **made.values}, (*counts.varying, *made.varying), compiled=True
    )


def _uncounted(limits: Iterable[str], note: str) -> str:
    """What to say of a subject that compiles at every call; says as well which limits that leaves open."""
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


def refuse_unheld(subject: Subject, limits: Iterable[str]) -> None:
    """Says which limit has nothing to be held against."""
    for name in limits:
        if name in ("ratio", "extra_us") and subject.reference is None:
            raise UserError(f"{name} needs a reference: say .against(...) what it is held against")


def _refuse_unmeasurable(limits: Sequence[Limit], device: Device) -> None:
    for limit in limits:
        if limit.name == "device_us" and device.queue is None:
            raise UserError(
                "device_us needs an accelerator: on the CPU there is host_us"
                if device is HOST
                else f"device_us needs a device with a clock of its own: {device.name} shows none"
            )


def _taken(subject: Subject, limits: Sequence[Limit], timing: Timing) -> Sample:
    """What this process measures: until every limit is surely kept or surely not, or the time is up, or
    only other processes could tell more."""

    def enough(found: Sample) -> bool:
        so_far = measurement([*timing.known, found], timing.confidence)
        if unfit(so_far):
            return False
        open_ = [limit.name for limit in limits if _decided(limit, so_far) is None]
        open_ = open_ or (["ratio"] if timing.fully else [])
        before = len(timing.known)
        return all(telling(found, timing.confidence, n, before) == "more processes" for n in open_)

    return sample(
        subject.call,
        subject.reference,
        enough=enough,
        seconds=timing.seconds,
        confidence=timing.confidence,
        prepare=subject.fresh,
        device=timing.device,
    )


def _decided(limit: Limit, measured: Measurement) -> bool | None:
    interval = figure(measured, limit.name)
    return True if interval is None else limit_kept(limit, interval)


def _by_time(limits: Sequence[Limit], measured: Measurement) -> tuple[Outcome, list[str]]:
    """The verdict that times give, and what to say of it."""
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
    """The verdict that checking the guards gives in this process and others, and what to say of it. `bad` is
    why times that are measured here say nothing."""
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
    """What would decide it."""
    wide = (interval.high - interval.low) / 2
    needed = abs(interval.value - limit.most)
    if not math.isfinite(wide):
        return "too few calls in the time there is: raise --overhead-max-time"
    times = (wide / needed) ** 2 if needed else float("inf")
    if times > 100:
        return "too close to the limit to be told apart from it"
    return (
        f"some {times:.0f} times the measuring would tell (--overhead-max-time, --overhead-workers)"
    )


def _costly_lines(subject: Subject) -> tuple[CostlyLine, ...]:
    """The lines that run most instructions in one call. What Python's own modules and torch run counts for
    the line that called them: nobody would change those. Nor are they told where nothing else called them."""
    subject.prepare()
    places = instructions_by_place(subject.call.once(), is_foreign)
    own = {place: times for place, times in places.items() if not is_foreign_file(place[0])}
    most = sorted(own.items(), key=lambda item: (-item[1], item[0]))[:_MOST_LINES]
    return tuple(
        CostlyLine(path, line, times, linecache.getline(path, line).strip()[:_WIDEST])
        for (path, line), times in most
    )
