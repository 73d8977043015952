"""How traces kept their limits: for the terminal, and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.model.traces import CheckedTrace, Wait
from pytest_dispatchguard.report.budgets.layers import relative
from pytest_dispatchguard.report.traces.wording import called, percent, place
from pytest_dispatchguard.report.wording import count, duration

_MOST = 10
"""Places that are told of one trace."""
_UNKNOWN = "somewhere (the trace has no stacks)"


def told(checked: CheckedTrace) -> Iterator[tuple[str, bool]]:
    """Lines on one trace, each with whether it says that a limit is exceeded."""
    trace = checked.told.trace
    name = relative(trace.path)
    if not checked.limited:
        yield f"{name}: {_waits(checked)}, {_idle(checked)}; no limits are set", False
        yield (
            (
                "set them in pyproject.toml: under [tool.dispatchguard.trace], waits_per_step and "
                "idle_share"
            ),
            False,
        )
        return
    if "waits_per_step" in checked.exceeded:
        allowed = f"waits_per_step = {checked.limits.waits_per_step:g} allows"
        yield f"{name}: {_waits(checked)}, more than {allowed}", True
    if "idle_share" in checked.exceeded:
        allowed = f"idle_share = {checked.limits.idle_share:g} allows"
        yield f"{name}: {_idle(checked)}, more than {allowed}{_causes(checked)}", True
    if not checked.exceeded:
        yield f"{name}: {_waits(checked)}, {_idle(checked)}: within limits", False
        return
    waits = checked.waits
    for wait, findings in waits[:_MOST]:
        where = place(wait.line, findings) or _UNKNOWN
        what = called(wait.call, wait.operator, wait.annotation)
        yield f"  {where}: {what}, {_each(wait, checked)}", False
        for finding in findings:
            there = finding.elsewhere or finding
            yield f"    {there.path}:{there.span.line} {finding.code} {finding.message}", False
    if len(waits) > _MOST:
        yield f"  … and {count(len(waits) - _MOST, 'more place')}: see `dispatchguard trace`", False


def _unit(checked: CheckedTrace) -> str:
    return "a step" if checked.told.trace.has_steps else "in the trace"


def _waits(checked: CheckedTrace) -> str:
    number = checked.waits_per_step
    return f"{number:.3g} {'wait' if number == 1 else 'waits'} for the device {_unit(checked)}"


def _idle(checked: CheckedTrace) -> str:
    trace = checked.told.trace
    if not trace.devices:
        return "no work of a device"
    return f"the device is idle for {percent(trace.idle_share)} of the time"


def _causes(checked: CheckedTrace) -> str:
    trace = checked.told.trace
    shares = [(trace.share(us), cause) for cause, us in trace.causes.items()]
    parts = [f"{percent(share)} behind {cause}" for share, cause in shares if share >= 0.005]
    return f": {', '.join(parts)}" if parts else ""


def _each(wait: Wait, checked: CheckedTrace) -> str:
    number = wait.times_per_step
    often = f"{number:.3g} {'wait' if number == 1 else 'waits'} {_unit(checked)}"
    return f"{often}, {duration(wait.us_per_step)}"


def as_object(checked: CheckedTrace) -> dict[str, Any]:
    """One trace as a plain dict."""
    trace = checked.told.trace
    limits = asdict(checked.limits)
    return {
        "path": relative(trace.path),
        "device": (trace.device.name or None) if trace.device is not None else None,
        "steps": len(trace.steps) if trace.has_steps else 0,
        "waits_per_step": round(checked.waits_per_step, 3),
        "idle_share": round(trace.idle_share, 4) if trace.devices else None,
        "limits": {name: limit for name, limit in limits.items() if limit is not None},
        "exceeded": list(checked.exceeded),
        "waits": [_wait(wait, findings) for wait, findings in checked.waits],
    }


def _wait(wait: Wait, findings: tuple[Finding, ...]) -> dict[str, Any]:
    return {
        "path": wait.line.file or None,
        "line": wait.line.line or None,
        "function": wait.line.function or None,
        "call": wait.call,
        "operator": wait.operator or None,
        "times_per_step": round(wait.times_per_step, 3),
        "us_per_step": round(wait.us_per_step, 3),
        "findings": [{"code": f.code, "line": (f.elsewhere or f).span.line} for f in findings],
    }
