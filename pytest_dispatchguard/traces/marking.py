"""Collects the single events of a trace that are worth a mark on its timeline."""

from __future__ import annotations

from collections import Counter

from pytest_dispatchguard.model.trace_marks import Mark
from pytest_dispatchguard.model.traces import NOWHERE, Line
from pytest_dispatchguard.traces.idle import Part
from pytest_dispatchguard.traces.replay import OneWait

_MOST = 200_000
"""Marks, at most: more would be neither looked at nor fit into memory."""
_MOST_CALLS = 1_000
"""Of one place."""
_SHORTEST_US, _SHORTEST_QUEUED_US = 1.0, 10.0
"""Of idle times: shorter ones lie between any two kernels."""


class Marks:
    """Waits, idle times and calls, in order of time."""

    def __init__(self) -> None:
        self.found: list[Mark] = []
        self.left_out = 0
        self._calls: Counter[Line] = Counter()

    def waited(self, wait: OneWait, thread: int) -> None:
        """The host waits."""
        waits = wait.waits
        us = wait.end - wait.start
        self._add(Mark("wait", wait.start, us, waits.line, waits.call, waits.operator, thread))

    def idled(self, part: Part, device: int) -> None:
        """A device has nothing to do."""
        if part.us < (_SHORTEST_QUEUED_US if part.cause == "queued" else _SHORTEST_US):
            return
        waits = part.wait.waits if isinstance(part.wait, OneWait) else None
        line, operator = (waits.line, waits.operator) if waits is not None else (NOWHERE, "")
        self._add(Mark("idle", part.start, part.us, line, part.cause, operator, device))

    def called(self, line: Line, start: float) -> None:
        """A thread comes to a place in the user's code."""
        if line.ours and self._calls[line] < _MOST_CALLS:
            self._calls[line] += 1
            self._add(Mark("call", start, 0.0, line, "", "", 0))

    def _add(self, mark: Mark) -> None:
        if len(self.found) < _MOST:
            self.found.append(mark)
        else:
            self.left_out += 1
