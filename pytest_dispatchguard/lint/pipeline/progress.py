"""How a run reports its progress."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many are done, and of how many."""


def no_progress(what: str, done: int, total: int) -> None:
    """Show nothing."""
