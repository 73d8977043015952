"""Traces that others recorded on real accelerators: the waits that are known of them, and idle times as a
second computation finds them, which keeps all events in memory and goes through them again and again."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.model.traces import Trace
from pytest_dispatchguard.traces.analysis import analyzed

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "traces"
pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="real traces lie beside the checkout, in ../shared/traces"
)
RESNET = "resnet50-v100-2021-with-stack.json.gz"
DDP = "ddp-rank0-many-item.json.gz"
SMALL = "gpu-metrics-2021.json.gz"
AMD = "mi250-rocm62.json.gz"
CPU = "cpu-only-with-stack.json.gz"
ALL = (RESNET, DDP, SMALL, AMD, CPU)

DEVICE = {"kernel", "Kernel", "gpu_memcpy", "gpu_memset", "Memcpy", "Memset"}
RUNTIME = {"cuda_runtime", "cuda_driver", "Runtime"}
Event = dict[str, Any]
Span = tuple[float, float]


class Told:
    """What is told of a file, and the file's own events."""

    def __init__(self, path: Path) -> None:
        self.trace: Trace = analyzed(path)
        with gzip.open(path) as file:
            self.events: list[Event] = json.load(file)["traceEvents"]
        self.waits = [
            event
            for event in self.of(RUNTIME)
            if event["name"].endswith("Synchronize") or event["name"] == "hipMemcpyWithStream"
        ]
        """Calls that wait for the device, one by one."""

    def of(self, categories: set[str]) -> list[Event]:
        """The events of some categories, in the order in which they begin."""
        found = [e for e in self.events if e.get("ph") == "X" and e.get("cat") in categories]
        return sorted(found, key=lambda event: (event["ts"], -event["dur"]))

    @property
    def steps(self) -> list[Span]:
        """The profiler's steps on the host."""
        found = [
            (event["ts"], event["ts"] + event["dur"])
            for event in self.of({"user_annotation", "cpu_op", "Operator"})
            if event["name"].startswith("ProfilerStep")
        ]
        return sorted(found)

    @property
    def busy(self) -> list[Span]:
        """When the device has anything to do."""
        spans: list[list[float]] = []
        for event in self.of(DEVICE):
            start, end = event["ts"], event["ts"] + event["dur"]
            if spans and start <= spans[-1][1]:
                spans[-1][1] = max(spans[-1][1], end)
            else:
                spans.append([start, end])
        return [(start, end) for start, end in spans]

    def gaps(self) -> Iterator[tuple[float, float, Event | None]]:
        """Times without work from the first step to the last, each with the kernel that ends it."""
        at, last = self.steps[0][0], self.steps[-1][1]
        by_start = {event["ts"]: event for event in reversed(self.of(DEVICE))}
        for start, end in self.busy:
            if start > at:
                yield at, start, by_start[start]
            at = max(at, end)
        if at < last:
            yield at, last, None


@cache
def read(name: str) -> Told:
    return Told(FOLDER / name)


@pytest.fixture(params=ALL)
def told(request: pytest.FixtureRequest) -> Told:
    return read(request.param)


def calls(trace: Trace) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for wait in trace.waits:
        counted[wait.call] += wait.times
    return dict(counted)


@pytest.mark.parametrize(
    ("name", "known", "ms"),
    [
        (RESNET, {"cudaStreamSynchronize": 12, "cudaDeviceSynchronize": 1}, 16.7),
        (DDP, {"cudaStreamSynchronize": 75, "cudaDeviceSynchronize": 1}, 161.0),
        (SMALL, {"cudaStreamSynchronize": 2, "cudaDeviceSynchronize": 1}, 0.0),
        (AMD, {"hipDeviceSynchronize": 1}, 0.1),
        (CPU, {}, 0.0),
    ],
)
def test_the_waits_that_are_known(name: str, known: dict[str, int], ms: float) -> None:
    trace = read(name).trace
    assert {call: n for call, n in calls(trace).items() if "Memcpy" not in call} == known
    waited = sum(wait.us for wait in trace.waits if wait.kind != "copy")
    assert round(waited / 1000, 1) == ms and not trace.damage


