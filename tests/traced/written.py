"""Small traces, written by hand as the profiler of today writes them: functions with operators in them that
wait, on a device that is not there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

Event = dict[str, Any]
DEVICE = "NVIDIA A100-SXM4-80GB"
STEP_US, WAIT_US = 1000.0, 100.0


class Call(NamedTuple):
    """A call of a function in each step, and the operators in it that wait."""

    frame: str
    """``train.py(10): step``."""
    operators: Sequence[str] = ()
    """One that is empty waits by itself."""
    times: int = 1


def trace(
    path: Path, calls: Sequence[Call], *, steps: int = 4, around: str = "", kernels: bool = True
) -> Path:
    """A trace in which each step makes these calls, in a function `around` all steps."""
    events: list[Event] = []
    end = steps * STEP_US
    if around:
        events.append(_event("python_function", around, 0.0, end))
    number = 0
    for step in range(steps):
        at = step * STEP_US + 1
        events.append(_event("user_annotation", f"ProfilerStep#{step}", step * STEP_US, STEP_US))
        for call in calls:
            for _ in range(call.times):
                us = 10 + (WAIT_US + 10) * len(call.operators)
                events.append(_event("python_function", call.frame, at, us))
                inside = at + 5
                for operator in call.operators:
                    number += 1
                    if operator:
                        events.append(_event("cpu_op", operator, inside, WAIT_US + 4))
                    wait = _event("cuda_runtime", "cudaStreamSynchronize", inside + 2, WAIT_US)
                    wait["args"] = {"correlation": number}
                    events.append(wait)
                    inside += WAIT_US + 10
                at += us + 1
        if kernels:
            number += 1
            launch = _event("cuda_runtime", "cudaLaunchKernel", at, 5.0)
            kernel = _event("kernel", "gemm", at + 6, 50.0)
            launch["args"] = kernel["args"] = {"correlation": number, "device": 0}
            events += [launch, kernel]
    header = {"deviceProperties": [{"id": 0, "name": DEVICE}]} if kernels else {}
    path.write_text(json.dumps({**header, "traceEvents": events}), encoding="utf-8")
    return path


def _event(category: str, name: str, start: float, us: float) -> Event:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": us}
