"""Finds runs of small operations that one kernel could do: chains of pointwise operations, and the same
operation on tensor after tensor."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, NamedTuple

import torch

from pytest_dispatchguard.runtime.watch.line_tally import Tally
from pytest_dispatchguard.runtime.watch.operation_info import OperationInfo

_LONG = 4
"""Operations that make a chain worth reporting."""
_ROW = 8
"""Equal operations in a row that are worth reporting."""
_LONGEST = 1000
"""Operations that a row is followed for."""
_SMALL = 1 << 16
"""Elements of tensors for which an operation's overhead counts."""


class Place(NamedTuple):
    """Where an operation was asked for."""

    code: CodeType
    line: int
    instruction: int
    frame: int
    """The identity of the frame."""
    by_user: bool
    """Whether the line chose the operation; an optimizer chooses those of its step by itself."""


@dataclass
class _Step:
    """One operation of a chain or a row."""

    place: Place
    name: str
    shape: tuple[int, ...]
    tensor: Any
    """A weak reference to the result in a chain, to the operand in a row."""


class Runs:
    """The chain and the row that one call of a function is in."""

    def __init__(self, tallies: Mapping[tuple[int, int], Tally]) -> None:
        self._tallies = tallies
        self._chain: list[_Step] = []
        self._row: list[_Step] = []
        self._last: Any = None
        """A weak reference to the last result."""

    def add(
        self,
        place: Place,
        info: OperationInfo,
        given: Sequence[torch.Tensor],
        results: Sequence[torch.Tensor],
    ) -> None:
        """Takes the next operation: it goes on with the chain or the row, or ends them."""
        shape = tuple(results[0].shape) if len(results) == 1 else None
        small = shape is not None and 0 < results[0].numel() <= _SMALL
        chain, row = self._chain, self._row
        last = chain[-1].tensor() if chain else None
        builds = last is not None and any(tensor is last for tensor in given)
        if (
            chain and not (info.pointwise and small and builds and chain[-1].shape == shape)
        ) or _loops(chain, place, info.name):
            self._end_chain()
        if info.pointwise and small and shape is not None:
            self._chain.append(_Step(place, info.name, shape, weakref.ref(results[0])))
        target = given[0] if given else None
        if row and not (
            info.foreach
            and not (self._last is not None and any(tensor is self._last() for tensor in given))
            and (row[-1].place.line, row[-1].name) == (place.line, info.name)
            and all(step.tensor() is not target for step in row)
        ):
            self._end_row()
        if info.foreach and small and shape is not None and target is not None:
            self._row.append(_Step(place, info.name, shape, weakref.ref(target)))
            del self._row[_LONGEST:]
        self._last = weakref.ref(results[0]) if len(results) == 1 else None

    def end(self) -> None:
        """Ends both, as the call has ended."""
        self._end_chain()
        self._end_row()

    def _end_chain(self) -> None:
        chain, self._chain = self._chain, []
        if len(chain) >= _LONG:
            first, last = chain[0], chain[-1]
            tally = self._tallies[id(first.place.code), first.place.line]
            tally.chains[len(chain), last.place.line, first.shape] += 1

    def _end_row(self) -> None:
        row, self._row = self._row, []
        if len(row) >= _ROW:
            place = row[0].place
            tally = self._tallies[id(place.code), place.line]
            tally.rows[f"torch._foreach_{row[0].name}", len(row)] += 1


def _loops(chain: Sequence[_Step], place: Place, name: str) -> bool:
    """Whether a loop starts its next round: what follows is then no part of the chain."""
    if not chain or place.instruction != chain[0].place.instruction:
        return False
    return name == chain[0].name or chain[-1].place.instruction != place.instruction