def test_copies_of_rocm_that_block_are_waits() -> None:
    """`hipMemcpyWithStream` returns when the copy is done: elsewhere PyTorch copies, then synchronizes."""
    (wait,) = (one for one in read(AMD).trace.waits if one.kind == "copy")
    assert (wait.call, wait.times, wait.operator) == ("hipMemcpyWithStream", 2, "aten::to")


def test_a_line_copies_the_batch() -> None:
    trace = read(RESNET).trace
    (wait,) = (one for one in trace.waits if one.call == "cudaStreamSynchronize")
    assert wait.line.shown == "resnet50_profiler_api.py:44 in <module>" and wait.line.exact
    assert (wait.times, wait.step_times, wait.operator) == (12, (2,) * 6, "aten::to")
    assert trace.stacks and trace.marked and len(trace.steps) == 6


def test_reading_values_of_the_cpu_is_no_wait() -> None:
    """1,890 events have names of operators that may wait."""
    trace = read(DDP).trace
    assert not {wait.operator for wait in trace.waits} & {"aten::item", "aten::nonzero"}
    assert trace.rank == 0 and read(CPU).trace.waits == ()


def test_waits_are_those_of_a_loop_over_events(told: Told) -> None:
    assert calls(told.trace) == Counter(event["name"] for event in told.waits)
    for call in calls(told.trace):
        own = [event["dur"] for event in told.waits if event["name"] == call]
        waits = [wait for wait in told.trace.waits if wait.call == call]
        assert sum(wait.us for wait in waits) == pytest.approx(sum(own))
        assert max(wait.longest_us for wait in waits) == pytest.approx(max(own))
    for step, (start, end) in zip(told.trace.steps, told.steps, strict=True):
        inside = [event for event in told.waits if start <= event["ts"] < end]
        assert step.waits == len(inside)


def test_idle_times_of_steps_are_what_kernels_leave(told: Told) -> None:
    assert [round(step.us, 3) for step in told.trace.steps] == [
        round(end - start, 3) for start, end in told.steps
    ]
    if not told.trace.devices:
        assert told.busy == [] and told.trace.idle_us == 0
        return
    for step, (start, end) in zip(told.trace.steps, told.steps, strict=True):
        work = sum(max(0, min(b, end) - max(a, start)) for a, b in told.busy)
        assert step.idle_us == pytest.approx(end - start - work, abs=0.01)
        told_causes = step.waits_us + step.late_us + step.input_us
        assert 0 <= told_causes <= step.idle_us + 0.01


def test_gaps_begin_in_waits(told: Told) -> None:
    if not told.trace.devices:
        pytest.skip("it has no device")
    launched = {
        event["args"]["correlation"]: event
        for event in told.of(RUNTIME)
        if "Launch" in event["name"] or "Memcpy" in event["name"] or "Memset" in event["name"]
    }
    autograd = {
        event["tid"]
        for event in told.of({"cpu_op", "Operator"})
        if event["name"].startswith("autograd::engine::evaluate_function")
    }
    in_all = 0.0
    for start, end, kernel in told.gaps():
        launch = kernel and launched.get(kernel["args"]["correlation"])
        for wait in told.waits:
            # The thread that waits has nothing else to do while autograd's work for it.
            same = launch is None or launch["tid"] in {wait["tid"], *autograd}
            if same and wait["ts"] <= start <= wait["ts"] + wait["dur"]:
                in_all += end - start
                break
    assert sum(wait.gap_us for wait in told.trace.waits) == pytest.approx(in_all, abs=0.01)


def test_no_wait_accounts_for_more_than_its_length(told: Told) -> None:
    for wait in told.trace.waits:
        assert wait.idle_us <= wait.us + 0.001
