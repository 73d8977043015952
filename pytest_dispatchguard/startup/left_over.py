"""What a process that is about to end leaves to the system: to take the graph of a large project apart, piece
by piece, takes longer than to print what was found in it."""

from __future__ import annotations

_left: list[object] | None = None


def leave_all() -> None:
    """From now on, what is left over is not taken apart: the process ends soon, by `os._exit`."""
    global _left
    _left = []


def leave(*things: object) -> None:
    """Says that these are large and have served; taken apart at once where the process lives on."""
    if _left is not None:
        _left.extend(things)
