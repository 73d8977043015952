"""Profiles one call of every function of a project: the instructions of each line with its callees, and
repeated lookups and calls."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType
from typing import Any

from pytest_dispatchguard.model.operations import OperationsAt
from pytest_dispatchguard.runtime.code.foreign import is_ours, is_user_s
from pytest_dispatchguard.runtime.hooks.instruction_steps import Stop, step_through
from pytest_dispatchguard.runtime.syncs.syncs import is_there, qualified

Line = tuple[str, int]
"""A file and a line."""
_TRIES = 50
"""The calls after the first, one of which is profiled; while another function is being profiled, a later
one."""
_LONGEST = 20_000
"""The most instructions that are profiled of a call."""
_LOOKUPS = 8
"""How often a call looks up one attribute of one module before that is reported."""
_ANSWERS = 3
"""How often a call repeats an equal call before that is reported."""
_ASKING = 20
"""The least instructions of a function whose result is worth keeping."""
_NO_CALL = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_LOOKED_UP = (
    "`{}` of one module is looked up {} times a call, by `Module.__getattr__`: give it a name"
)
_ASKED = "`{}` gives the same answer to the same arguments {} times a call ({} instructions each): ask once"
_PLAIN = (str, bytes, int, float, complex, bool, type, FunctionType)


@dataclass
class _Function:
    """A function of the project."""

    code: CodeType
    calls: int = 0
    waits: bool = True
    """Whether it is still to be profiled."""


@dataclass
class InstructionProfiles:
    """The profiles of functions whose files are the project's own."""

    own: Callable[[str], bool]
    figures: bool = True
    """Whether instruction counts are kept: not if they include the work of the ghost or of other watchers."""
    lines: dict[Line, int] = field(default_factory=dict)
    """The instructions of a line in one call of its function, with callees."""
    again: dict[tuple[str, int, str], list[str]] = field(default_factory=dict)
    """Remarks about repeated work, by file, line and function."""
    _functions: dict[int, _Function] = field(default_factory=dict)
    # By the identity of code: equal code of another file is another function.
    _look: _Profile | None = None
    _stop: Stop | None = None

    def entered(self, frame: FrameType) -> bool:
        """Records the start of a function; whether its next call is of interest."""
        code = frame.f_code
        known = self._functions.get(id(code))
        if known is None:
            known = self._functions[id(code)] = _Function(code, waits=self._wanted(code))
        known.calls += 1
        # The first call may do one-time setup.
        if known.waits and known.calls > 1:
            if self._look is None:
                self._begin(frame, known)
            known.waits = known.waits and known.calls <= _TRIES
        return known.waits

    def end(self) -> None:
        """Ends a profile that is under way."""
        stop, self._look, self._stop = self._stop, None, None
        if stop is not None:
            stop()

    def remarks(self, rel: Callable[[str], str | None]) -> Iterable[OperationsAt]:
        """The remarks, for the table of operations by line."""
        for (path, line, function), said in self.again.items():
            yield OperationsAt(rel(path) or path, line, function, 1, {}, tuple(said))

    def _wanted(self, code: CodeType) -> bool:
        called = code.co_flags & inspect.CO_OPTIMIZED and not code.co_flags & _NO_CALL
        return bool(called) and is_user_s(code) and self.own(code.co_filename)

    def _begin(self, frame: FrameType, function: _Function) -> None:
        self._look = look = _Profile(self, frame, function)  # before any callback comes
        stop = step_through(frame, look)
        if stop is None:
            self._look = None
            function.waits = False
        else:
            self._stop = stop

    def done(self, look: _Profile) -> None:
        """Keeps the profile of a call that has ended."""
        self._look = self._stop = None
        look.function.waits = False
        code = look.function.code
        if self.figures and not is_there():
            for line, number in look.counts.items():
                key = code.co_filename, line  # several functions may start on one line
                self.lines[key] = max(number, self.lines.get(key, 0))
        name = qualified(code)
        for line, said in look.said():
            self.again.setdefault((code.co_filename, line, name), []).append(said)


