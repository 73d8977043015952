"""A progress bar: only on a terminal, and only if a run takes more than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pytest_dispatchguard.visible import one_line

PATIENCE = 1.0
"""Seconds before the bar appears."""
EVERY = 0.1
"""Seconds between updates."""


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None] | None]:
    """Yields a function that reports progress: what is being done, how many are done, of how many. Yields
    None if there is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    began = time.monotonic()
    last = 0.0
    width = 0

    def tell(what: str, done: int, total: int) -> None:
        nonlocal last, width
        now = time.monotonic()
        if now - began < PATIENCE or (now - last < EVERY and done < total):
            return
        last = now
        share = done / total if total else 1.0
        bar = "━" * round(share * 30)
        line = f"{one_line(what)} {bar:<30} {done}/{total}"
        sys.stderr.write("\r" + line.ljust(width))
        sys.stderr.flush()
        width = len(line)

    try:
        yield tell
    finally:
        if width:
            sys.stderr.write("\r" + " " * width + "\r")
            sys.stderr.flush()
