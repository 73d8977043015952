"""What may be said about how traces are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pytest_dispatchguard.report.options import Sources


@dataclass(frozen=True, slots=True)
class Options:
    """How a report of traces looks."""

    color: bool = False
    top: int = 10
    """Places in each table that people read; programs are told all."""
    linted: bool = True
    """Whether the linter was asked."""
    root: str = "."
    """The project, as the command was told of it."""
    shown: Callable[[str], str] = str
    """How a file of the project is named."""
    sources: Sources = field(default=lambda path: None)
    """The text of a file of the project, from which changes of fixes are made."""
