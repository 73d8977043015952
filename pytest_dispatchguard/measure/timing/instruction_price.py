"""What one bytecode instruction takes on this machine, measured on code of several kinds."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from itertools import repeat
from typing import Any

from pytest_dispatchguard.measure.timing.calibration import undisturbed
from pytest_dispatchguard.measure.timing.calling import Call, empty_block
from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.runtime.counters.instructions import instructions_by_place

_LOOPS, _BLOCKS = 200, 15


class _Layer:
    scale = 2

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {"axis": 1, "name": "dense"}

    def call(self, value: int, *, scale: int = 1) -> int:
        return value * scale


def _arithmetic(value: int) -> int:
    low = value + 1
    high = low * 3 - value
    if low < high:
        low, high = high, low
    return low - high + value % 7


def _attributes(layer: _Layer) -> Any:
    settings = layer.settings
    return layer.scale, layer.settings["axis"], settings["name"], layer.scale


def _calls(layer: _Layer) -> int:
    return layer.call(1, scale=layer.call(2)) + layer.call(3)


def _checks(layer: _Layer) -> bool:
    return isinstance(layer, _Layer) and hasattr(layer, "scale") and not callable(layer.settings)


def _containers(layer: _Layer) -> Any:
    found = {name: value for name, value in layer.settings.items()}  # noqa: C416 - it is what is measured
    return [*found, *(len(name) for name in found)], {**found, "mask": None}


def _errors(layer: _Layer) -> Any:
    try:
        return layer.settings["axis"] + layer.scale
    except KeyError:
        return None


_KINDS: tuple[tuple[Callable[..., object], bool], ...] = (
    (_arithmetic, False),
    (_attributes, True),
    (_calls, True),
    (_checks, True),
    (_containers, True),
    (_errors, True),
)
"""Each kind of code, and whether it is about a layer."""


@cache
def instruction_ns() -> Interval:
    """The nanoseconds of an instruction: the median over kinds of code, and the least and the most of them.
    Measured once, in some 30 ms."""
    layer = _Layer()
    with undisturbed():
        each = sorted(_ns(Call(run, (layer if about else 5,))) for run, about in _KINDS)
    half = len(each) // 2
    return Interval((each[half - 1] + each[half]) / 2, each[0], each[-1])


def implied_us(instructions: int) -> Interval:
    """What so many more instructions take, or so many fewer: an estimate."""
    price = instruction_ns()
    ends = sorted((instructions * price.low / 1000, instructions * price.high / 1000))
    return Interval(instructions * price.value / 1000, *ends)


def _ns(call: Call) -> float:
    clock = time.perf_counter_ns
    block, empty = call.block(clock), empty_block(clock)
    for _ in range(2):
        block(repeat(None, _LOOPS))  # the interpreter specializes it
    took = min(block(repeat(None, _LOOPS)) for _ in range(_BLOCKS))
    nothing = min(empty(repeat(None, _LOOPS)) for _ in range(_BLOCKS))
    counted = sum(instructions_by_place(call.once()).values())
    return max(took - nothing, 1) / _LOOPS / counted
