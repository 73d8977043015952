"""Control calls: a fixed set of calls that no revision of a project changes. They are timed beside a subject,
so that a saved run shows at which pace the machine went."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import repeat
from typing import Any

from pytest_dispatchguard.measure.timing.calibration import pace
from pytest_dispatchguard.measure.timing.calling import Block, Call
from pytest_dispatchguard.measure.timing.devices import HOST
from pytest_dispatchguard.measure.timing.intervals import median

_SHARE = 0.08
"""The part of the time that control calls take."""
_LEAST_ROUNDS, _MOST_ROUNDS = 8, 100
"""The least and the most blocks of each in a row."""
_WARM = 3
"""Blocks of each before those that are not timed: the subject and the collector have used the caches. With a
single one, on a busy machine, the first control call took up to 16% more than usual, and the last one 2%."""


class _Layer:
    """Attributes and methods, as wrappers in Python have them."""

    def __init__(self) -> None:
        self.scale, self.shift, self.inner = 3, 1, self

    def scaled(self, number: int) -> int:
        return number * self.scale + self.shift

    def __call__(self, number: int, *, twice: bool = True) -> int:
        found = self.inner.scaled(number)
        return self.inner.scaled(found) if twice else found


def _attributes(layer: _Layer) -> int:
    return layer(2) + layer(3, twice=False)


_TREE = {"a": [1, (2, 3)], "b": {"c": [4, 5]}, "d": 6}


def _leaves(tree: object) -> list[object]:
    """The leaves of nested dictionaries, lists and tuples."""
    if isinstance(tree, dict):
        return [leaf for part in tree.values() for leaf in _leaves(part)]
    if isinstance(tree, (list, tuple)):
        return [leaf for part in tree for leaf in _leaves(part)]
    return [tree]


def _passed_on(*args: int, **kwargs: int) -> int:
    return _added(*args, **kwargs)


def _added(first: int, second: int = 1, *, third: int = 2) -> int:
    return first + second + third


def _arguments() -> int:
    """Arguments that a wrapper passes on."""
    return _passed_on(1, third=3) + _passed_on(1, second=2) + _passed_on(4, 5, third=6)


def _objects(number: int) -> dict[str, tuple[int, str]]:
    """Strings, tuples and a dictionary, made and thrown away."""
    return {f"{i}.weight": (i, str(i)) for i in range(number)}


def calls() -> dict[str, Call]:
    """The control calls by name; one of torch only if it is imported already."""
    found = {
        "arguments": Call(_arguments),
        "attributes": Call(_attributes, (_Layer(),)),
        "objects": Call(_objects, (6,)),
        "tree": Call(_leaves, (_TREE,)),
    }
    torch: Any = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "add"):
        four = torch.ones(4, dtype=torch.float32, device="cpu")
        found["torch"] = Call(torch.add, (four, four))
    return found


class Controls:
    """The control calls of one process, timed in blocks among those of a subject."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.clock = clock
        self._blocks: dict[str, tuple[Block, int]] = {}
        """With how many calls each has."""
        self._ns: dict[str, list[float]] = {}
        """What a call took, block by block."""
        self._round_ns = 0.0
        self._last = clock()

    def beside(self) -> None:
        """Times some blocks of each, if it is time; called between blocks of the subject, with the collector
        off."""
        first = not self._blocks
        if first:
            self._start()
        took = self.clock() - self._last
        due = int(_SHARE * took / self._round_ns) if self._round_ns > 0 else _LEAST_ROUNDS
        if due < _LEAST_ROUNDS and not first:
            return
        self.rounds(min(max(due, _LEAST_ROUNDS), _MOST_ROUNDS))

    def rounds(self, number: int) -> None:
        """Times so many blocks of each."""
        if not self._blocks:
            self._start()
        for _ in range(_WARM):
            self._round()
        for _ in range(number):
            for name, ns in self._round().items():
                self._ns[name].append(ns)
        self._last = self.clock()

    def _start(self) -> None:
        for name, call in calls().items():
            block = call.block(self.clock)
            self._blocks[name] = block, pace(block, None, HOST).loops
            self._ns[name] = []
        start = self.clock()
        self._round()
        self._round_ns = float(self.clock() - start)

    def _round(self) -> dict[str, float]:
        """A block of each: nanoseconds of a call."""
        return {
            name: block(repeat(None, loops)) / loops
            for name, (block, loops) in self._blocks.items()
        }

    def found_us(self) -> dict[str, float]:
        """What a call of each takes, in microseconds."""
        return {name: median(sorted(times)) / 1000 for name, times in self._ns.items()}
