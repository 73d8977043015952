"""The source text of what a frame runs: its expression where Python keeps columns (from 3.11 on), else its
line."""

from __future__ import annotations

import dis
import linecache
from functools import lru_cache
from itertools import islice
from types import CodeType, FrameType
from typing import NamedTuple

_LONGEST = 60
"""Characters of an expression in a message."""


class Place(NamedTuple):
    """Where an expression stands in its file. Columns count from 0, in bytes; the end line is 0 where Python
    tells no columns."""

    line: int
    end_line: int = 0
    start: int = 0
    end: int = 0


def place_in(frame: FrameType) -> Place:
    """Where what runs in a frame stands."""
    return _place(frame.f_code, frame.f_lasti) or Place(frame.f_lineno)


def asks_for_truth(code: CodeType, offset: int) -> bool:
    """Whether an instruction asks a value for its truth: a jump by it, from 3.13 on `TO_BOOL`."""
    name = dis.opname[code.co_code[offset]]
    return name == "TO_BOOL" or ("JUMP" in name and "_IF_" in name)


@lru_cache(maxsize=4096)
def _place(code: CodeType, offset: int) -> Place | None:
    if offset < 0 or not hasattr(code, "co_positions"):
        return None
    positions = islice(code.co_positions(), _of_value(code, offset) // 2, None)
    line, end_line, start, end = next(positions, (None,) * 4)
    if line is None or end_line is None or start is None or end is None:
        return None
    return Place(line, end_line, start, end)


def _of_value(code: CodeType, offset: int) -> int:
    """The instruction that made what a jump asks for its truth: jumps stand for a whole `if`."""
    if not asks_for_truth(code, offset):
        return offset
    before = [
        instruction.offset
        for instruction in dis.get_instructions(code)
        if instruction.offset < offset and instruction.opname not in _BETWEEN
    ]
    return before[-1] if before else offset


_BETWEEN = frozenset({"CACHE", "COPY", "EXTENDED_ARG", "NOP", "NOT_TAKEN", "TO_BOOL"})
"""Instructions that may stand between what makes a value and the jump that asks for its truth."""


def text_at(path: str, place: Place) -> str:
    """The source of an expression; of its whole line where no columns are known, without the indentation."""
    if not place.end_line:
        return linecache.getline(path, place.line).strip()
    lines = [
        linecache.getline(path, number).encode() for number in range(place.line, place.end_line + 1)
    ]
    lines[-1] = lines[-1][: place.end]
    lines[0] = lines[0][place.start :]
    return b"".join(lines).decode(errors="replace")


def shown(path: str, place: Place) -> str:
    """The same for a message: on one line, with what is too long left out of its middle."""
    text = " ".join(text_at(path, place).replace("`", "'").split())
    half = (_LONGEST - 1) // 2
    return text if len(text) <= _LONGEST else f"{text[:half]}…{text[-half:]}"


def columns(path: str, place: Place) -> tuple[int, int] | None:
    """Where an expression begins and ends in its lines, in characters from 1, the end exclusive; None where
    that is not known."""
    if not place.end_line:
        return None
    first, last = (
        linecache.getline(path, n).encode()[:end].decode(errors="replace")
        for n, end in ((place.line, place.start), (place.end_line, place.end))
    )
    return len(first) + 1, len(last) + 1
