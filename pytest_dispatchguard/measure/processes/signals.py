"""Puts off signals that would end a run while it does what has to be done whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Puts off SIGINT and SIGTERM until the end of the block. Other threads than the main one are not
    interrupted anyway."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    missed: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        missed.append(number)

    before = {number: signal.getsignal(number) for number in _ENDING}
    mine = [number for number, how in before.items() if how is not None]  # others are of C code
    for number in mine:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, before[number])
        for one in dict.fromkeys(missed):
            signal.raise_signal(one)
