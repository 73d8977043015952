"""Room for code nested so deeply that the usual limits do not do."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

try:
    import resource
except ImportError:  # Windows, where nobody can ask
    resource = None  # type: ignore[assignment]  # as above

_T = TypeVar("_T")

_MORE_FRAMES = 4_000
"""They fit into the usual stack, though each of them be one of C, and do for all that is not told as too
deep."""
_FRAMES = 50_000
_STACK = 256 * 1024 * 1024
"""Bytes, of which only those used are ever taken: before Python 3.11 each frame is one of C as well."""

_USUAL = 8 * 1024 * 1024
"""Bytes of stack that a process has as a rule."""


def has_usual_stack() -> bool:
    """Whether there is as much stack here as a process has as a rule. Threads have less on many platforms,
    and so has what is started under `ulimit -s`."""
    if resource is None or threading.current_thread() is not threading.main_thread():
        return False
    size, _ = resource.getrlimit(resource.RLIMIT_STACK)
    return size == resource.RLIM_INFINITY or size >= _USUAL


def with_more_frames(work: Callable[[], _T]) -> _T:
    """What the work gives, done with more frames than usual where the stack has room for them anyway."""
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(max(limit, _MORE_FRAMES))
        return work()
    finally:
        sys.setrecursionlimit(limit)


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
