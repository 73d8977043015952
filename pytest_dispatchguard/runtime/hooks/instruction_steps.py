"""Calls back for every instruction and every function of a call that has begun, until it ends: by
`sys.monitoring` where Python has it, by the tracer of `function_calls` before 3.12."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Protocol

from pytest_dispatchguard.runtime.hooks import function_calls

Stop = Callable[[], None]


class Watcher(Protocol):
    """The callbacks; all are called in the thread of the call."""

    def instruction(self, frame: FrameType, offset: int) -> None:
        """Called before an instruction of the function or of one that it calls."""

    def entered(self, frame: FrameType) -> None:
        """Called when a function starts, called directly or indirectly."""

    def left(self, frame: FrameType, result: object) -> None:
        """Called when a function ends, the first one last; the result is None if it raised."""


def step_through(frame: FrameType, watcher: Watcher) -> Stop | None:
    """Watches the rest of a call whose function starts now. Returns a function that stops before the call
    ends; None if another tracer is active."""
    if sys.version_info >= (3, 12):
        return _by_monitoring(frame, watcher)
    else:
        return _by_tracing(frame, watcher)


def _by_tracing(frame: FrameType, watcher: Watcher) -> Stop | None:
    before = sys.gettrace()
    if before is None or not function_calls.traces_by(before):
        return None
    over = False

    def opened(inner: FrameType, event: Any, arg: Any) -> Any:
        before(inner, event, arg)
        if over:
            stop()  # if another tracer has restored this one
            return None
        inner.f_trace_opcodes = True
        inner.f_trace_lines = False
        watcher.entered(inner)
        return step

    def step(inner: FrameType, event: str, arg: Any) -> Any:
        if not over:
            if event == "opcode":
                watcher.instruction(inner, inner.f_lasti)
            elif event == "return":
                watcher.left(inner, arg)
                if inner is frame:
                    stop()
        if over:
            inner.f_trace_opcodes = False
            inner.f_trace = None  # else a reference cycle would keep the frame alive
            return None
        return step

    def stop() -> None:
        nonlocal over
        over = True
        if sys.gettrace() is opened:
            sys.settrace(before)

    frame.f_trace_opcodes = True
    frame.f_trace_lines = False
    frame.f_trace = step
    sys.settrace(opened)
    return stop


if sys.version_info >= (3, 12):

    def _by_monitoring(frame: FrameType, watcher: Watcher) -> Stop | None:
        monitoring = sys.monitoring
        events = monitoring.events
        tool = next((n for n in function_calls.TOOLS if monitoring.get_tool(n) is None), None)
        if tool is None:
            return None
        thread, ident = threading.get_ident(), threading.get_ident

        def instruction(code: CodeType, offset: int) -> None:
            if ident() == thread:
                watcher.instruction(sys._getframe(1), offset)

        def started(code: CodeType, offset: int) -> None:
            if ident() == thread:
                watcher.entered(sys._getframe(1))

        def ended(code: CodeType, offset: int, result: object) -> None:
            if ident() == thread:
                inner = sys._getframe(1)
                watcher.left(inner, None if isinstance(result, BaseException) else result)
                if inner is frame:
                    stop()

        def stop() -> None:
            if monitoring.get_tool(tool) != _NAME:
                return
            monitoring.set_events(tool, events.NO_EVENTS)
            for event in told:
                monitoring.register_callback(tool, event, None)
            monitoring.free_tool_id(tool)

        told: dict[int, Callable[..., object]] = {
            events.INSTRUCTION: instruction,
            events.PY_START: started,
            events.PY_RETURN: ended,
            events.PY_UNWIND: ended,
        }
        monitoring.use_tool_id(tool, _NAME)
        for event, callback in told.items():
            monitoring.register_callback(tool, event, callback)
        monitoring.set_events(
            tool, events.INSTRUCTION | events.PY_START | events.PY_RETURN | events.PY_UNWIND
        )
        return stop

    _NAME = "dispatchguard-steps"
