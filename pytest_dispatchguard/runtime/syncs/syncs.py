"""Where the host waited for the device: what is recorded of it, and who may wait."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from pytest_dispatchguard.runtime.code.foreign import own_frames
from pytest_dispatchguard.runtime.code.source_text import Place, place_in
from pytest_dispatchguard.runtime.syncs import torch_mode


@dataclass(frozen=True, slots=True)
class Frame:
    """A line of somebody's code that was on its way."""

    path: str
    line: int
    function: str
    end_line: int = 0
    start: int = 0
    end: int = 0
    """Where the expression that runs there begins and ends, as `source_text.Place` has it."""

    @property
    def place(self) -> Place:
        """Where its expression stands."""
        return Place(self.line, self.end_line, self.start, self.end)


@dataclass(frozen=True, slots=True)
class Sync:
    """One kind of wait at one place, or of a call that cost more than it had to."""

    operation: str
    """What was called, as its user knows it: `item`, `nonzero`."""
    why: str
    """What the host waited for."""
    code: str
    """Of the linter's rule for the same thing."""
    frames: tuple[Frame, ...]
    """From the place outwards; empty where no code but torch's was on the stack."""
    waits: bool = True
    """Whether the host waited; False for what only cost."""

    @property
    def place(self) -> Frame | None:
        """The innermost line that its user can change."""
        return self.frames[0] if self.frames else None


_here = threading.local()


@contextmanager
def allow_sync(reason: str) -> Iterator[None]:
    """Waits in here are meant: they are not recorded. The reason is for who reads the code."""
    if not isinstance(reason, str) or not reason.strip():
        raise ValueError("allow_sync needs a reason: say why the host may wait here")
    with quiet(), torch_mode.off():
        yield


class quiet:  # noqa: N801 - used as the functions beside it are
    """Nothing is recorded in here, in this thread."""

    def __enter__(self) -> None:
        _here.depth = getattr(_here, "depth", 0) + 1

    def __exit__(self, *raised: object) -> None:
        _here.depth -= 1


@contextmanager
def as_one() -> Iterator[None]:
    """Of all waits in here, in this thread, the first alone is recorded: to their user they are one."""
    if getattr(_here, "first", None) is not None:
        yield
        return
    _here.first = []
    try:
        yield
    finally:
        _here.first = None


@dataclass(eq=False)
class Recorder:
    """The waits seen so far, and how often each."""

    times: Counter[Sync] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """All waits."""
        return self.times.total()


@dataclass(frozen=True)
class Notes:
    """Tells all who record."""

    recorders: list[Recorder] = field(default_factory=list)

    def note(self, operation: str, why: str, code: str) -> None:
        """One more wait, by what is running now."""
        if getattr(_here, "depth", 0):
            return
        first = getattr(_here, "first", None)
        if first:
            return
        if first is not None:
            first.append(operation)
        frames = place_of(sys._getframe(1))
        for recorder in self.recorders:
            recorder.times[Sync(operation, why, code, frames)] += 1


def frame_of(frame: FrameType) -> Frame:
    """Where a frame is."""
    line, *columns = place_in(frame)
    return Frame(frame.f_code.co_filename, line, qualified(frame.f_code), *columns)


def place_of(frame: FrameType) -> tuple[Frame, ...]:
    """Where a frame is, and the way there, but for code that nobody would change."""
    return tuple(frame_of(own) for own in own_frames(frame))


NOTES = Notes()
"""What the ghost tells, if there is one: there is never more than one, for all threads."""


def is_there() -> bool:
    """Whether there is a ghost."""
    return bool(NOTES.recorders)


@contextmanager
def recording() -> Iterator[Recorder]:
    """Records the waits of what runs inside."""
    recorder = Recorder()
    NOTES.recorders.append(recorder)
    try:
        yield recorder
    finally:
        NOTES.recorders.remove(recorder)


def qualified(code: object) -> str:
    """The name of a function, with what it stands in where Python says so."""
    return str(getattr(code, "co_qualname", None) or getattr(code, "co_name", ""))
