"""Reconciles layers that were measured separately with the whole: none is negative, and they add up to the
whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pytest_dispatchguard.model.layers import Layer, LayerKind
from pytest_dispatchguard.model.measurements import Interval

_INWARDS: tuple[LayerKind, ...] = (
    "binding",
    "autograd",
    "tracking",
    "allocation",
    "kernel",
    "dispatcher",
)
"""The layers of torch, outermost first; each is measured against the next."""


def reconciled(layers: Sequence[Layer]) -> tuple[list[Layer], float]:
    """The layers of a call without negative times, and how much was taken off for that, in microseconds.

    A layer is the difference between two measurements. It is negative where the inner one took longer on its
    own than it does within the call, so that the layers inside were told the same amount too much.
    """
    values = [layer.us.value for layer in layers]
    off = 0.0
    for number in _outermost_first(layers):
        lack, values[number] = max(-values[number], 0.0), max(values[number], 0.0)
        off += lack
        for inside in _inside(layers, number):
            lack -= _take(values, inside, lack)
    made = [
        replace(layer, us=_reaching(layer.us, value))
        for layer, value in zip(layers, values, strict=True)
    ]
    return made, off


def _outermost_first(layers: Sequence[Layer]) -> list[int]:
    """The order of layers: functions before their callees, torch's layers from the outside to the inside."""
    return sorted(range(len(layers)), key=lambda number: _depth_in_torch(layers[number]))


def _depth_in_torch(layer: Layer) -> int:
    return _INWARDS.index(layer.kind) + 1 if layer.kind in _INWARDS else 0


def _inside(layers: Sequence[Layer], number: int) -> Iterator[list[int]]:
    """What a layer was measured against, nearest first; the whole call comes last."""
    layer = layers[number]
    of_torch = {_depth_in_torch(other): n for n, other in enumerate(layers)}
    at = _depth_in_torch(layer)
    if at:
        yield from ([of_torch[depth]] for depth in sorted(of_torch) if depth > at)
    else:
        below = []
        for other in range(number + 1, len(layers)):
            if layers[other].depth <= layer.depth or _depth_in_torch(layers[other]):
                break
            below.append(other)
        yield [*below, *(n for depth, n in of_torch.items() if depth)]
    yield list(range(len(layers)))


def _take(values: list[float], numbers: Iterable[int], lack: float) -> float:
    """Subtracts a total from some values in proportion to their size; returns how much it could subtract."""
    there = [number for number in numbers if values[number] > 0]
    total = sum(values[number] for number in there)
    taken = min(lack, total)
    for number in there:
        values[number] -= taken * values[number] / total
    return taken


def _reaching(interval: Interval, value: float) -> Interval:
    """The interval moved to another value, widened to contain the measured one."""
    return Interval(value, min(interval.low, value), max(interval.high, value))
