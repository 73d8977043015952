"""Two traces side by side, in the words of all formats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.model.trace_changes import Change, TraceComparison, WaitChange
from pytest_dispatchguard.model.traces import Told
from pytest_dispatchguard.report.traces.rows import often
from pytest_dispatchguard.report.traces.wording import called, percent, place
from pytest_dispatchguard.report.wording import count, duration

FIGURES = ("figure", "before", "after", "difference")
WAITS = ("what", "times a step", "time a step", "difference", "place")


def headline(comparison: TraceComparison) -> str:
    """What became of it, in one sentence."""
    sure = [one for one in comparison.waits if one.sure]
    kinds = (
        ("came", "came"),
        ("grew", "grew"),
        ("went", "went away"),
        ("shrank", "shrank"),
    )
    parts = [
        f"{count(number, 'wait')} {words}"
        for what, words in kinds
        if (number := sum(one.what == what for one in sure))
    ]
    step = comparison.step_us
    told = {
        1: f"a step takes longer, {_of(step.before, step.after)}",
        -1: f"a step is shorter, {_of(step.before, step.after)}",
        0: f"no sure difference in the time of a step ({_of(step.before, step.after)})",
    }[step.way]
    waits = ", ".join(parts) or "no sure difference in waits"
    return f"{comparison.before.path} → {comparison.after.path}: {waits}, {told}"


def _of(before: float, after: float) -> str:
    return f"{duration(before)} → {duration(after)}"


def figure_rows(comparison: TraceComparison) -> list[tuple[str, ...]]:
    """The step and its idle share, under `FIGURES`."""
    step, idle = comparison.step_us, comparison.idle_share
    rows: list[tuple[str, ...]] = [
        ("a step", duration(step.before), duration(step.after), between(step, duration))
    ]
    if comparison.before.devices and comparison.after.devices:
        rows.append(
            ("device idle", percent(idle.before), percent(idle.after), between(idle, _points))
        )
    return rows


def wait_rows(
    comparison: TraceComparison, told: Sequence[Told], shown: Callable[[str], str] = str
) -> list[tuple[str, ...]]:
    """What became of each wait, under `WAITS`."""
    findings = {
        wait: joined.behind(wait) for one in told for joined in one.joined for wait in joined.waits
    }
    return [
        (
            _what(one),
            _two(often(one.times.before), often(one.times.after)),
            _two(duration(one.us.before), duration(one.us.after)),
            between(one.us, duration),
            _where(one, findings.get(one.wait, ()), shown),
        )
        for one in comparison.waits
    ]


def _what(one: WaitChange) -> str:
    """``came``, or ``came?`` where that is not sure."""
    return one.what if one.sure or one.what == "same" else f"{one.what}?"


def _where(one: WaitChange, findings: Sequence[Finding], shown: Callable[[str], str]) -> str:
    """Where it is, what the linter has there, and the call."""
    wait = one.wait
    codes = ", ".join(dict.fromkeys(finding.code for finding in findings))
    where = place(wait.line, findings, shown) + (f" ({codes})" if codes else "")
    return ": ".join(filter(None, [where, called(wait.call, wait.operator, wait.annotation)]))


def _two(before: str, after: str) -> str:
    return before if before == after else f"{before} → {after}"


def between(change: Change, told: Callable[[float], str]) -> str:
    """``+1.2 ms (+1.1 ms to +1.4 ms)``; without ends where these are not known."""
    difference = change.difference
    value = _signed(difference.value, told)
    if not math.isfinite(difference.low):
        return f"{value} (not sure)"
    if difference.low == difference.high:
        return value
    return f"{value} ({_signed(difference.low, told)} to {_signed(difference.high, told)})"


def _points(share: float) -> str:
    return f"{100 * share:.1f} points"


def _signed(number: float, told: Callable[[float], str]) -> str:
    sign = "+" if number > 0 else "\u2212" if number < 0 else ""
    return sign + told(abs(number))


def caveat(comparison: TraceComparison) -> str:
    """Why nothing may be sure; empty where it can be."""
    if not comparison.few_steps:
        return ""
    return "a trace of one step gives no interval: record several (`schedule(active=5)`) to be sure"
