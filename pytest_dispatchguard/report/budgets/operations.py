"""The lines that call torch's dispatcher most, as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pytest_dispatchguard.model.operations import OperationsAt
from pytest_dispatchguard.report.wording import count

MOST = 25
"""How many lines to show people; programs get all."""
_NAMES = 6
"""How many operations to name per line."""


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
        """The cells that are aligned in columns."""
        return self.per_call, self.calls, self.place, self.function


HEAD = Row("per call", "calls", "place", "function", "operations", ())


def title(lines: Sequence[OperationsAt]) -> str:
    """The total number of operations."""
    asking = [at.total for at in lines if at.total]
    return f"{count(sum(asking), 'operation')} from {count(len(asking), 'line')} of the project"


def rows(lines: Sequence[OperationsAt]) -> list[Row]:
    """The lines with most operations, and those with remarks."""
    return [_row(at) for at in _told(lines)]


def rest(lines: Sequence[OperationsAt]) -> str:
    """A line about what the table leaves out; empty if nothing."""
    left = len(lines) - len(_told(lines))
    return f"… and {count(left, 'line')} more: --format json lists all" if left > 0 else ""


def _told(lines: Sequence[OperationsAt]) -> list[OperationsAt]:
    return [at for number, at in enumerate(lines) if number < MOST or at.remarks]


def as_objects(lines: Sequence[OperationsAt]) -> list[dict[str, Any]]:
    """All lines, as plain dicts."""
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
