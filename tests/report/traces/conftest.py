"""Traces that every format is tried on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_dispatchguard.model.findings import Edit, Finding, Fix, Span
from pytest_dispatchguard.model.traces import (
    NOWHERE,
    Depth,
    Device,
    Joined,
    Line,
    Overhead,
    Ran,
    Step,
    Told,
    Trace,
    Wait,
)
from pytest_dispatchguard.report.traces.options import Options

STEP = Line("train.py", 40, "step", ours=True)
LOSS = Line("net/loss.py", 12, "loss", exact=True, ours=True)
LIBRARY = Line("mylib/ops.py", 7, "gather", exact=True)

ITEM = Finding(
    "DG402",
    "item-of-a-tensor",
    "train.py",
    Span(44, 16, 44, 27),
    "step",
    "`loss.item()` waits for the device",
    fix=Fix("unsafe", "keep the sum on the device", (Edit("train.py", Span(44, 16, 44, 27), "x"),)),
    source="        total += loss.item()",
)


def wait(line: Line, us: tuple[float, ...], idle: float = 0.0, **others: object) -> Wait:
    """Waits of as many steps as there are times."""
    settled = {
        "call": "cudaStreamSynchronize",
        "kind": "stream",
        "operator": "aten::item",
        "annotation": "",
        "times": len(us),
        "us": sum(us),
        "idle_us": idle,
        "gap_us": idle,
        "longest_us": max(us),
        "step_times": (1,) * len(us),
        "step_us": us,
    }
    return Wait(line, **(settled | others))  # type: ignore[arg-type]  # of the names above


def step(number: int, us: float = 1000.0, **idle: float) -> Step:
    settled = {"idle_us": 500.0, "waits_us": 300.0, "late_us": 150.0, "input_us": 0.0}
    return Step(
        f"ProfilerStep#{number}", 1000.0 * number, us, **(settled | idle), waits=3, launches=9
    )


def trace(**others: object) -> Trace:
    settled = {
        "path": "trace.json",
        "rank": None,
        "devices": (Device(0, "NVIDIA A100", 27, 1500.0),),
        "stacks": True,
        "marked": True,
        "steps": tuple(step(n) for n in range(3)),
        "waits": (
            wait(
                NOWHERE,
                (9000.0,),
                call="cudaDeviceSynchronize",
                kind="device",
                operator="",
                step_times=(0, 0, 0),
                step_us=(0.0, 0.0, 0.0),
            ),
            wait(STEP, (200.0, 210.0, 190.0), 600.0),
            wait(LOSS, (100.0, 90.0, 110.0), 300.0, operator="aten::nonzero", annotation="loss"),
            wait(LIBRARY, (5.0, 5.0, 5.0), operator="aten::to"),
        ),
        "overheads": (
            Overhead(STEP, 90, 27, 1200.0, 700.0, 1400.0, tiny=12),
            Overhead(LOSS, 9, 3, 300.0, 0.0, 100.0, fused=3),
            Overhead(NOWHERE, 1, 0, 10.0, 0.0, 0.0),
        ),
        "lead_us": 412.0,
        "depths": (Depth(0.0, 1), Depth(1000.0, 9), Depth(2000.0, 4)),
        "events": 400,
        "functions": {STEP: Ran(3, 3, 3, {LOSS: 3}), LOSS: Ran(3, 3, 3)},
    }
    return Trace(**(settled | others))  # type: ignore[arg-type]  # of the names above


def told(one: Trace) -> Told:
    """A trace of a project in which one place has a finding."""
    by_line = {cost.line: cost for cost in one.overheads}
    places = [
        Joined(line, tuple(w for w in one.waits if w.line == line), by_line.get(line), found)
        for line, found in ((STEP, (ITEM,)), (LOSS, ()))
    ]
    return Told(one, tuple(places))


@pytest.fixture
def one() -> Told:
    return told(trace())


@pytest.fixture
def ranks() -> list[Told]:
    """Three ranks, one of them slow, one cut off."""
    slow = tuple(step(n, 1200.0) for n in range(3))
    return [
        told(trace(path="rank0.json", rank=0)),
        told(trace(path="rank1.json", rank=1, steps=slow)),
        told(trace(path="rank2.json", rank=2, damage="it is cut off after 400 events")),
    ]


@pytest.fixture
def before_and_after() -> list[Told]:
    """A wait came, another went, a step got longer."""
    came = wait(replace(LOSS, line=14), (50.0, 51.0, 49.0), operator="aten::equal")
    waits = [w for w in trace().waits if w.line != LIBRARY]
    late = tuple(step(n, 1100.0 + n) for n in range(3))
    return [
        told(trace(path="before.json")),
        told(trace(path="after.json", waits=(*waits, came), steps=late)),
    ]


@pytest.fixture
def options() -> Options:
    return Options(root="/home/me/project")
