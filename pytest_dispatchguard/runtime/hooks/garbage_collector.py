"""The garbage collector, kept from a call that is looked at: what it cleans up, and whom it calls back, is no
doing of the call."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_off() -> Iterator[None]:
    """Switches the garbage collector off, and on again where it was on."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
