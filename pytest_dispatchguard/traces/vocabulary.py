"""What the events of a trace are called: by PyTorch of 2021 as by today's, on CUDA, ROCm, XPU, MTIA and
others."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from pytest_dispatchguard.model.traces import WaitKind

Place = Literal["annotation", "python", "operator", "runtime", "driver", "device"]

_PLACES: dict[str, Place] = {
    "user_annotation": "annotation",
    "python_function": "python",
    "cpu_op": "operator",
    "Operator": "operator",
    "Runtime": "runtime",
    "kernel": "device",
    "Kernel": "device",
    "concurrent_kernel": "device",
    "gpu_memcpy": "device",
    "gpu_memset": "device",
    "Memcpy": "device",
    "Memset": "device",
    "mtia_ccp_events": "device",
    "hpu_op": "device",
}
_RUNTIME, _DRIVER = "_runtime", "_driver"
"""How the categories end of what a vendor's library does on the host, ``cuda_runtime``; those of ROCm say
``cuda``, too."""

STEP = "ProfilerStep"
OPTIMIZER = "Optimizer.step#"
BACKWARD = "autograd::engine::evaluate_function"
"""What the threads of autograd are in all the time."""
INPUT = re.compile(r"enumerate\(DataLoader\)|DataLoader.*__next__|\[pl\].*dataloader_next")
"""What PyTorch and Lightning call the wait for a data loader."""

# `StreamWaitEvent` makes a stream wait, not the host; `Query` asks and goes on.
_WAITS: tuple[tuple[re.Pattern[str], WaitKind], ...] = (
    (re.compile(r"Event\w*Synchronize|SynchronizeEvent|EventsWait$|urEventWait$"), "event"),
    (
        re.compile(r"Stream\w*Synchronize|SynchronizeStream|Queue\w*Synchronize|QueueFinish"),
        "stream",
    ),
    (re.compile(r"CommandListHostSynchronize|FenceHostSynchronize"), "stream"),
    (re.compile(r"(Device|Ctx|Context)\w*Synchronize|SynchronizeDevice"), "device"),
    (re.compile(r"[sS]ynchronize"), "device"),
)
_COPY = re.compile(r"^(cuda|hip|cu|musa)Memcpy")
_BLOCKING_COPY = re.compile(r"WithStream$")
_ASYNC = re.compile(r"Async")
_LAUNCH = re.compile(
    r"Launch(Kernel|Cooperative|Graph|HostFunc)?|GraphLaunch|Memcpy|Memset|Enqueue|AppendMemory"
    r"|runFunction"
)
_GRAPH = re.compile(r"GraphLaunch|launchGraph", re.IGNORECASE)
_FUSED = re.compile(r"^triton_")


def place_of(category: object) -> Place | None:
    """Where events of a category belong; None for what is not looked at: arrows, counters, names."""
    if not isinstance(category, str):
        return None
    found = _PLACES.get(category)
    if found is None and category.endswith(_RUNTIME):
        return "runtime"
    if found is None and category.endswith(_DRIVER):
        return "driver"
    return found


@lru_cache(maxsize=4096)
def wait_kind(call: str) -> WaitKind | None:
    """What a call of the runtime waits for; None where it does not wait."""
    if _COPY.search(call):
        blocks = _BLOCKING_COPY.search(call) or not _ASYNC.search(call)
        return "copy" if blocks else None
    if _ASYNC.search(call):
        return None
    return next((kind for pattern, kind in _WAITS if pattern.search(call)), None)


@lru_cache(maxsize=4096)
def launches(call: str) -> bool:
    """Whether a call of the runtime gives the device something to do."""
    return _LAUNCH.search(call) is not None


@lru_cache(maxsize=4096)
def launches_graph(call: str) -> bool:
    """Whether it starts a graph: many kernels with one call."""
    return _GRAPH.search(call) is not None


def is_fused(kernel: str) -> bool:
    """Whether `torch.compile` made a kernel."""
    return _FUSED.search(kernel) is not None
