"""Prepares timing: how many calls make a block, and no garbage collector or tracer meanwhile."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import NamedTuple

from pytest_dispatchguard.measure.timing.calling import Block
from pytest_dispatchguard.measure.timing.devices import Device
from pytest_dispatchguard.runtime.hooks.garbage_collector import collector_off

_SLOW_NS = 10_000_000
"""A call that takes this long is a block by itself; no need to call it more often."""


class Pace(NamedTuple):
    """How many calls make a block, and how long one takes."""

    loops: int
    call_ns: float


def pace(block: Block, prepare: Callable[[], object] | None, device: Device) -> Pace:
    """Finds how many calls make a block, and warms up caches and the interpreter."""
    loops = 1
    while True:
        took = []
        for _ in range(5):
            if prepare is not None:
                prepare()
            device.wait()
            took.append(block(repeat(None, loops)))
            if took[-1] > _SLOW_NS:
                break
        device.wait()
        if min(took) >= device.block_ns / 2 or loops >= device.most_calls:
            break
        loops *= 2
    wanted = round(loops * max(device.block_ns / max(min(took), 1), 1))
    return Pace(max(1, min(wanted, device.most_calls)), min(took) / loops)


_FOR_GOOD: list[bool] = []
"""Not empty where all objects were frozen for good: to count them takes as long as some hundred blocks."""


def freeze_for_good() -> None:
    """Freezes all objects that exist, in this process and those forked from it."""
    gc.collect()
    gc.freeze()
    _FOR_GOOD.append(True)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Disables the garbage collector, tracers and profilers, and freezes the objects that exist."""
    trace, profile = sys.gettrace(), sys.getprofile()
    sys.settrace(None)
    sys.setprofile(None)
    gc.collect()
    # What somebody else froze must stay frozen.
    frozen = bool(_FOR_GOOD) or gc.get_freeze_count() > 0
    if not frozen:
        gc.freeze()
    try:
        with collector_off():
            yield
    finally:
        if not frozen:
            gc.unfreeze()
        sys.setprofile(profile)
        sys.settrace(trace)
