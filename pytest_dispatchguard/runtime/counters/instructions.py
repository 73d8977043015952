"""Counts the bytecode instructions that a call runs, by line."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType

from pytest_dispatchguard.runtime.hooks.instructions import before_each_instruction

Place = tuple[str, int]
"""A file and a line."""


def instructions_by_place(
    run: FunctionType, foreign: Callable[[CodeType], bool] | None = None
) -> Counter[Place]:
    """Runs a function once and counts the instructions of its callees in its thread, not its own.
    Instructions of `foreign` code count for the line of other code that called it, if there is one."""
    counted: Counter[tuple[CodeType, int]] = Counter()
    known: dict[CodeType, bool] = {run.__code__: True}

    def note(code: CodeType, offset: int) -> None:
        if foreign is None:
            counted[code, offset] += 1
            return
        frame = sys._getframe(2)
        at: FrameType | None = frame
        while at is not None:
            code = at.f_code
            if code not in known:
                known[code] = foreign(code)
            if not known[code]:
                break
            # The callers of the function that was run are not counted.
            at = None if code is run.__code__ else at.f_back
        at = at or frame
        counted[at.f_code, at.f_lasti] += 1

    before_each_instruction(run, note)
    found: Counter[Place] = Counter()
    lines: dict[CodeType, dict[int, int]] = {}
    for (code, offset), times in counted.items():
        if code not in lines:
            lines[code] = _lines(code)
        found[code.co_filename, lines[code].get(offset, code.co_firstlineno)] += times
    return found


def _lines(code: CodeType) -> dict[int, int]:
    """Instruction offset to line."""
    return {
        offset: line
        for start, end, line in code.co_lines()
        if line is not None
        for offset in range(start, end, 2)
    }
