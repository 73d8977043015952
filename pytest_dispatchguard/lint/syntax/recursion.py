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
    """Run `work` with a higher recursion limit if this stack allows it, and if that is not enough once more
    in a thread with a large stack. RecursionError where even that is too small."""
    limit = sys.getrecursionlimit()
    try:
        if has_usual_stack():
            sys.setrecursionlimit(max(limit, _MORE_FRAMES))
        return work()
    except RecursionError:
        pass  # outside of this block, so that the error's frames are gone
    finally:
        sys.setrecursionlimit(limit)
    return with_room(work)


def with_room(work: Callable[[], _T]) -> _T:
    """Run `work` in a thread with a large stack. RecursionError where even that is too small."""
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
