"""Counts the memory blocks that Python allocates for objects while a call runs.

Python tells how many blocks are in use, not how many it handed out, and keeps some that are given back for
the next object of their kind. So the blocks in use are read before every instruction, after what is kept has
been let go; those that came since the last instruction are counted. What an instruction takes and gives back
by itself, as a function written in C may, is not seen, nor are blocks of more than 512 bytes."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType

from pytest_dispatchguard.runtime.hooks.instructions import before_each_instruction

_SMALL = 256
"""Python caches small ints up to this one; others take a block."""
COUNTABLE = sys.version_info >= (3, 11)
"""Before 3.11, tracing itself takes blocks that cannot be told from those of the call."""


def blocks(run: FunctionType) -> int:
    """Runs a function once and counts the blocks that it and its callees take."""
    # Start past the cached ints, so that each number takes one block, also after it has changed.
    total = _SMALL + _SMALL
    used, collect, freeze = sys.getallocatedblocks, gc.collect, gc.freeze
    last = used() + sys.maxsize  # nothing is counted before the first instruction

    def look(new: int, passing: int) -> None:
        """Counts new blocks, minus those that watching takes: `new` that stay, and `passing` ones."""
        nonlocal total, last
        # What there is is put out of the collector's sight, so that it has nothing to look through and
        # ends no object before its time; it then lets go of the blocks that Python keeps.
        freeze()
        collect()
        now = used() - passing
        if now - new > last:
            total += now - new - last
        last = now

    def note(code: CodeType, offset: int) -> None:
        look(0, offset > _SMALL)

    def entered(frame: FrameType) -> None:
        look(frame.f_trace is None, 0)  # a frame object is made, but a resumed generator has one

    def outer() -> None:
        run()

    assert isinstance(outer, FunctionType)
    with _undisturbed():
        before_each_instruction(outer, note, entered)
    return total - 2 * _SMALL


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Disables callbacks of the collector, and unfreezes at the end. What others had frozen before is
    unfrozen too, which costs them only time."""
    callbacks = gc.callbacks[:]
    gc.callbacks.clear()
    try:
        yield
    finally:
        gc.callbacks[:] = callbacks
        gc.unfreeze()
