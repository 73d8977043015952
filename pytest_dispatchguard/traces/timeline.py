"""The events of a trace in the order in which they began. What does not fit into memory is sorted in pieces
in a temporary file."""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from struct import Struct
from types import TracebackType
from typing import IO

ANNOTATION, PYTHON, OPERATOR, RUNTIME, DRIVER, DEVICE = range(6)
"""Kinds of events; of those that begin and end together, the lower lies around the higher."""

Record = tuple[float, float, int, int, int, int]
"""When it begins, its length as a negative number (the longer comes first), its kind, its lane (a thread or a
device), its name, and what links it: the correlation of calls and kernels, the stack of an operator."""

_IN_MEMORY = 200_000
"""Records that are sorted at once: some 40 MB."""
_MERGED = 100_000
"""Records in memory while pieces are merged."""
_PACKED = Struct("<ddBHIq")


@dataclass(frozen=True, slots=True)
class _Piece:
    start: int
    records: int


class Timeline:
    """Collects records in any order, gives them in order of time."""

    def __init__(self, in_memory: int = _IN_MEMORY) -> None:
        self._in_memory = in_memory
        self._waiting: list[Record] = []
        self._pieces: list[_Piece] = []
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Timeline:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            with suppress(OSError):  # what could not be written is told already
                self._file.close()

    def add(self, record: Record) -> None:
        """Adds one."""
        self._waiting.append(record)
        if len(self._waiting) >= self._in_memory:
            self._put_away()

    def __iter__(self) -> Iterator[Record]:
        self._waiting.sort()
        if not self._pieces:
            return iter(self._waiting)
        return heapq.merge(*(self._read(piece) for piece in self._pieces), self._waiting)

    def _put_away(self) -> None:
        if self._file is None:
            # It has no name: nothing is left of it, however the process ends.
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed on exit
        self._waiting.sort()
        start = self._file.seek(0, 2)
        pack = _PACKED.pack
        self._file.write(b"".join(pack(*record) for record in self._waiting))
        self._file.flush()  # a full disk shows here, not while it is read or closed
        self._pieces.append(_Piece(start, len(self._waiting)))
        self._waiting.clear()

    def _read(self, piece: _Piece) -> Iterator[Record]:
        assert self._file is not None
        at, left = piece.start, piece.records
        block = max(16, _MERGED // len(self._pieces))
        while left:
            records = min(left, block)
            self._file.seek(at)
            data = self._file.read(records * _PACKED.size)
            yield from _PACKED.iter_unpack(data)
            at += len(data)
            left -= records
