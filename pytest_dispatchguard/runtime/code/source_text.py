"""The source text that a frame runs: an expression where Python has columns (3.11 and later), else a line."""

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
    """The position of an expression. Columns count from 0, in bytes; the end line is 0 where Python has no
    columns."""

    line: int
    end_line: int = 0
    start: int = 0
    end: int = 0


def place_in(frame: FrameType) -> Place:
    """The position of the expression that a frame runs."""
    return _place(frame.f_code, frame.f_lasti) or Place(frame.f_lineno)


def asks_for_truth(code: CodeType, offset: int) -> bool:
    """Whether an instruction tests the truth of a value: a conditional jump, or `TO_BOOL` from 3.13 on."""
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
    """The instruction that made the value that a jump tests; the position of a jump is the whole `if`."""
    if not asks_for_truth(code, offset):
        return offset
    before = [
        instruction.offset
        for instruction in dis.get_instructions(code)
        if instruction.offset < offset and instruction.opname not in _BETWEEN
    ]
    return before[-1] if before else offset


_BETWEEN = frozenset({"CACHE", "COPY", "EXTENDED_ARG", "NOP", "NOT_TAKEN", "TO_BOOL"})
"""Instructions that may stand between the one that makes a value and the jump that tests it."""


def text_at(path: str, place: Place) -> str:
    """The source of an expression, or of its whole line, dedented, where there are no columns."""
    if not place.end_line:
        return linecache.getline(path, place.line).strip()
    lines = [
        linecache.getline(path, number).encode() for number in range(place.line, place.end_line + 1)
    ]
    lines[-1] = lines[-1][: place.end]
    lines[0] = lines[0][place.start :]
    return b"".join(lines).decode(errors="replace")


def shown(path: str, place: Place) -> str:
    """The same for a message: on one line, shortened in the middle."""
    text = " ".join(text_at(path, place).replace("`", "'").split())
    half = (_LONGEST - 1) // 2
    return text if len(text) <= _LONGEST else f"{text[:half]}…{text[-half:]}"


def columns(path: str, place: Place) -> tuple[int, int] | None:
    """The columns of an expression, in characters from 1, the end exclusive; None if they are unknown."""
    if not place.end_line:
        return None
    first, last = (
        linecache.getline(path, n).encode()[:end].decode(errors="replace")
        for n, end in ((place.line, place.start), (place.end_line, place.end))
    )
    return len(first) + 1, len(last) + 1
