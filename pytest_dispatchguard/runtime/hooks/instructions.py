"""Calls back before every bytecode instruction that a call runs in its thread: by `sys.monitoring` where
Python has it, by tracing before 3.12. Other tracers (coverage, debuggers) are paused meanwhile."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.runtime.hooks.garbage_collector import collector_off

Note = Callable[[CodeType, int], None]
"""Called with the code and the offset of the next instruction, two frames below the frame that runs it."""


def before_each_instruction(
    run: FunctionType, note: Note, entered: Callable[[FrameType], None] | None = None
) -> None:
    """Runs a function once with the garbage collector off, and calls `note` for every instruction but its
    own. Where Python traces, `entered` is called for every frame, as tracing allocates for each."""
    with collector_off():
        if sys.version_info >= (3, 12):
            _by_monitoring(run, note)
        else:
            _by_tracing(run, note, entered)


def _by_tracing(run: FunctionType, note: Note, entered: Callable[[FrameType], None] | None) -> None:
    own = run.__code__

    def opened(frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        if frame.f_code is own:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if entered is not None:
            entered(frame)
        return step

    def step(frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        if event == "opcode":
            note(frame.f_code, frame.f_lasti)
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
    """Ids of monitoring tools, those first that debuggers, coverage and profilers do not use."""

    def _by_monitoring(run: FunctionType, note: Note) -> None:
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
                note(code, offset)

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
