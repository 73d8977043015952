"""Does once more what a worker process has died of, piece by piece in a process of its own, so that a death
costs the piece that caused it and not the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from pytest_dispatchguard.lint.processes.workers import Pool, WorkerDiedError

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def one_by_one(
    work: Callable[[_In], _Out],
    items: Iterable[_In],
    parts: Callable[[_In], Sequence[_In]],
    died: Callable[[_In], _Out],
    *,
    threads: bool,
) -> Iterator[_Out]:
    """The results, of `parts` of an item where a process dies of the whole of it; `died` tells of a part that
    a process dies of. `threads`, whether this process has some, which no fork survives."""
    pool = Pool(1, threads=threads, apart=True)

    def done(item: _In) -> list[_Out]:
        nonlocal pool
        try:
            return list(pool.map(work, [item], worth=0, most=1))
        except WorkerDiedError:
            pool.close(kill=True)
            pool = Pool(1, threads=threads, apart=True)
            return []

    try:
        for item in items:
            found = done(item)
            if found:
                yield from found
                continue
            pieces = parts(item)
            for piece in pieces:
                again = done(piece) if len(pieces) > 1 else []
                yield from again or [died(piece)]
    finally:
        pool.close()
