"""Calls back when a Python function starts, in all threads: by `sys.monitoring` where Python has it, by
tracing before 3.12."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from types import CodeType, FrameType
from typing import Any

from pytest_dispatchguard.model.errors import UserError

Entered = Callable[[FrameType], bool]
"""Called with the frame of a function that starts; returns whether to call it again for the same code."""

_OF_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_told: list[Entered] = []
"""The callbacks. All share one hook, as Python before 3.12 has only two."""
_place = ExitStack()
_unwanted: dict[int, CodeType] = {}
"""Code that no callback wants again, by id, before 3.12; kept alive, so that the id stays unique."""
_tracers: list[object] = []
"""The active trace functions, before 3.12."""


@contextmanager
def each_function(entered: Entered) -> Iterator[None]:
    """Calls `entered` for every function that starts in this context."""
    if sys.version_info >= (3, 12):
        if not _told:
            _place.enter_context(_by_monitoring())
        else:
            sys.monitoring.restart_events()  # the new callback may want code that the others did not
    else:
        _unwanted.clear()  # as above
        if not _told:
            _place.enter_context(_by_tracing())
    _told.append(entered)
    try:
        yield
    finally:
        _told.remove(entered)
        if not _told:
            _place.close()


def traces_by(tracer: object) -> bool:
    """Whether a trace function is one of this module."""
    return any(tracer is one for one in _tracers)


def paused() -> Any:
    """Pauses callbacks in this thread where they need tracing, which slows all Python code down: for work of
    this package. Returns the argument for `resumed`."""
    tracer: Any = sys.gettrace()
    if tracer is None or not traces_by(tracer):
        return None
    sys.settrace(None)
    return tracer


def resumed(tracer: Any) -> None:
    """Ends a pause."""
    if tracer is not None:
        sys.settrace(tracer)


def _tell(frame: FrameType) -> bool:
    """Calls all callbacks; whether any wants this code again."""
    wanted = False
    for entered in _told:
        wanted = entered(frame) or wanted
    return wanted


@contextmanager
def _by_tracing() -> Iterator[None]:
    """Uses a trace function, without line events, or a profile function where coverage or a debugger
    traces."""
    get: Any
    put: Any
    threads: Any
    before: Any
    if sys.gettrace() is None:
        get, put, threads = sys.gettrace, sys.settrace, threading.settrace
        before = threading.gettrace()
    elif sys.getprofile() is None:
        get, put, threads = sys.getprofile, sys.setprofile, threading.setprofile
        before = threading.getprofile()
    else:
        raise UserError(
            "calls cannot be watched: a tracer and a profiler watch this Python already"
        )
    over = False

    def called(frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if over:  # in a thread that is still running
            if get() is called:
                put(None)
        elif event != "call" or id(code) in _unwanted:
            return
        # Each resumption of a generator is a call event.
        elif not (code.co_flags & _OF_GENERATORS and _goes_on(frame)) and not _tell(frame):
            _unwanted[id(code)] = code

    put(called)
    threads(called)
    _tracers.append(called)
    try:
        yield
    finally:
        over = True
        _tracers.remove(called)
        if get() is called:  # if replaced meanwhile, the one who did so restores it
            put(None)
        threads(before)


def _goes_on(frame: FrameType) -> bool:
    """Whether a generator has run before."""
    return frame.f_lasti >= _first_yield(frame.f_code)


@cache
def _first_yield(code: CodeType) -> int:
    """The offset of the first `yield`."""
    import dis

    stops = (i.offset for i in dis.get_instructions(code) if i.opname == "YIELD_VALUE")
    return next(stops, sys.maxsize)


if sys.version_info >= (3, 12):
    TOOLS = (3, 4, 5, 2, 1, 0)
    """Ids of monitoring tools, those first that debuggers, coverage and profilers do not use."""

    @contextmanager
    def _by_monitoring() -> Iterator[None]:
        """Uses monitoring, and disables events for code that no callback wants again."""
        monitoring = sys.monitoring
        tool = next((n for n in TOOLS if monitoring.get_tool(n) is None), None)
        if tool is None:
            raise UserError(
                "calls cannot be watched: six tools watch this Python already; switch one off"
            )

        def started(code: CodeType, offset: int) -> object:
            return None if _tell(sys._getframe(1)) else monitoring.DISABLE

        monitoring.use_tool_id(tool, "dispatchguard-calls")
        try:
            monitoring.register_callback(tool, monitoring.events.PY_START, started)
            monitoring.set_events(tool, monitoring.events.PY_START)
            yield
        finally:
            monitoring.set_events(tool, monitoring.events.NO_EVENTS)
            monitoring.register_callback(tool, monitoring.events.PY_START, None)
            monitoring.free_tool_id(tool)
