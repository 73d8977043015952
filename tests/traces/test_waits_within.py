"""Waits that are easily counted twice, given to the wrong place, or to the wrong thread."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pytest_dispatchguard.model.traces import Trace
from pytest_dispatchguard.traces.analysis import analyzed

Event = dict[str, Any]


def event(category: str, name: str, ts: int, dur: int, tid: int = 1, **more: Any) -> Event:
    pid, args = more.pop("pid", 1), more
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


def told(folder: Path, *events: Event) -> Trace:
    path = folder / "trace.json"
    path.write_text(json.dumps([event("user_annotation", "ProfilerStep#1", 0, 1000), *events]))
    return analyzed(path)


def test_what_the_driver_does_for_the_runtime_is_one_wait(tmp_path: Path) -> None:
    outer = event("cuda_runtime", "cudaStreamSynchronize", 100, 50)
    for start, length in ((100, 50), (101, 49), (110, 20)):
        inner = event("cuda_driver", "cuStreamSynchronize", start, length)
        for events in ((outer, inner), (inner, outer)):
            (wait,) = told(tmp_path, *events).waits
            assert (wait.call, wait.times, wait.us) == ("cudaStreamSynchronize", 1, 50)


def test_a_wait_within_a_call_that_is_none(tmp_path: Path) -> None:
    outer = event("cuda_runtime", "cudaEventRecord", 100, 50)
    inner = event("cuda_driver", "cuStreamSynchronize", 110, 20)
    (wait,) = told(tmp_path, outer, inner).waits
    assert (wait.call, wait.us) == ("cuStreamSynchronize", 20)


def test_waits_one_right_after_another_are_two(tmp_path: Path) -> None:
    first = event("cuda_runtime", "cudaStreamSynchronize", 100, 50)
    second = event("cuda_runtime", "cudaStreamSynchronize", 150, 0)
    third = event("cuda_runtime", "cudaStreamSynchronize", 150, 0)
    (wait,) = told(tmp_path, first, second, third).waits
    assert (wait.times, wait.us, wait.step_times) == (3, 50, (3,))


def test_threads_and_processes_wait_at_the_same_time(tmp_path: Path) -> None:
    waits = [
        event("cuda_runtime", "cudaStreamSynchronize", 100, 50, tid, pid=pid)
        for tid in (1, 2)
        for pid in (1, 2)
    ]
    assert sum(wait.times for wait in told(tmp_path, *waits).waits) == 4


def test_a_launch_by_the_driver_is_one_launch(tmp_path: Path) -> None:
    calls = [
        event("cuda_runtime", "cudaLaunchKernel", 100, 10, correlation=7),
        event("cuda_driver", "cuLaunchKernel", 102, 5, correlation=7),
        event("kernel", "k", 120, 30, 7, correlation=7, device=0),
    ]
    trace = told(tmp_path, *calls)
    assert (trace.steps[0].launches, trace.lead_us) == (1, 20)


def test_a_copy_that_blocks_delays_what_comes_after_it_only(tmp_path: Path) -> None:
    """From its call to the start of the copy the device waits for the host, not the host for the device."""
    trace = told(
        tmp_path,
        event("cuda_runtime", "cudaMemcpy", 100, 60, correlation=1),
        event("gpu_memcpy", "Memcpy DtoH", 130, 20, 7, correlation=1, device=0),
        event("cuda_runtime", "cudaLaunchKernel", 170, 5, correlation=2),
        event("kernel", "k", 180, 820, 7, correlation=2, device=0),
    )
    (wait,) = trace.waits
    assert (wait.gap_us, wait.idle_us) == (30, 30)
    assert (trace.steps[0].waits_us, trace.steps[0].late_us) == (30, 130)


def test_two_devices_wait_for_the_same_host(tmp_path: Path) -> None:
    """What is said of a wait is said of the busier one, as it is of steps."""
    events = [event("cuda_runtime", "cudaDeviceSynchronize", 100, 50)]
    for device in (0, 1):
        events += [
            event("cuda_runtime", "cudaLaunchKernel", 10, 5, correlation=device + 1),
            event("kernel", "k", 20, 120, 7, correlation=device + 1, device=device),
            event("cuda_runtime", "cudaLaunchKernel", 200 + device, 1, correlation=device + 3),
            event("kernel", "k", 210, 790 + device, 7, correlation=device + 3, device=device),
        ]
    trace = told(tmp_path, *events)
    (wait,) = trace.waits
    assert [device.number for device in trace.devices] == [0, 1]
    assert (wait.us, wait.idle_us, wait.gap_us) == (50, 50, 70)
    assert trace.steps[0].waits_us == 50


def test_a_thread_of_autograd_waits_for_the_line_that_calls_it(tmp_path: Path) -> None:
    name = "autograd::engine::evaluate_function: IndexBackward0"
    trace = told(
        tmp_path,
        event("python_function", "/p/train.py(10): step", 50, 800),
        event("python_function", "/p/train.py(20): later", 900, 50),
        event("cpu_op", name, 100, 300, 2),
        event("cuda_runtime", "cudaStreamSynchronize", 120, 50, 2),
        event("kernel", "k", 10, 120, 7, device=0),
        event("cuda_runtime", "cudaLaunchKernel", 420, 5, correlation=2),
        event("kernel", "k", 430, 5, 7, correlation=2, device=0),
        event("cpu_op", name, 960, 20, 2),
        event("cuda_runtime", "cudaStreamSynchronize", 970, 5, 2),
    )
    places = {wait.line.shown: wait for wait in trace.waits}
    assert places.keys() == {"/p/train.py:10 in step", ""}
    wait = places["/p/train.py:10 in step"]
    assert (wait.operator, wait.gap_us, wait.idle_us) == (name, 300, 50)
