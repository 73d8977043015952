"""Counts the Python functions and C functions that a call enters."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import Any, NamedTuple

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.runtime.hooks.garbage_collector import collector_off


class Calls(NamedTuple):
    """The functions that one call entered."""

    python: int
    """Python functions; a generator counts each time it is resumed."""
    c: int
    """C functions called from Python code."""


def calls(run: FunctionType) -> Calls:
    """Runs a function once and counts what it enters in its thread, itself excluded. Tracers, and profilers
    written in Python, are paused meanwhile."""
    own = run.__code__
    here = _watch.__code__
    python = c = 0

    def note(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal python, c
        if event == "call":
            python += frame.f_code is not own
        elif event == "c_call":
            c += frame.f_code is not here  # the call that ends counting

    with collector_off():
        _watch(run, note)
    return Calls(python, c)


def _watch(run: FunctionType, note: Callable[[FrameType, str, Any], None]) -> None:
    before = sys.getprofile()
    if before is not None and not callable(before):
        raise UserError("calls cannot be counted while a profiler is at work; switch it off")
    trace = sys.gettrace()
    sys.settrace(None)
    sys.setprofile(note)
    try:
        run()
        if sys.getprofile() is not note:
            raise UserError("the subject sets a profiler of its own, so it cannot be counted")
    finally:
        sys.setprofile(before)
        sys.settrace(trace)
