"""The layers of a call's Python functions, each without its callees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stderr
from dataclasses import replace
from io import StringIO

from pytest_dispatchguard.measure.layers.functions import Part
from pytest_dispatchguard.measure.layers.statements import statements_arm
from pytest_dispatchguard.measure.timing.calling import Call
from pytest_dispatchguard.measure.timing.interleaved import Arm, Clock, InterleavedTimes
from pytest_dispatchguard.model.layers import Layer
from pytest_dispatchguard.runtime.counters.instructions import instructions_by_place
from pytest_dispatchguard.runtime.hooks.call_tree import PythonCall
from pytest_dispatchguard.runtime.torch_private.compiler import dynamo_restored
from pytest_dispatchguard.runtime.torch_private.dispatcher import in_grad_state

_ONCE = (None,)

Around = Callable[[], AbstractContextManager[object]]


class PythonLayers:
    """The functions of a call that can be repeated on their own; the others stay with their callers."""

    def __init__(
        self,
        parts: Sequence[Part],
        whole: Call,
        prepare: Callable[[], object] | None,
        clock: Clock,
        around: Callable[[Part], Around] = lambda part: nullcontext,
    ) -> None:
        self.parts: list[Part] = []
        self.arms: dict[str, Arm] = {}
        self.notes: list[str] = []
        self._whole = whole
        self._prepare = prepare or (lambda: None)
        repeatable = len(parts) < 2 or self._is_repeatable()
        if not repeatable:
            self.notes.append(
                "the call does something else each time: its functions are not told apart"
            )
        moved: dict[int, int] = {-1: -1}
        for number, part in enumerate(parts):
            arm = None
            if number:
                arm = statements_arm(part.statements, clock, _as_it_was(part, around(part)))
                arm = replace(arm, fresh=self._prepare)
            part.parent = moved[part.parent]
            if arm is not None and not (repeatable and self._repeats(arm)):
                moved[number] = part.parent
                self.parts[part.parent].calls |= part.calls
                if repeatable:
                    said = "told with what calls it, as it does something else when called alone"
                    self.notes.append(f"{part.name}: {said}")
                continue
            moved[number] = len(self.parts)
            part.depth = self.parts[part.parent].depth + 1 if number else 0
            if arm is not None:
                self.arms[arm_of(len(self.parts))] = arm
            self.parts.append(part)

    def owners(self, calls: Sequence[PythonCall]) -> Mapping[int, int]:
        """The part that each Python call belongs to."""
        owners = {-1: 0}
        heads = {number: i for i, part in enumerate(self.parts) for number in part.calls}
        for call in calls:
            owners[call.number] = heads.get(call.number, owners[call.parent])
        return owners

    def layers(
        self, found: InterleavedTimes, others: Mapping[int, Mapping[str, float]]
    ) -> list[Layer]:
        """The time of each part without the parts that it calls, and without its `others`."""
        own = [{arm_of(i) if i else "whole": 1.0} for i in range(len(self.parts))]
        for number, part in enumerate(self.parts):
            if number:
                own[part.parent][arm_of(number)] = -1.0
            for arm, factor in others.get(number, {}).items():
                own[number][arm] = own[number].get(arm, 0.0) - factor
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
            for part, sums in zip(self.parts, own, strict=True)
        ]

    def _is_repeatable(self) -> bool:
        """Whether the call does the same each time."""
        return self._instructions(self._whole) == self._instructions(self._whole)

    def _repeats(self, arm: Arm) -> bool:
        """Whether a part can be repeated on its own without changing the call."""
        before = self._instructions(self._whole)
        once = Call(arm.block, (_ONCE,))
        try:
            with dynamo_restored() as switched, redirect_stderr(StringIO()):
                with arm.around():
                    alike = self._instructions(once) == self._instructions(once)
                alike = alike and not switched()
        except Exception:  # noqa: BLE001 - whatever it says: it is no call of its own
            return False
        return alike and self._instructions(self._whole) == before

    def _instructions(self, call: Call) -> int:
        self._prepare()
        return instructions_by_place(call.once()).total()


def _as_it_was(part: Part, around: Around) -> Around:
    """The context that a part is called in: its grad mode, and `around`."""

    @contextmanager
    def entered() -> Iterator[None]:
        with in_grad_state(*part.state), around():
            yield

    return entered


def arm_of(number: int) -> str:
    """The name of a part's arm."""
    return f"python {number}"
