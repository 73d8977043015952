"""Records where the host waited for the device, and where that is allowed."""

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
    """A stack frame of user code."""

    path: str
    line: int
    function: str
    end_line: int = 0
    start: int = 0
    end: int = 0
    """The position of the expression that runs there, as in `source_text.Place`."""

    @property
    def place(self) -> Place:
        """The position of its expression."""
        return Place(self.line, self.end_line, self.start, self.end)


@dataclass(frozen=True, slots=True)
class Sync:
    """A wait at one place, or a call that costs more than it has to."""

    operation: str
    """The public name of what was called: `item`, `nonzero`."""
    why: str
    """What the host waited for."""
    code: str
    """The linter's rule for the same thing."""
    frames: tuple[Frame, ...]
    """The user's stack, innermost first; empty if only torch's code was on it."""
    waits: bool = True
    """Whether the host waited; False for costly calls."""

    @property
    def place(self) -> Frame | None:
        """The innermost frame of user code."""
        return self.frames[0] if self.frames else None


_here = threading.local()


@contextmanager
def allow_sync(reason: str) -> Iterator[None]:
    """Allows waits in this context: they are not recorded. The reason is for readers of the code."""
    if not isinstance(reason, str) or not reason.strip():
        raise ValueError("allow_sync needs a reason: say why the host may wait here")
    with quiet(), torch_mode.off():
        yield


class quiet:  # noqa: N801 - used as the functions beside it are
    """Records nothing in this context, in this thread."""

    def __enter__(self) -> None:
        _here.depth = getattr(_here, "depth", 0) + 1

    def __exit__(self, *raised: object) -> None:
        _here.depth -= 1


@contextmanager
def as_one() -> Iterator[None]:
    """Records only the first wait in this context, in this thread, as they are one to the user."""
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
    """The waits recorded so far, with counts."""

    times: Counter[Sync] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """The number of waits."""
        return self.times.total()


@dataclass(frozen=True)
class Notes:
    """Passes waits on to all active recorders."""

    recorders: list[Recorder] = field(default_factory=list)

    def note(self, operation: str, why: str, code: str) -> None:
        """Records a wait of the code that is running."""
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
    """The place of a frame."""
    line, *columns = place_in(frame)
    return Frame(frame.f_code.co_filename, line, qualified(frame.f_code), *columns)


def place_of(frame: FrameType) -> tuple[Frame, ...]:
    """The stack of user code, from a frame outwards."""
    return tuple(frame_of(own) for own in own_frames(frame))


NOTES = Notes()
"""The waits of the ghost; there is at most one ghost, for all threads."""


def is_there() -> bool:
    """Whether a ghost is active."""
    return bool(NOTES.recorders)


@contextmanager
def recording() -> Iterator[Recorder]:
    """Records waits in this context."""
    recorder = Recorder()
    NOTES.recorders.append(recorder)
    try:
        yield recorder
    finally:
        NOTES.recorders.remove(recorder)


def qualified(code: object) -> str:
    """The qualified name of a function, where Python has it (3.11 and later)."""
    return str(getattr(code, "co_qualname", None) or getattr(code, "co_name", ""))
