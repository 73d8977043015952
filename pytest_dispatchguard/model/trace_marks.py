"""Single events of a trace that are worth a mark on its timeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_dispatchguard.model.traces import Line


@dataclass(frozen=True, slots=True)
class Mark:
    """A wait, a time in which a device is idle, or a call of a place in the user's code."""

    kind: Literal["wait", "idle", "call"]
    at_us: float
    """As the file counts time."""
    us: float
    line: Line
    """Of the wait that keeps the device idle, or of the call; empty where there is none."""
    what: str
    """The runtime's call that waits, or the cause: ``waits``, ``late``, ``input``, ``queued``."""
    operator: str
    lane: int
    """The thread that waits, or the device that is idle."""
