"""Traces for programs: all figures of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pytest_dispatchguard.model.trace_changes import Change, TraceComparison
from pytest_dispatchguard.model.traces import Line, Overhead, Ran, Step, Told, Trace, Wait
from pytest_dispatchguard.report.budgets.layers import plain
from pytest_dispatchguard.report.formats.json_ import dump, finding_object
from pytest_dispatchguard.report.traces.options import Options
from pytest_dispatchguard.report.traces.rows import sentence, stragglers, waits_of

SCHEMA = 1
"""The number of the JSON layout. Fields are added, never renamed."""


def render(told: Sequence[Told], comparison: TraceComparison | None, options: Options) -> str:
    """One object in ASCII."""
    return dump(
        {
            "schema": SCHEMA,
            "traces": [_trace(one, options) for one in told],
            "stragglers": stragglers(told) if comparison is None else [],
            "comparison": None if comparison is None else _comparison(comparison),
        }
    )


def _trace(told: Told, options: Options) -> dict[str, Any]:
    trace = told.trace
    unknown = waits_of([told], linted=options.linted).unknown
    of_linter = {(one.line, one.call, one.operator, one.annotation) for one in unknown}
    return {
        "path": trace.path,
        "rank": trace.rank,
        "verdict": sentence(told, waits_of([told], linted=options.linted)),
        "host_bound": trace.host_bound,
        "idle_share": None if trace.damage or not trace.devices else round(trace.idle_share, 6),
        "idle_us": _idle(trace),
        "lead_us": trace.lead_us,
        "devices": [asdict(device) for device in trace.devices],
        "stacks": trace.stacks,
        "marked": trace.marked,
        "events": trace.events,
        "damage": trace.damage or None,
        "steps": [_step(step) for step in trace.steps],
        "waits": [
            _wait(wait) | {"unknown": (wait.line, *_names(wait)) in of_linter}
            for wait in trace.waits
        ],
        "overheads": [_overhead(cost) for cost in trace.overheads],
        "depths": [asdict(depth) for depth in trace.depths],
        "functions": None
        if trace.functions is None
        else [_function(line, ran) for line, ran in sorted(trace.functions.items(), key=_by_line)],
        "joined": [
            {
                "place": _line(joined.line),
                "us_per_step": round(joined.us_per_step, 3),
                "findings": [finding_object(finding) for finding in joined.findings],
            }
            for joined in told.joined
        ],
    }


def _by_line(item: tuple[Line, object]) -> Line:
    return item[0]


def _function(line: Line, ran: Ran) -> dict[str, Any]:
    callees = sorted(ran.callees.items(), key=_by_line)
    return {
        "place": _line(line),
        "calls": ran.calls,
        "in_steps": ran.in_steps,
        "steps": ran.steps,
        "callees": [{"place": _line(one), "calls": calls} for one, calls in callees],
    }


def _names(wait: Wait) -> tuple[str, str, str]:
    return wait.call, wait.operator, wait.annotation


def _idle(trace: Trace) -> dict[str, float] | None:
    if trace.damage or not trace.devices:
        return None
    causes = trace.causes
    return {
        "all": round(trace.idle_us, 3),
        "waits": round(causes["waits"], 3),
        "late_launches": round(causes["late launches"], 3),
        "input": round(causes["input"], 3),
        "queued": round(trace.queued_us, 3),
    }


def _line(line: Line) -> dict[str, Any]:
    return asdict(line)


def _step(step: Step) -> dict[str, Any]:
    return asdict(step) | {"queued_us": round(step.queued_us, 3)}


def _wait(wait: Wait) -> dict[str, Any]:
    told = asdict(wait)
    del told["line"]
    figures = {
        "times_per_step": round(wait.times_per_step, 6),
        "us_per_step": round(wait.us_per_step, 3),
    }
    return {"place": _line(wait.line), **told, **figures}


def _overhead(cost: Overhead) -> dict[str, Any]:
    told = asdict(cost)
    del told["line"]
    return {"place": _line(cost.line), **told}


def _comparison(comparison: TraceComparison) -> dict[str, Any]:
    return {
        "before": comparison.before.path,
        "after": comparison.after.path,
        "worse": comparison.worse,
        "step_us": _change(comparison.step_us),
        "idle_share": _change(comparison.idle_share),
        "waits": [
            {
                "what": one.what,
                "sure": one.sure,
                "place": _line(one.wait.line),
                "call": one.wait.call,
                "operator": one.wait.operator,
                "annotation": one.wait.annotation,
                "line_before": one.earlier.line.line if one.earlier else None,
                "times_per_step": _change(one.times),
                "us_per_step": _change(one.us),
            }
            for one in comparison.waits
        ],
    }


def _change(change: Change) -> dict[str, Any]:
    ends = plain(change.difference)
    return {
        "before": round(change.before, 6),
        "after": round(change.after, 6),
        "difference": {
            name: None if number is None else round(number, 6) for name, number in ends.items()
        },
    }
