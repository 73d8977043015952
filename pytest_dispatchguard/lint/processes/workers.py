"""Worker processes for the parts of a run that files can share out."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from pytest_dispatchguard.lint.processes.ready_process import Ahead
from pytest_dispatchguard.model.errors import UserError

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def default_jobs() -> int:
    """The processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_MOST = 61
"""Processes that every platform can wait for."""


def _begin() -> None:
    """What a worker does first."""
    # Ctrl-C reaches the whole process group: the parent tells the user, workers only end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that is killed ends no worker; each waits for that itself."""
    from multiprocessing import connection, parent_process

    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Ctrl-C waits, also in workers started here: one that has not begun yet would tell of it at length."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _deaths_told() -> Iterator[None]:
    """The death of a worker ends in one line."""
    from concurrent.futures.process import BrokenProcessPool

    try:
        yield
    except BrokenProcessPool:
        raise WorkerDiedError(
            "a worker process died (out of memory, or killed from outside); try again with --jobs 1"
        ) from None


class WorkerDiedError(UserError):
    """A worker process died, of what it did or from outside."""


class Pool:
    """Maps functions over many items, in this process or in several; results come in order."""

    def __init__(self, jobs: int, *, threads: bool = False, apart: bool = False) -> None:
        self.jobs = min(jobs, _MOST)
        self.threads = threads
        """Whether this process has threads, which no fork survives."""
        self._apart = apart
        """Whether nothing may be done in this process, though there is but one other."""
        self._executor: ProcessPoolExecutor | None = None
        self._ahead: Ahead | None = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(kill=kind is not None)
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    @property
    def works(self) -> bool:
        """Whether other processes are at work."""
        return self._executor is not None

    def get_ready(self, prepare: Callable[[], object]) -> None:
        """Has a process made ready meanwhile for items that are too few to be worth one of their own, if
        there is a processor for it."""
        if self._ahead is None and self.jobs > 1 and not self.threads and default_jobs() > 1:
            self._ahead = Ahead.begin(prepare)

    def map(
        self,
        function: Callable[[_In], _Out],
        items: Iterable[_In],
        *,
        worth: int,
        most: int,
        ready: bool = False,
    ) -> Iterator[_Out]:
        """The results in order. Few items (fewer than `worth`) are not worth a process, but for one that was
        made `ready` for them; else work begins at once, and goes on while the items, `most` of them or fewer,
        are still being made. Where the largest come first, no process is left alone with one in the end."""
        rest = iter(items)
        few = self._ahead.map if ready and self._ahead is not None else map
        if (self.jobs <= 1 and not self._apart) or most < worth:
            return iter(few(function, rest))
        first = list(islice(rest, worth))
        if len(first) < worth:
            return iter(few(function, first))
        # Costly to import, and most runs over a known project need no worker.
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        if self._executor is None:
            forks = "fork" in multiprocessing.get_all_start_methods() and os.name == "posix"
            method = "spawn" if self.threads else "fork" if forks else None
            context = multiprocessing.get_context(method)
            self._executor = ProcessPoolExecutor(self.jobs, mp_context=context, initializer=_begin)
        chunk = max(1, min(8, most // (self.jobs * 32)))
        with _no_interrupt(), _deaths_told():
            parts = [self._executor.map(function, part, chunksize=chunk) for part in (first, rest)]
        return self._results(parts)

    @staticmethod
    def _results(parts: Iterable[Iterable[_Out]]) -> Iterator[_Out]:
        with _deaths_told():
            for part in parts:
                yield from part

    def close(self, *, kill: bool = False) -> None:
        """Ends the workers, at once when the run failed or was interrupted."""
        if self._executor is None:
            return
        if kill:
            for process in list((self._executor._processes or {}).values()):
                process.kill()
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._executor = None
