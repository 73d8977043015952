"""Records the tree of Python functions that a call runs, with their arguments, so that each can be called
again on its own."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import CellType, CodeType, FrameType, FunctionType
from typing import Any

from pytest_dispatchguard.runtime.torch_private import dispatcher

MOST_CALLS = 5000
"""Calls that are kept: their arguments keep memory alive."""

_NOT_A_CALL = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_OURS = "pytest_dispatchguard.runtime"
_INVISIBLE = (_OURS, "torch.overrides")
"""Modules whose functions run only because the call is recorded."""
_IN_PAIRS = "torch.utils._config_module"
"""The module whose functions change settings and restore them, in pairs: neither may be called alone."""


@dataclass(slots=True)
class PythonCall:
    """One call of a Python function."""

    number: int
    parent: int
    """The number of the call that made it; -1 for none."""
    code: CodeType
    function: FunctionType | None
    """A function that repeats the call; None if it cannot be called alone."""
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    ns: int = 0
    """How long it took while recorded, with its callees."""
    result: Any = None
    began: int = 0
    state: tuple[bool, bool] = (True, False)
    """Whether grad mode was on, and inference mode."""

    @property
    def owner(self) -> Any:
        """What a method was called on; None for other functions."""
        return self.args[0] if self.args else None


class CallTree:
    """Records the Python functions of one call."""

    def __init__(self) -> None:
        self.calls: list[PythonCall] = []
        self.complete = True
        """False if there were more calls than are kept."""
        self._around: tuple[object, ...] = ()
        self._running: list[int] = []
        self._frames: dict[FrameType, int] = {}

    def record(self, run: Callable[[], object]) -> None:
        """Runs a function once and records its calls."""
        before = sys.getprofile()
        self._around = dispatcher.surroundings()
        bottom = getattr(run, "__code__", None)

        def seen(frame: FrameType, event: str, arg: Any) -> None:
            if event == "call":
                if not _is_invisible(frame) and frame.f_code is not bottom:
                    self._enter(frame)
            elif event == "return" and frame in self._frames:
                self._leave(frame, arg)

        sys.setprofile(seen)
        try:
            run()
        finally:
            sys.setprofile(before)
            self._frames.clear()
            self._running.clear()

    def times(self) -> list[tuple[CodeType, int]]:
        """How long each call took, in order."""
        return [(call.code, call.ns) for call in self.calls]

    def at_best(self, others: Sequence[Sequence[tuple[CodeType, int]]]) -> None:
        """Reduces the time of each call to its minimum over other recordings of the same calls."""
        for other in others:
            if [code for code, _ in other] == [call.code for call in self.calls]:
                for call, (_, ns) in zip(self.calls, other, strict=True):
                    call.ns = min(call.ns, ns)

    def owner(self, frame: FrameType | None) -> int:
        """The number of the call that a frame belongs to, or the nearest one around it; -1 for none."""
        while frame is not None:
            number = self._frames.get(frame)
            if number is not None:
                return number
            frame = frame.f_back
        return -1

    def _enter(self, frame: FrameType) -> None:
        if len(self.calls) >= MOST_CALLS:
            self.complete = False
            return
        parent = self._running[-1] if self._running else -1
        call = PythonCall(len(self.calls), parent, frame.f_code, None)
        if not frame.f_code.co_flags & _NOT_A_CALL:
            function, call.args, call.kwargs = _again(frame)
            given = (*call.args, *call.kwargs.values())
            call.state = dispatcher.grad_state()
            # A call that takes an iterator, such as a comprehension, cannot be repeated.
            used_up = any(isinstance(value, Iterator) for value in given)
            elsewhere = dispatcher.surroundings() != self._around
            paired = frame.f_globals.get("__name__") == _IN_PAIRS
            call.function = None if used_up or elsewhere or paired else function
        self.calls.append(call)
        self._running.append(call.number)
        self._frames[frame] = call.number
        call.began = time.perf_counter_ns()

    def _leave(self, frame: FrameType, result: Any) -> None:
        ended = time.perf_counter_ns()
        number = self._frames.pop(frame)
        while self._running and self._running.pop() != number:
            pass  # calls that ended without an event
        call = self.calls[number]
        call.ns += ended - call.began
        call.result = result


def _is_invisible(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__", ""))
    return module.startswith(_INVISIBLE)


def _again(frame: FrameType) -> tuple[FunctionType, Sequence[Any], Mapping[str, Any]]:
    """A function that repeats the call of a frame, and its arguments."""
    code, given = frame.f_code, frame.f_locals
    closure = tuple(_cell(given, name) for name in code.co_freevars)
    function = FunctionType(code, frame.f_globals, code.co_name, None, closure or None)
    if hasattr(code, "co_qualname"):
        function.__qualname__ = code.co_qualname
    names = code.co_varnames
    positional = names[: code.co_argcount]
    keyword = names[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    after = code.co_argcount + code.co_kwonlyargcount
    args = [_kept(given[name]) for name in positional]
    kwargs = {name: given[name] for name in keyword}
    if code.co_flags & inspect.CO_VARARGS:
        args += given[names[after]]
        after += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        kwargs |= given[names[after]]
    return function, tuple(args), kwargs


def variables_of(call: PythonCall) -> dict[str, Any]:
    """The local variables of a call when it began: arguments and closure."""
    code, function = call.code, call.function
    names = [*code.co_varnames[: code.co_argcount]]
    found = dict(zip(names, call.args, strict=False))
    after = code.co_argcount + code.co_kwonlyargcount
    keyword = code.co_varnames[code.co_argcount : after]
    found |= {name: call.kwargs[name] for name in keyword}
    if code.co_flags & inspect.CO_VARARGS:
        found[code.co_varnames[after]] = tuple(call.args[code.co_argcount :])
        after += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        found[code.co_varnames[after]] = {k: v for k, v in call.kwargs.items() if k not in keyword}
    cells = (function.__closure__ or ()) if function is not None else ()
    for name, cell in zip(code.co_freevars, cells, strict=False):
        with suppress(ValueError):  # an empty cell
            found[name] = cell.cell_contents
    return found


def _kept(value: Any) -> Any:
    """Copies lists, as torch's compiled code empties the lists that it is given."""
    return list(value) if type(value) is list else value


def _cell(given: Mapping[str, Any], name: str) -> CellType:
    return CellType(given[name]) if name in given else CellType()
