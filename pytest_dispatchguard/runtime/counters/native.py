"""Counts native instructions, those of the processor, in blocks of calls: by `perf_event_open` where the
system has it, else under valgrind's callgrind. They repeat only with a fixed hash seed, so in a process that
was started for that."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import shutil
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import Protocol

from pytest_dispatchguard.model.errors import UserError

NAME = "native_instructions"
EVENTS = "perf_event_open"
_HARDWARE, _INSTRUCTIONS = 0, 1
_SYSTEM_CALLS = {"x86_64": 298, "aarch64": 241}
_ATTRIBUTES = 112
"""The size of `perf_event_attr` that every Linux since 4.1 knows."""
_PINNED, _NO_KERNEL, _NO_HYPERVISOR = 1 << 2, 1 << 5, 1 << 6
_CLOSED_ON_EXEC = 8

# A client request, as valgrind.h writes it: moves that change nothing, which valgrind takes for a question.
# The function takes the address of the words and the answer without valgrind:
#   mov rax, rdi; mov rdx, rsi; rol rdi, 3; rol rdi, 13; rol rdi, 61; rol rdi, 51; xchg rbx, rbx;
#   mov rax, rdx; ret
_REQUEST = bytes.fromhex("4889f8 4889f2 48c1c703 48c1c70d 48c1c73d 48c1c733 4887db 4889d0 c3")
_ON_VALGRIND = 0x1001
_OF_CALLGRIND = ord("C") << 24 | ord("T") << 16
_DUMP, _START = _OF_CALLGRIND, _OF_CALLGRIND + 4

Block = Callable[[Iterator[None]], int]
"""Makes one call for each item, and reads the clock before and after."""


class Counter(Protocol):
    """What counts the instructions of blocks."""

    def clock(self) -> int:
        """What a block reads before its first and after its last call."""

    def spent(
        self, blocks: Sequence[Block], times: int, prepare: Callable[[], object]
    ) -> list[int]:
        """The instructions of each block, run in order, with so many calls. `prepare` runs before each."""


class Events:
    """Counts by a hardware counter of this thread, in user space only."""

    def __init__(self, kind: int = _HARDWARE, event: int = _INSTRUCTIONS) -> None:
        number = _SYSTEM_CALLS.get(platform.machine())
        if sys.platform != "linux" or number is None:
            raise UserError(f"{EVENTS} is for Linux on x86-64 and arm64")
        attributes = bytearray(_ATTRIBUTES)
        struct.pack_into("IIQ", attributes, 0, kind, _ATTRIBUTES, event)
        struct.pack_into("Q", attributes, 40, _PINNED | _NO_KERNEL | _NO_HYPERVISOR)
        given = (ctypes.c_char * _ATTRIBUTES).from_buffer(attributes)
        call = ctypes.CDLL(None, use_errno=True).syscall
        call.restype = ctypes.c_long
        words = (number, ctypes.addressof(given), 0, -1, -1, _CLOSED_ON_EXEC)
        self._file = int(call(*map(ctypes.c_long, words)))
        if self._file < 0:
            code = ctypes.get_errno()
            raise UserError(f"{EVENTS} answers {errno.errorcode.get(code, code)}")
        try:
            self.clock()
        except UserError:
            self.close()
            raise

    def clock(self) -> int:
        """The instructions so far."""
        read = os.read(self._file, 8)
        if len(read) < 8:
            raise UserError(f"{EVENTS}: the processor's counters are in use")
        return int.from_bytes(read, sys.byteorder)

    def spent(
        self, blocks: Sequence[Block], times: int, prepare: Callable[[], object]
    ) -> list[int]:
        """The instructions of each block."""
        found = []
        for block in blocks:
            prepare()
            found.append(block(repeat(None, times)))
        return found

    def close(self) -> None:
        """Closes the counter."""
        os.close(self._file)


class Callgrind:
    """Counts under callgrind: of all threads, what ran between two dumps."""

    def __init__(self, folder: Path) -> None:
        """`folder` is where callgrind writes dumps, by process."""
        self._folder = folder
        # Machine code, as there is no other way to ask without a compiler on the user's machine.
        self._memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._memory.write(_REQUEST)
        place = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._ask = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t)(place)
        if not self._said(_ON_VALGRIND):
            raise UserError("this process does not run under valgrind")
        self._said(_START)
        self._words = (ctypes.c_uint64 * 6)(_DUMP)
        self._place = ctypes.addressof(self._words)

    def _said(self, request: int) -> int:
        words = (ctypes.c_uint64 * 6)(request)
        return int(self._ask(ctypes.addressof(words), 0))

    def clock(self) -> int:
        """Ends a dump and begins the next; what they hold is read later, as that runs instructions too."""
        self._ask(self._place, 0)
        return 0

    def spent(
        self, blocks: Sequence[Block], times: int, prepare: Callable[[], object]
    ) -> list[int]:
        """The instructions of each block."""
        self._dumps()
        for block in blocks:
            prepare()
            block(repeat(None, times))
        return self._dumps()[1::2]  # every other one is of what ran between blocks

    def _dumps(self) -> list[int]:
        """The totals of the dumps of this process, in order; removes them."""
        found = {}
        for path in self._folder.glob(f"{os.getpid()}.*"):
            found[int(path.suffix[1:])] = _total(path)
            path.unlink()
        return [found[number] for number in sorted(found)]


def _total(path: Path) -> int:
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("totals:"):
                return int(line.split()[1])
    raise UserError(f"callgrind wrote no total to {path.name}")


def why_no_events() -> str:
    """Why hardware counters cannot be read; empty if they can."""
    try:
        events = Events()
    except UserError as error:
        return str(error)
    events.close()
    return ""


def under_callgrind(folder: Path) -> list[str]:
    """What starts a program under callgrind, so that it writes dumps to a folder, and counts once asked."""
    found = shutil.which("valgrind")
    if found is None:
        raise UserError("valgrind is not on the PATH")
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise UserError("valgrind is used on Linux on x86-64")
    return [
        *(found, "--quiet", "--tool=callgrind", "--instr-atstart=no"),
        "--dump-line=no",
        f"--callgrind-out-file={folder / '%p'}",
    ]
