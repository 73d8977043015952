"""Where the time of one call goes: its Python functions, torch's binding, autograd, the dispatcher,
allocation, kernels. Each is what one kind of call takes more than another, measured by turns."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from pytest_dispatchguard.measure.calling import Call
from pytest_dispatchguard.measure.devices import HOST, Device
from pytest_dispatchguard.measure.parts import Part, parts_of
from pytest_dispatchguard.measure.statements import statements_arm
from pytest_dispatchguard.measure.turns import Arm, Turned, turned
from pytest_dispatchguard.model import Layer, Layers
from pytest_dispatchguard.runtime.call_tree import CallTree
from pytest_dispatchguard.runtime.collector import collector_off
from pytest_dispatchguard.runtime.instructions import instructions_by_place

_WARM_UPS = 3
_MOST_TORCH_CALLS = 2000
_ONCE = (None,)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be taken apart, and how long that may take."""

    call: Call
    name: str
    seconds: float = 2.0
    confidence: float = 0.999
    prepare: Callable[[], object] | None = None
    mode: Callable[[], AbstractContextManager[object]] = nullcontext
    device: Device = HOST
    tell: Callable[[float], object] = lambda done: None


def layers(wanted: Wanted) -> Layers:
    """Takes one call apart."""
    with wanted.mode():
        return _Eager(wanted).layers()


class _Eager:
    """A call that runs operation by operation."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.notes: list[str] = []
        self.tree = CallTree()
        self.torch_calls: list[Any] = []
        self.clock = time.perf_counter_ns

    def layers(self) -> Layers:
        """Records the call, has its parts take turns, and tells them apart."""
        self._record()
        arms = {"whole": self._whole()}
        usable = self._python_arms(parts_of(self.tree.calls), arms)
        if not self.torch_calls:
            found = self._turned(arms)
            return self._made(found, self._python(found, usable, {}))
        from pytest_dispatchguard.measure.torch_layers import TorchLayers

        below = TorchLayers(self.torch_calls, self._owners(usable), self.clock)
        with below.arranged() as torch_arms:
            found = self._turned({**arms, **torch_arms})
        self.notes += below.notes
        python = self._python(found, usable, below.by_part)
        return self._made(found, [*python, *below.layers(found, all_of_it=not usable)])

    def _record(self) -> None:
        run = self.wanted.call.once()
        prepare = self.wanted.prepare or (lambda: None)
        for _ in range(_WARM_UPS):
            prepare()
            run()
        prepare()
        with collector_off():
            if "torch" not in sys.modules:
                self.tree.record(run)
            else:
                from pytest_dispatchguard.runtime import torch_calls

                with torch_calls.recording(self.tree.owner, self.torch_calls):
                    self.tree.record(run)
        if not self.tree.complete or len(self.torch_calls) > _MOST_TORCH_CALLS:
            self.notes.append("the call is too long to be told apart in all its parts")
            del self.torch_calls[_MOST_TORCH_CALLS:]

    def _whole(self) -> Arm:
        prepare = self.wanted.prepare or (lambda: None)
        return Arm(self.wanted.call.block(self.clock), fresh=prepare)

    def _python_arms(self, parts: list[Part], arms: dict[str, Arm]) -> list[Part]:
        """Adds an arm for each part that can be called again; the others stay with what calls them."""
        if not parts:
            return []
        kept = parts[:1]
        moved = {0: 0}
        for number, part in enumerate(parts):
            if not number:
                continue
            arm = statements_arm(part.statements, self.clock)
            if not self._repeats(arm):
                moved[number] = moved[part.parent]
                self.notes.append(
                    f"{part.name} cannot be called on its own: it is told with its caller"
                )
                continue
            moved[number] = len(kept)
            arms[f"python {len(kept)}"] = arm
            part.parent = moved[part.parent]
            part.depth = kept[part.parent].depth + 1
            kept.append(part)
        return kept

    def _owners(self, parts: Sequence[Part]) -> Mapping[int, int]:
        """The part that each Python call belongs to."""
        owners = {-1: 0}
        heads = {number: i for i, part in enumerate(parts) for number in part.calls}
        for call in self.tree.calls:
            owners[call.number] = heads.get(call.number, owners[call.parent])
        return owners

    def _turned(self, arms: Mapping[str, Arm]) -> Turned:
        wanted = self.wanted
        return turned(
            arms,
            seconds=wanted.seconds,
            confidence=wanted.confidence,
            device=wanted.device,
            clock=self.clock,
            tell=wanted.tell,
        )

    def _repeats(self, arm: Arm) -> bool:
        """Whether what was seen can be done again on its own, and changes nothing for the call."""
        before = self._instructions(self.wanted.call.once())

        once = Call(arm.block, (_ONCE,)).once()
        try:
            alike = self._instructions(once) == self._instructions(once)
        except Exception:  # noqa: BLE001 - whatever it says: it is no call of its own
            return False
        return alike and self._instructions(self.wanted.call.once()) == before

    def _instructions(self, run: FunctionType) -> int:
        if self.wanted.prepare is not None:
            self.wanted.prepare()
        return instructions_by_place(run).total()

    def _python(
        self, found: Turned, parts: Sequence[Part], torch_by_part: Mapping[int, Mapping[str, float]]
    ) -> list[Layer]:
        """What each part takes itself, without what it calls that is told apart."""
        own = [{f"python {i}" if i else "whole": 1.0} for i in range(len(parts))]
        for number, part in enumerate(parts):
            if number:
                own[part.parent][f"python {number}"] = -1.0
            for arm, factor in torch_by_part.get(number, {}).items():
                own[number][arm] = -factor
        return [
            Layer(
                part.name,
                part.kind,
                found.us(sums),
                part.depth,
                max(len(part.statements), 1),
                path=part.path,
                line=part.line,
            )
            for part, sums in zip(parts, own, strict=True)
        ]

    def _made(self, found: Turned, parts: Sequence[Layer]) -> Layers:
        whole = found.us({"whole": 1.0})
        return Layers(self.wanted.name, whole, tuple(parts), found.rounds, tuple(self.notes))
