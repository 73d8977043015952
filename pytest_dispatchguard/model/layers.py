"""Where the time of one call goes, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from pytest_dispatchguard.model.measurements import Interval

LayerKind = Literal[
    "python",
    "override",
    "context",
    "binding",
    "autograd",
    "tracking",
    "dispatcher",
    "allocation",
    "kernel",
    "frame",
    "guards",
    "wrapper",
    "compiled",
]
"""What a part of a call is made of."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A part of what one call takes."""

    name: str
    """``Dense.call``, `autograd`, `kernels`."""
    kind: LayerKind
    us: Interval
    depth: int = 0
    """How deep a Python function is nested in those before it."""
    times: int = 1
    """How often it runs in one call."""
    note: str = ""
    """What it consists of."""
    path: str = ""
    line: int = 0
    """Where a Python function begins; 0 for what has no source."""

    @property
    def called(self) -> str:
        """What people call it: ``with scope``, ``Sub.__torch_function__``."""
        return f"with {self.name}" if self.kind == "context" else self.name


@dataclass(frozen=True, slots=True)
class Layers:
    """Where the time of one call goes: parts that add up to the whole."""

    subject: str
    whole_us: Interval
    layers: tuple[Layer, ...]
    rounds: int
    """Blocks of each kind that took turns."""
    notes: tuple[str, ...] = ()
    """What could not be told apart, in words."""

    form: str = ""
    """How the call is made: ``f(a0, axis=k0)``."""
    torch_calls: Mapping[str, int] = field(default_factory=dict)
    """What it asks of torch, and how often."""
    functions: tuple[str, ...] = ()
    """The Python functions that it runs, also those too short to be told apart."""

    def at_pace(self, factor: float) -> Layers:
        """The same on a machine that takes so many times as long."""
        parts = tuple(replace(layer, us=layer.us.times(factor)) for layer in self.layers)
        return replace(self, whole_us=self.whole_us.times(factor), layers=parts)

    @property
    def sum_us(self) -> float:
        """What the parts come to."""
        return sum(layer.us.value for layer in self.layers)

    @property
    def shares(self) -> tuple[float, ...]:
        """What each part takes of the whole, from 0 to 1."""
        whole = self.whole_us.value
        return tuple(min(max(p.us.value / whole, 0.0), 1.0) if whole else 0.0 for p in self.layers)