class _Profile:
    """One call that is being profiled."""

    def __init__(self, looks: InstructionProfiles, frame: FrameType, function: _Function) -> None:
        self.looks, self.frame, self.function = looks, frame, function
        self.line = frame.f_lineno
        self.counts: Counter[int] = Counter()
        self.total = 0
        self.lookups: Counter[tuple[int, str, int]] = Counter()
        """Attribute lookups, by line, attribute and module."""
        self.asked: dict[Hashable, list[tuple[int, str, object, int]]] = {}
        """Calls by function and arguments: line, name, result and instructions."""
        self._running: dict[int, tuple[Hashable, int, int]] = {}
        self._kept: list[object] = []
        """The arguments; kept alive, so that their ids stay unique."""
        self._ours: dict[int, bool] = {}

    def instruction(self, frame: FrameType, offset: int) -> None:
        """Counts an instruction for the line that the call is at."""
        if frame is self.frame:
            self.line = frame.f_lineno
        elif self._is_ours(frame.f_code):
            return
        self.counts[self.line] += 1
        self.total += 1
        if self.total >= _LONGEST:
            self.function.waits = False
            self.looks.end()

    def entered(self, frame: FrameType) -> None:
        """Called when a function starts."""
        if frame.f_back is self.frame:
            self._begins(frame)

    def left(self, frame: FrameType, result: object) -> None:
        """Called when a function ends."""
        if frame is self.frame:
            self.looks.done(self)
        else:
            self._ends(frame, result)

    def said(self) -> Iterable[tuple[int, str]]:
        """The remarks, with lines."""
        names: Counter[tuple[str, int]] = Counter()
        first: dict[tuple[str, int], int] = {}
        for (line, name, module), times in self.lookups.items():
            names[name, module] += times
            first.setdefault((name, module), line)
        for (name, module), times in names.items():
            if times >= _LOOKUPS:
                yield first[name, module], _LOOKED_UP.format(name, times)
        for asked in self.asked.values():
            answers = {(type(answer), answer) for _, _, answer, _ in asked if _is_plain(answer)}
            same = len(answers) == 1 and all(_is_plain(answer) for _, _, answer, _ in asked)
            if len(asked) >= _ANSWERS and same and min(cost for *_, cost in asked) >= _ASKING:
                line, name, _, cost = asked[0]
                yield line, _ASKED.format(name, len(asked), cost)

    def _begins(self, inner: FrameType) -> None:
        code = inner.f_code
        if code is _module_getattr():
            values = inner.f_locals
            self.lookups[self.line, str(values.get("name")), id(values.get("self"))] += 1
            self._kept.append(values.get("self"))
        elif not code.co_flags & _NO_CALL and not code.co_name.startswith("<"):
            values = inner.f_locals
            arguments = [values[name] for name in _parameters(code) if name in values]
            self._kept.extend(arguments)
            key = (id(code), *map(_identity, arguments))
            self._running[id(inner)] = key, self.line, self.total

    def _ends(self, inner: FrameType, result: object) -> None:
        key, line, before = self._running.pop(id(inner), (None, 0, 0))
        if key is not None:
            self._kept.append(result)
            entry = (line, inner.f_code.co_name, result, self.total - before)
            self.asked.setdefault(key, []).append(entry)

    def _is_ours(self, code: CodeType) -> bool:
        known = self._ours.get(id(code))
        if known is None:
            known = self._ours[id(code)] = is_ours(code)
        return known


def _parameters(code: CodeType) -> tuple[str, ...]:
    number = code.co_argcount + code.co_kwonlyargcount
    number += bool(code.co_flags & inspect.CO_VARARGS) + bool(
        code.co_flags & inspect.CO_VARKEYWORDS
    )
    return code.co_varnames[:number]


def _identity(value: object) -> Hashable:
    """A key that distinguishes arguments."""
    if isinstance(value, tuple):
        return ("tuple", *map(_identity, value))
    return (type(value), value) if _is_plain(value) else id(value)


def _is_plain(value: object) -> bool:
    """Whether a value is a constant; None does not count."""
    return isinstance(value, _PLAIN) and type(value) in _PLAIN


def _module_getattr() -> CodeType | None:
    modules: Any = sys.modules.get("torch.nn.modules.module")
    return None if modules is None else modules.Module.__getattr__.__code__
