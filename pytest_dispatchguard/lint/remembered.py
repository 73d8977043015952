"""Projects that a process has in memory as they were solved last, so that copies of it need not begin at the
beginning when something has changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pytest_dispatchguard.lint.carried import Solution
    from pytest_dispatchguard.lint.solved import Known


class Remembered(NamedTuple):
    """A project as it was solved last: what the cache has of that, and all else."""

    known: Known
    solution: Solution


projects: dict[Path, Remembered] = {}
"""By their roots; the one that was learned last in the end."""
declined: set[Path] = set()
"""Roots of those that are not worth it, or cannot be: until something has changed there."""
_listeners: list[Callable[[Path], object]] = []


def listen(told: Callable[[Path], object]) -> None:
    """Has somebody told of projects that are in another state than this process remembers, if any."""
    _listeners.append(told)


def announce(root: Path) -> None:
    """Says that the cache of a project knows more than this process."""
    for told in _listeners:
        told(root)
