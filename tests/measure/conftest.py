"""A world without a real clock, in which calls take what a test says."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from pytest_dispatchguard.measure.timing import calibration, timing
from pytest_dispatchguard.measure.timing.calling import Call


class World:
    """A clock that only calls move."""

    def __init__(self, seed: int = 0) -> None:
        self.now = 0
        self.rng = random.Random(seed)

    def clock(self) -> int:
        return self.now

    def call(self, nanoseconds: Callable[[], float]) -> Call:
        """A call that takes so long, drawn anew each time."""

        def function() -> None:
            self.now += round(nanoseconds())

        return Call(function)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Fast too: there is no garbage to collect between its blocks, and the order of blocks repeats."""
    nothing = SimpleNamespace(
        collect=lambda generation=2: 0,
        freeze=lambda: None,
        unfreeze=lambda: None,
        get_freeze_count=lambda: 0,
    )
    for module in (calibration, timing):
        monkeypatch.setattr(module, "gc", nothing)
    made = World()
    monkeypatch.setattr(timing, "random", made.rng)
    return made
