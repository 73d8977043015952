"""The layers of torch calls: its Python binding, autograd, the dispatcher, allocation, kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from typing import Any

import torch

from pytest_dispatchguard.measure.layers import replays
from pytest_dispatchguard.measure.layers.statements import statements_arm
from pytest_dispatchguard.measure.timing.interleaved import Arm, Clock, InterleavedTimes, Sum
from pytest_dispatchguard.model.layers import Layer, LayerKind
from pytest_dispatchguard.runtime.aten_loops import Operation, as_they_are, operations_of
from pytest_dispatchguard.runtime.hooks.torch_calls import State, TorchCall

_MOST_NAMES = 4


class TorchLayers:
    """The torch calls of a call, replayed in all ways that are compared."""

    def __init__(self, calls: Sequence[TorchCall], owners: Mapping[int, int], clock: Clock) -> None:
        self.calls = calls
        self.owners = owners
        self.clock = clock
        self.notes: list[str] = []
        self.by_part: dict[int, dict[str, float]] = {}
        """The torch calls that each Python part makes itself."""
        self._below: list[tuple[State, list[Operation]]] = []
        self._allocates = self._computes = False

    @contextmanager
    def arranged(self) -> Iterator[dict[str, Arm]]:
        """Yields the arms, with loops unoptimized; none if the calls cannot be repeated."""
        with as_they_are():
            above = dict(self._from_python())
            if not all(map(_runs, above.values())):
                self.notes.append(
                    "calls of torch cannot be made again: told with the Python that makes them"
                )
                self.by_part.clear()
                yield {}
                return
            yield {**above, **self._from_below()}

    def layers(self, found: InterleavedTimes, *, all_of_it: bool) -> list[Layer]:
        """The layers, outermost first. `all_of_it` says that the whole contains nothing else."""
        names = [name for name in found.times if name.startswith("torch ")]
        whole = {"whole": 1.0} if all_of_it else dict.fromkeys(names, 1.0)
        as_is = self._sum("as it is")
        made = [self._layer(found, "torch's binding", "binding", whole, as_is, self._bound())]
        if not self._below:
            return made
        quiet, below = self._sum("unrecorded"), self._sum("below autograd")
        if any(state.grad and _recorded(ops) for state, ops in self._below):
            note = "recording what a backward pass needs"
            made.append(self._layer(found, "autograd", "autograd", as_is, quiet, note))
        else:
            quiet = as_is
        note = "keys of autograd, of views and of writing in place, though nothing is recorded"
        made.append(self._layer(found, "autograd's keys", "tracking", quiet, below, note))
        rest = below
        if self._allocates:
            there = self._sum("into memory that is there")
            note = "memory for results"
            made.append(self._layer(found, "allocation", "allocation", rest, there, note))
            rest = there
        if self._computes:
            nothing = self._sum("on no elements")
            kernel = self._layer(found, "kernels", "kernel", rest, nothing, self._operations())
            rest = nothing
        note = "from the dispatcher to the kernel: choosing it, shapes, types, the result's tensor"
        made.append(self._layer(found, "dispatcher", "dispatcher", rest, {}, note))
        return [*made, kernel] if self._computes else made

    def _layer(
        self, found: InterleavedTimes, name: str, kind: LayerKind, more: Sum, less: Sum, note: str
    ) -> Layer:
        parts = dict(more)
        for arm, factor in less.items():
            parts[arm] = parts.get(arm, 0.0) - factor
        return Layer(name, kind, found.us(parts), note=note)

    def _sum(self, way: str) -> Sum:
        return {f"loop {number} {way}": 1.0 for number in range(len(self._below))}

    def _from_python(self) -> Iterator[tuple[str, Arm]]:
        groups: dict[tuple[int, State], list[TorchCall]] = {}
        for call in self.calls:
            groups.setdefault((self.owners[call.owner], call.state), []).append(call)
        for number, ((part, state), calls) in enumerate(groups.items()):
            statements = [replays.statement_of(call) for call in calls]
            around = partial(replays.as_plain_tensors, state)
            name = f"torch {number}"
            arm = statements_arm(statements, self.clock, around, replays.renewed_by(calls))
            self.by_part.setdefault(part, {})[name] = 1.0
            yield name, arm

    def _from_below(self) -> dict[str, Arm]:
        states: dict[State, list[Operation]] = {}
        arms: dict[str, Arm] = {}
        try:
            for call in self.calls:
                with replays.in_state(call.state):
                    states.setdefault(call.state, []).extend(operations_of(call))
            for number, (state, operations) in enumerate(states.items()):
                if operations:
                    made = self._loops(state, operations)
                    if not all(map(_runs, made.values())):
                        raise RuntimeError(f"the operations of state {number} do not run again")
                    arms |= made
        except Exception as error:  # noqa: BLE001 - whatever an operation says to being run alone
            lines = str(error).strip().splitlines() or [type(error).__name__]
            self.notes.append(f"what torch does below its binding cannot be told apart: {lines[0]}")
            self._below.clear()
            return {}
        return arms

    def _loops(self, state: State, operations: list[Operation]) -> dict[str, Arm]:
        number = len(self._below)
        with replays.in_state(state):
            doing = [operation for operation in operations if not operation.only_allocates]
            writing = [operation.writing() or operation for operation in doing]
            bare = [replays.emptied(operation) for operation in doing]
            empty = [
                (made.writing() or made) if made else there
                for made, there in zip(bare, writing, strict=True)
            ]
        ways: dict[str, tuple[Sequence[Operation], Callable[[], Any]]] = {
            "as it is": (operations, partial(replays.in_state, state)),
            "unrecorded": (operations, partial(replays.in_state, state, recorded=False)),
            "below autograd": (operations, partial(replays.below_autograd, state)),
            "into memory that is there": (writing, partial(replays.below_autograd, state)),
            "on no elements": (empty, partial(replays.below_autograd, state)),
        }
        arms = {
            f"loop {number} {way}": replays.loop_arm(run, self.clock, around)
            for way, (run, around) in ways.items()
        }
        self._below.append((state, operations))
        self._allocates |= len(doing) < len(operations)
        self._allocates |= any(a is not b for a, b in zip(writing, doing, strict=True))
        self._computes |= any(bare)
        left = [o.name for o, made in zip(doing, bare, strict=True) if made is None]
        if left:
            self.notes.append(f"kernels counted with the dispatcher: {_counted(left)}")
        return arms

    def _bound(self) -> str:
        calls = _counted(call.name for call in self.calls)
        return f"from Python to C++ and back: {calls}"

    def _operations(self) -> str:
        return _counted(operation.name for _, ops in self._below for operation in ops)


def _runs(arm: Arm) -> bool:
    """Whether an arm runs without an exception."""
    try:
        arm.fresh()
        with arm.around():
            arm.block(repeat(None, 1))
    except Exception:  # noqa: BLE001 - whatever it says
        return False
    return True


def _recorded(operations: Iterable[Operation]) -> bool:
    """Whether autograd records any of the operations."""
    return any(
        tensor.requires_grad
        for operation in operations
        for value in operation.values
        for tensor in (value if isinstance(value, list) else [value])
        if isinstance(tensor, torch.Tensor)
    )


def _counted(names: Iterable[str]) -> str:
    """The most frequent names, with counts."""
    found = Counter(names).most_common()
    told = [name if times == 1 else f"{name} ({times})" for name, times in found[:_MOST_NAMES]]
    left = len(found) - len(told)
    return ", ".join(told) + (f" and {left} more" if left else "")
