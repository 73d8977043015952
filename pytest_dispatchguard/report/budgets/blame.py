"""Why one call takes longer than another: compares its layers with those of its base or reference."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_dispatchguard.model.layers import Layer, LayerKind, Layers
from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.model.verdicts import Verdict

_MOST = 12
"""The most rows shown."""
_LEAST = 0.02
"""A layer with a smaller share of the difference is not shown."""
_PYTHON: tuple[LayerKind, ...] = ("python", "override", "context")


@dataclass(frozen=True, slots=True)
class Slower:
    """One layer in both calls, in microseconds per call."""

    layer: Layer
    here: Interval
    there: float

    @property
    def more(self) -> float:
        """How much longer it takes."""
        return self.here.value - self.there


def compared_layers(verdict: Verdict) -> tuple[Layers, str] | None:
    """The layers to compare a verdict's layers with, and what they belong to; None if there are none."""
    if verdict.base is not None and verdict.base.layers is not None:
        return verdict.base.layers, verdict.base.name
    if verdict.reference_layers is not None:
        return verdict.reference_layers, "its reference"
    return None


def slower_layers(here: Layers, there: Layers) -> list[Slower]:
    """The layers of a call that take longer than in the other, the largest difference first. Functions
    are matched by name."""
    found = _together(here.layers)
    known = {key: us.value for key, (_, us) in _together(there.layers).items()}
    rows = [Slower(layer, us, known.get(key, 0.0)) for key, (layer, us) in found.items()]
    more = sum(max(row.more, 0.0) for row in rows)
    told = [row for row in rows if row.more > _LEAST * more and row.here.high > row.there]
    return sorted(told, key=lambda row: -row.more)[:_MOST]


Key = tuple[str, str]


def _together(layers: Iterable[Layer]) -> dict[Key, tuple[Layer, Interval]]:
    """Layers of one kind added up, Python functions by name."""
    found: dict[Key, list[Layer]] = {}
    for layer in layers:
        found.setdefault((_kind(layer), layer.name), []).append(layer)
    return {key: (same[0], _sum(same)) for key, same in found.items()}


def _kind(layer: Layer) -> str:
    return "python" if layer.kind in _PYTHON else layer.kind


def _sum(layers: Sequence[Layer]) -> Interval:
    value = sum(layer.us.value for layer in layers)
    below = math.sqrt(sum((layer.us.value - layer.us.low) ** 2 for layer in layers))
    above = math.sqrt(sum((layer.us.high - layer.us.value) ** 2 for layer in layers))
    return Interval(value, value - below, value + above)
