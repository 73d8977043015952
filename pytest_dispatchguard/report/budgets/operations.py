"""Which lines ask most of torch's dispatcher, as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pytest_dispatchguard.model.operations import OperationsAt
from pytest_dispatchguard.report.wording import count

MOST = 25
"""Lines that people are told of; programs are told of all."""
_NAMES = 6
"""Operations that are named of one line."""


class Row(NamedTuple):
    """One line of code."""

    per_call: str
    calls: str
    place: str
    function: str
    operations: str
    remarks: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """What stands one below the other."""
        return self.per_call, self.calls, self.place, self.function


HEAD = Row("per call", "calls", "place", "function", "operations", ())


def title(lines: Sequence[OperationsAt]) -> str:
    """How many there were in all."""
    asking = [at.total for at in lines if at.total]
    return f"{count(sum(asking), 'operation')} from {count(len(asking), 'line')} of the project"


def rows(lines: Sequence[OperationsAt]) -> list[Row]:
    """Those that ask most first, and those of which there is more to say."""
    return [_row(at) for at in _told(lines)]


def rest(lines: Sequence[OperationsAt]) -> str:
    """What the table leaves out; empty where that is nothing."""
    left = len(lines) - len(_told(lines))
    return f"… and {count(left, 'line')} more: --format json lists all" if left > 0 else ""


def _told(lines: Sequence[OperationsAt]) -> list[OperationsAt]:
    return [at for number, at in enumerate(lines) if number < MOST or at.remarks]


def as_objects(lines: Sequence[OperationsAt]) -> list[dict[str, Any]]:
    """All of them, as plain dicts."""
    return [
        {
            "path": at.path,
            "line": at.line,
            "function": at.function,
            "calls": at.calls,
            "operations": dict(at.operations),
            "remarks": list(at.remarks),
        }
        for at in lines
    ]


def _row(at: OperationsAt) -> Row:
    most = sorted(at.operations.items(), key=lambda pair: (-pair[1], pair[0]))
    names = [
        name if times == at.calls else f"{name} {_figure(times / at.calls)}"
        for name, times in most[:_NAMES]
    ]
    names += ["…"] if len(most) > _NAMES else []
    return Row(
        _figure(at.total / at.calls),
        str(at.calls),
        f"{at.path}:{at.line}",
        at.function or "the module",
        ", ".join(names),
        at.remarks,
    )


def _figure(number: float) -> str:
    return f"{number:.0f}" if number == int(number) or number >= 10 else f"{number:.2g}"
