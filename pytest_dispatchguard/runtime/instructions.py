"""Counts the bytecode instructions that a call runs, and where they stand."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any

from pytest_dispatchguard.model import UserError
from pytest_dispatchguard.runtime.collector import collector_off

Place = tuple[str, int]
"""A file and a line."""


def instructions_by_place(
    run: FunctionType, foreign: Callable[[CodeType], bool] | None = None
) -> Counter[Place]:
    """Runs a function once and counts the instructions of all that it calls in its thread, not its own.
    Those of code that is `foreign` are counted where other code called it, where any did.

    Tracers that are at work (coverage, debuggers) are paused and put back."""
    counted: Counter[tuple[CodeType, int]] = Counter()
    known: dict[CodeType, bool] = {run.__code__: True}

    def note(frame: FrameType) -> None:
        at: FrameType | None = frame
        while foreign is not None and at is not None:
            code = at.f_code
            if code not in known:
                known[code] = foreign(code)
            if not known[code]:
                break
            # Beyond the function that was run there is nobody to count it for.
            at = None if code is run.__code__ else at.f_back
        at = at or frame
        counted[at.f_code, at.f_lasti] += 1

    with collector_off():
        if sys.version_info >= (3, 12):
            _by_monitoring(run, note)
        else:
            _by_tracing(run, note)
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


def _by_tracing(run: FunctionType, note: Callable[[FrameType], None]) -> None:
    own = run.__code__

    def opened(frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        if frame.f_code is own:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return step

    def step(frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        if event == "opcode":
            note(frame)
        return step

    before = sys.gettrace()
    sys.settrace(opened)
    try:
        run()
        if sys.gettrace() is not opened:
            raise UserError("the subject sets a tracer of its own, so it cannot be counted")
    finally:
        sys.settrace(before)


if sys.version_info >= (3, 12):
    _TOOLS = (4, 3, 5, 2, 1, 0)
    """Numbers of monitoring tools, those first that debuggers, coverage and profilers leave alone."""

    def _by_monitoring(run: FunctionType, note: Callable[[FrameType], None]) -> None:
        monitoring = sys.monitoring
        tool = next((n for n in _TOOLS if monitoring.get_tool(n) is None), None)
        if tool is None:
            raise UserError(
                "instructions cannot be counted: six tools watch this Python already; switch one off"
            )
        skipped = {run.__code__, sys._getframe().f_code}
        thread = threading.get_ident()
        ident = threading.get_ident

        def step(code: CodeType, offset: int) -> None:
            if code not in skipped and ident() == thread:
                note(sys._getframe(1))

        before = sys.gettrace()
        sys.settrace(None)
        monitoring.use_tool_id(tool, "dispatchguard")
        try:
            monitoring.register_callback(tool, monitoring.events.INSTRUCTION, step)
            monitoring.set_events(tool, monitoring.events.INSTRUCTION)
            try:
                run()
            finally:
                monitoring.set_events(tool, monitoring.events.NO_EVENTS)
        finally:
            monitoring.register_callback(tool, monitoring.events.INSTRUCTION, None)
            monitoring.free_tool_id(tool)
            sys.settrace(before)
