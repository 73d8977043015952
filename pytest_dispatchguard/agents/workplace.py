"""What the tools work on: one project, and the call that a tool answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pytest_dispatchguard.lint.store.cache import Cache
from pytest_dispatchguard.model.errors import UserError


@dataclass(frozen=True, slots=True)
class Workplace:
    """A project, for one thread."""

    root: Path
    """Resolved."""
    edits: bool = False
    """Whether tools may write to the project."""
    caches: dict[Path, Cache] = field(default_factory=dict)
    """What earlier calls found out, by the root of a project: in memory, so that nothing is written."""

    def cache(self, root: Path) -> Cache:
        """The cache of a project."""
        if root not in self.caches:
            self.caches[root] = Cache.in_memory()
        return self.caches[root]

    def forget(self) -> None:
        """Drop what earlier calls found out: an error may have come of it."""
        for cache in self.caches.values():
            cache.close()
        self.caches.clear()


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool. It ends when nobody wants its answer, or at its deadline."""

    stop: threading.Event
    """Set when nobody wants the answer."""
    end: float
    """The deadline, by `time.monotonic`."""
    seconds: float

    def check(self) -> None:
        """Raise if the call must end."""
        if self.stop.is_set():
            raise UserError("the call was cancelled")
        if time.monotonic() > self.end:
            raise UserError(
                f"not finished within {self.seconds:g} s; name fewer paths or tests, or a longer timeout"
            )

    @property
    def progress(self) -> Callable[[str, int, int], None]:
        """For work that tells how far it is."""
        return lambda what, done, of: self.check()


def begin(stop: threading.Event, seconds: float) -> Call:
    """A call that begins now."""
    return Call(stop, time.monotonic() + seconds, seconds)
