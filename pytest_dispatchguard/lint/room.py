"""Room for code nested so deeply that the usual limits do not do."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")

_FRAMES = 50_000
_STACK = 256 * 1024 * 1024
"""Bytes, of which only those used are ever taken: before Python 3.11 each frame is one of C as well."""


def with_room(work: Callable[[], _T]) -> _T:
    """What the work gives, done with far more frames than usual; RecursionError where those do not do
    either. Its cost is a thread, so it is for what has failed without."""
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - handed on to whoever waits
            errors.append(error)

    limit = sys.getrecursionlimit()
    size = threading.stack_size(_STACK)
    try:
        sys.setrecursionlimit(max(limit, _FRAMES))
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(size)
        sys.setrecursionlimit(limit)
    if errors:
        raise errors[0]
    return results[0]
