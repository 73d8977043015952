"""Python statements that repeat recorded calls with the recorded values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from pytest_dispatchguard.measure.timing.calling import block_of
from pytest_dispatchguard.measure.timing.interleaved import Arm, Clock


@dataclass(frozen=True, slots=True)
class Statement:
    """One line of Python."""

    text: str
    """The source, with ``{0}``, ``{1}`` in place of values."""
    values: Sequence[Any]


def statements_arm(
    statements: Sequence[Statement],
    clock: Clock,
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
    renewed: Mapping[int, Callable[[], Any]] | None = None,
) -> Arm:
    """An arm that runs the statements in order. `renewed` has functions, by id of a value, that make it new
    for every block."""
    places: dict[int, list[Any]] = {}
    names: dict[int, str] = {}
    lines = []
    for statement in statements:
        for value in statement.values:
            places.setdefault(id(value), [value])
            names.setdefault(id(value), f"a{len(names)}")
        lines.append(statement.text.format(*(names[id(value)] for value in statement.values)))
    makers = [(places[i], make) for i, make in (renewed or {}).items() if i in places]

    def fresh() -> None:
        for place, make in makers:
            place[0] = make()

    block = block_of(lines, {names[i]: place for i, place in places.items()}, clock)
    return Arm(block, around, fresh)
