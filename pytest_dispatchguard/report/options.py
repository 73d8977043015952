"""Options of a report, whatever its format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Sources = Callable[[str], str | None]
"""Returns the text of a file by its path in findings; None if it is unavailable."""


@dataclass(frozen=True, slots=True)
class Options:
    """Each format uses the options that apply to it, and ignores the others."""

    color: bool = False
    width: int = 100
    sources: Sources | None = None
    shown: Callable[[str], str] = str
    """How a text for people names a file: relative to the reader's directory."""

    def source(self, path: str) -> str | None:
        """The text of a file, or None if it is unavailable."""
        return None if self.sources is None else self.sources(path)
