"""Where the time of one call goes: Python functions, torch's binding, autograd, the dispatcher, allocation,
kernels. Each layer is the difference between two kinds of calls that are timed in turn."""

from __future__ import annotations

import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import CodeType
from typing import Any

from pytest_dispatchguard.measure.layers.compiled import CompiledLayers, around_part
from pytest_dispatchguard.measure.layers.functions import name_of, parts_of
from pytest_dispatchguard.measure.layers.python import PythonLayers
from pytest_dispatchguard.measure.layers.reconciling import reconciled
from pytest_dispatchguard.measure.timing.calling import Call
from pytest_dispatchguard.measure.timing.devices import HOST, Device, here
from pytest_dispatchguard.measure.timing.interleaved import (
    Arm,
    Clock,
    InterleavedTimes,
    time_interleaved,
)
from pytest_dispatchguard.measure.timing.subject import Subject
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.layers import Layer, Layers
from pytest_dispatchguard.runtime.compiled.calls import lets_in, role
from pytest_dispatchguard.runtime.hooks.call_tree import CallTree
from pytest_dispatchguard.runtime.hooks.garbage_collector import collector_off

_WARM_UPS = 3
_LOOKS = 5
"""How often a call is recorded to find which functions take long."""
_MOST_TORCH_CALLS = 2000
_TELLABLE = 0.005
"""The share of the whole that is worth a note."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The call to take apart, and how long that may take."""

    call: Call
    name: str
    seconds: float = 2.0
    confidence: float = 0.999
    prepare: Callable[[], object] | None = None
    mode: Callable[[], AbstractContextManager[object]] = nullcontext
    device: Device = HOST
    tell: Callable[[float], object] = lambda done: None
    clock: Clock = time.perf_counter_ns


def layers(wanted: Wanted) -> Layers:
    """Measures the layers of one call."""
    if wanted.call.loop is not None:
        # Some functions of an event loop wait for others to end them, and cannot be called by themselves.
        raise UserError(f"{wanted.name} has no layers, as an event loop runs it")
    with wanted.mode():
        return _Apart(wanted).layers()


class _Apart:
    """One call that is being taken apart."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.prepare = wanted.prepare or (lambda: None)
        self.tree = CallTree()
        self._took: list[list[tuple[CodeType, int]]] = []

    def layers(self) -> Layers:
        """Records the call, times its parts, and computes the layers."""
        for _ in range(_WARM_UPS):
            self.prepare()
            self.wanted.call.once()()
        # The call's own warnings were shown by now; the rest would be about calls made for measuring.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._measured()

    def _measured(self) -> Layers:
        self._record(CallTree())  # this call may compile, or cache, because it is watched
        self._record(self.tree)
        for _ in range(_LOOKS):
            again = CallTree()
            self._record(again)
            self._took.append(again.times())
        self.tree.at_best(self._took)
        if any(map(lets_in, self.tree.calls)):
            return self._compiled()
        return self._eager()

    def _record(self, tree: CallTree) -> None:
        self.prepare()
        with collector_off():
            tree.record(self.wanted.call.once())

    def _compiled(self) -> Layers:
        wanted, calls = self.wanted, self.tree.calls
        around = around_part(calls)
        python = PythonLayers(
            parts_of(calls, role), wanted.call, wanted.prepare, wanted.clock, around
        )
        compiled = CompiledLayers(calls, python, wanted.call, self.prepare, wanted.clock)
        found = self._time({**python.arms, **compiled.arms})
        return self._made(found, compiled.layers(found), [*python.notes, *compiled.notes])

    def _eager(self) -> Layers:
        wanted = self.wanted
        torch_calls: list[Any] = []
        passed_over = 0
        if "torch" in sys.modules:
            from pytest_dispatchguard.runtime.hooks import torch_calls as seen

            self.tree = CallTree()
            with seen.recording(self.tree.owner, torch_calls) as recorder:
                self._record(self.tree)
            self.tree.at_best(self._took)
            passed_over = recorder.passed_over
        python = PythonLayers(parts_of(self.tree.calls), wanted.call, wanted.prepare, wanted.clock)
        notes = python.notes
        if passed_over:
            notes.append(
                f"{passed_over} calls of torch under autocast, modes or devices that the call enters "
                "itself: "
                "told with the Python that makes them"
            )
        if not self.tree.complete or len(torch_calls) > _MOST_TORCH_CALLS:
            notes.append("the call is too long to measure all its parts separately")
            del torch_calls[_MOST_TORCH_CALLS:]
        if not torch_calls:
            found = self._time(python.arms)
            itself = Layer("the call itself, in C", "python", found.us({"whole": 1.0}))
            return self._made(found, python.layers(found, {}) or [itself], notes)
        from pytest_dispatchguard.measure.layers.torch import TorchLayers

        names = Counter[str](call.name for call in torch_calls)
        below = TorchLayers(torch_calls, python.owners(self.tree.calls), wanted.clock)
        with below.arranged() as torch_arms:
            if not torch_arms:
                found = self._time(python.arms)
                above = python.layers(found, {})
                return self._made(found, above, [*notes, *below.notes], names)
            found = self._time({**python.arms, **torch_arms})
        above = python.layers(found, below.by_part)
        parts = [*above, *below.layers(found, all_of_it=not above)]
        return self._made(found, parts, [*notes, *below.notes], names)

    def _time(self, arms: Mapping[str, Arm]) -> InterleavedTimes:
        wanted = self.wanted
        whole = Arm(wanted.call.block(wanted.clock), fresh=self.prepare)
        return time_interleaved(
            {"whole": whole, **arms},
            seconds=wanted.seconds,
            confidence=wanted.confidence,
            device=wanted.device,
            clock=wanted.clock,
            tell=wanted.tell,
        )

    def _made(
        self,
        found: InterleavedTimes,
        parts: Sequence[Layer],
        notes: Sequence[str],
        torch_calls: Mapping[str, int] | None = None,
    ) -> Layers:
        whole = found.alone("whole")
        fitting, off = reconciled(parts)
        # A layer that is negative for certain was measured wrong: reporting zero would mislead.
        wrong = [part for part in parts if part.us.high < 0 and not part.line]
        kept = [made for made, part in zip(fitting, parts, strict=True) if part not in wrong]
        said = [
            f"{part.name}: cannot be told apart, what is inside of it takes {-part.us.value:.2f} µs more "
            "on its own"
            for part in wrong
        ]
        if off > _TELLABLE * whole.value:
            said.append(
                f"on their own, parts take {off:.2f} µs more than within the call, {off / whole.value:.0%} "
                "of it: that much is taken off them"
            )
        return Layers(
            self.wanted.name,
            whole,
            tuple(kept),
            found.rounds,
            (*notes, *said),
            self.wanted.call.form,
            dict(torch_calls or {}),
            tuple(dict.fromkeys(map(name_of, self.tree.calls))),
        )


def of_subject(
    subject: Subject, name: str, seconds: float, call: Call | None = None, device: str | None = None
) -> Layers:
    """Measures the layers of a subject's call, or of `call` in its place. `device` is the test's
    `overhead_device`."""
    return layers(
        Wanted(
            call or subject.call,
            name,
            seconds,
            prepare=subject.fresh,
            mode=subject.in_mode,
            device=here(device),
        )
    )
