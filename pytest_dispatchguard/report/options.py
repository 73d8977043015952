"""What a caller may choose about a report, whatever its format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Sources = Callable[[str], str | None]
"""Answers the text of a file by its path in findings; None where it cannot be had."""


@dataclass(frozen=True, slots=True)
class Options:
    """Each format uses what it has a use for, and passes over the rest."""

    color: bool = False
    width: int = 100
    sources: Sources | None = None
    shown: Callable[[str], str] = str
    """How a page for people names a file: from where they stand."""

    def source(self, path: str) -> str | None:
        """The text of a file, or None where nobody can tell."""
        return None if self.sources is None else self.sources(path)
