"""Native instructions of a subject: counted in a process of their own, and added to its verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from pytest_dispatchguard.measure.budgets.native_blocks import native_instructions
from pytest_dispatchguard.measure.timing.subject import Subject
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.verdicts import Outcome, Verdict, has_moved
from pytest_dispatchguard.runtime.counters.native import EVENTS, NAME, Callgrind, Counter, Events
from pytest_dispatchguard.runtime.syncs import syncs


@dataclass(frozen=True, slots=True)
class Counted:
    """What came of counting one subject."""

    number: int | None = None
    """None if it could not be counted."""
    why: str = ""
    """Why it could not."""


def counted_alone(node_id: str, subject: Subject, way: str) -> Verdict:
    """Counts the native instructions of a subject in this process, which was started for that. `way` is as in
    a request."""
    if syncs.is_there():
        raise UserError("the ghost's own work would be in it")
    with subject.in_mode():
        number = native_instructions(subject.call, _counter(way), subject.fresh)
    return Verdict(node_id, subject.name, "pass", {NAME: number})


@cache
def _counter(way: str) -> Counter:
    return Events() if way == EVENTS else Callgrind(Path(way))


def is_asked(verdict: Verdict, everywhere: bool) -> bool:
    """Whether native instructions of a subject are to be counted: where they have a limit, or everywhere."""
    if verdict.verdict in ("error", "skipped") or not verdict.counters:
        return False
    limited = any(limit.name == NAME for limit in verdict.limits)
    return limited or (everywhere and "instructions" in verdict.counters)


def with_native(verdict: Verdict, here: Counted, there: Counted | None) -> Verdict:
    """Adds native instructions to a verdict and to its base, and holds them against the limit, or against the
    base if there is no limit."""
    if here.number is None:
        return _with_reason(verdict, f"{NAME} is not counted: {here.why}")
    base, number = verdict.base, here.number
    verdict = replace(verdict, counters={**verdict.counters, NAME: number})
    if base is not None and there is not None:
        if there.number is None:
            verdict = _with_reason(verdict, f"{NAME} is not counted in {base.name}: {there.why}")
        else:
            base = replace(base, counters={**base.counters, NAME: there.number})
            verdict = replace(verdict, base=base)
    limit = next((limit for limit in verdict.limits if limit.name == NAME), None)
    if limit is not None:
        if number > limit.most:
            return _with_reason(verdict, f"{NAME}: {number}, {limit.said}", "fail")
        return verdict
    before = None if base is None else base.counters.get(NAME)
    if base is None or before is None or number <= before or not has_moved(NAME, before, number):
        return verdict
    return _with_reason(verdict, f"{NAME}: {number}, in {base.name} {before}", "fail")


def _with_reason(verdict: Verdict, said: str, outcome: Outcome | None = None) -> Verdict:
    reason = "; ".join(filter(None, (verdict.reason, said)))
    return replace(verdict, reason=reason, verdict=outcome or verdict.verdict)
