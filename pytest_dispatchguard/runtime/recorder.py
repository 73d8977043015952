"""Records which functions of a project run, what they call and what they are given."""

from __future__ import annotations

import ast
import inspect
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from pytest_dispatchguard.model import UserError
from pytest_dispatchguard.profile import Name, Profile, Seen, digest

Rel = Callable[[str], "str | None"]
"""A file's path relative to the project root; None for files that are not the project's own."""

_LOOKED_AT = 24
"""Calls of a function whose arguments are looked at; after these every one whose number is a power of two."""
_OF_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Recorder:
    """What was seen so far, by code."""

    def __init__(self, rel: Rel) -> None:
        self._rel = rel
        self._own: dict[CodeType, bool] = {}
        self._calls: dict[CodeType, int] = {}
        self._callees: dict[tuple[CodeType, CodeType], int] = {}
        self._kinds: dict[CodeType, dict[str, Counter[str]]] = {}

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Records what runs inside, in all threads."""
        if sys.version_info >= (3, 12):
            with _by_monitoring(self):
                yield
        else:
            with _by_tracing(self):
                yield

    def entered(self, frame: FrameType) -> bool:
        """Takes note of a function that begins; whether it is one of the project's."""
        code = frame.f_code
        own = self._own.get(code)
        if own is None:
            own = self._ours(code)
        if not own:
            return False
        calls = self._calls[code] = self._calls.get(code, 0) + 1
        caller = self._caller(frame.f_back)
        if caller is not None:
            edge = caller, code
            self._callees[edge] = self._callees.get(edge, 0) + 1
        if calls <= _LOOKED_AT or not calls & (calls - 1):
            self._look(code, frame)
        return True

    def _ours(self, code: CodeType) -> bool:
        """Whether code is a function of the project: what has no name of its own counts for what it is in."""
        own = not code.co_name.startswith("<") and self._rel(code.co_filename) is not None
        self._own[code] = own
        return own

    def _caller(self, frame: FrameType | None) -> CodeType | None:
        known = self._own
        while frame is not None:
            code = frame.f_code
            own = known.get(code)
            if own is None:
                own = self._ours(code)
            if own:
                return code
            frame = frame.f_back
        return None

    def _look(self, code: CodeType, frame: FrameType) -> None:
        number = code.co_argcount + code.co_kwonlyargcount
        if not number:
            return
        values = frame.f_locals
        known = self._kinds.get(code)
        if known is None:
            known = self._kinds[code] = {}
        for name in code.co_varnames[:number]:
            if name in values:
                kinds = known.get(name)
                if kinds is None:
                    kinds = known[name] = Counter()
                kinds[_kind(values[name])] += 1

    def profile(self) -> Profile:
        """What was seen, by names. Functions whose file cannot be read, or has changed meanwhile, are left
        out."""
        names = dict(self._named())
        profile = Profile()
        for code, (name, text_digest) in names.items():
            seen = profile.functions.setdefault(name, Seen(text_digest))
            seen.add(Seen(text_digest, self._calls[code], Counter(), self._kinds.get(code, {})))
        for (caller, callee), times in self._callees.items():
            if caller in names and callee in names:
                profile.functions[names[caller][0]].callees[names[callee][0]] += times
        return profile

    def _named(self) -> Iterator[tuple[CodeType, tuple[Name, str]]]:
        """Each code that ran, with its function's name and the digest of its text."""
        outlines: dict[str, dict[tuple[int, str], tuple[str, str]]] = {}
        for code in self._calls:
            path = code.co_filename
            if path not in outlines:
                outlines[path] = _outlines(path)
            found = outlines[path].get((code.co_firstlineno, code.co_name))
            rel = self._rel(path)
            if found is not None and rel is not None:
                name, text_digest = found
                yield code, ((rel, name), text_digest)


def _outlines(path: str) -> dict[tuple[int, str], tuple[str, str]]:
    """The functions of a file: by first line and name, the qualified name and the digest of the text."""
    try:
        data = Path(path).read_bytes()
        tree = ast.parse(data)
        lines = _text(data).split("\n")
    except (OSError, ValueError, SyntaxError, RecursionError, LookupError):
        return {}
    found: dict[tuple[int, str], tuple[str, str]] = {}
    stack: list[tuple[ast.AST, str]] = [(tree, "")]
    while stack:
        node, prefix = stack.pop()
        inside = prefix
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            text_digest = digest(lines[first - 1 : node.end_lineno])
            found[first, node.name] = (prefix + node.name, text_digest)
            inside = f"{prefix}{node.name}.<locals>."
        elif isinstance(node, ast.ClassDef):
            inside = f"{prefix}{node.name}."
        stack.extend((child, inside) for child in ast.iter_child_nodes(node))
    return found


def _text(data: bytes) -> str:
    import io
    import tokenize

    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return io.TextIOWrapper(io.BytesIO(data), encoding).read()


def _kind(value: object) -> str:
    """What a value is, in a word."""
    torch = sys.modules.get("torch")
    try:
        if torch is not None:
            if isinstance(value, torch.Tensor):
                return "tensor"
            if isinstance(value, torch.nn.Module):
                return "module"
    except Exception:  # noqa: BLE001 - objects may refuse to be asked what they are, each in its own way
        return "?"
    kind = type(value)
    module = kind.__module__
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


@contextmanager
def _by_tracing(recorder: Recorder) -> Iterator[None]:
    """By the tracer, which is told of functions alone where it asks for no lines; by the profiler where
    somebody else traces (coverage, a debugger)."""
    entered = recorder.entered

    def called(frame: FrameType, event: str, arg: Any) -> None:
        # A generator is told of whenever it goes on.
        if event == "call" and not (frame.f_code.co_flags & _OF_GENERATORS and _goes_on(frame)):
            entered(frame)

    get: Any
    put: Any
    put_in_threads: Any
    if sys.gettrace() is None:
        get, put, put_in_threads = sys.gettrace, sys.settrace, threading.settrace
    elif sys.getprofile() is None:
        get, put, put_in_threads = sys.getprofile, sys.setprofile, threading.setprofile
    else:
        raise UserError(
            "calls cannot be recorded: a tracer and a profiler watch this Python already"
        )
    put(called)
    put_in_threads(called)
    try:
        yield
    finally:
        if get() is called:  # whoever came later takes it off himself
            put(None)
        put_in_threads(None)


def _goes_on(frame: FrameType) -> bool:
    """Whether a generator has run before."""
    return frame.f_lasti >= _first_yield(frame.f_code)


@cache
def _first_yield(code: CodeType) -> int:
    """Where a generator stops first."""
    import dis

    stops = (i.offset for i in dis.get_instructions(code) if i.opname == "YIELD_VALUE")
    return next(stops, sys.maxsize)


if sys.version_info >= (3, 12):
    _TOOLS = (3, 4, 5, 2, 1, 0)
    """Numbers of monitoring tools, those first that debuggers, coverage and profilers leave alone."""

    @contextmanager
    def _by_monitoring(recorder: Recorder) -> Iterator[None]:
        """By monitoring, which forgets code that is not the project's after its first call."""
        monitoring = sys.monitoring
        tool = next((n for n in _TOOLS if monitoring.get_tool(n) is None), None)
        if tool is None:
            raise UserError(
                "calls cannot be recorded: six tools watch this Python already; switch one off"
            )
        entered = recorder.entered

        def started(code: CodeType, offset: int) -> object:
            return None if entered(sys._getframe(1)) else monitoring.DISABLE

        monitoring.use_tool_id(tool, "dispatchguard-recorder")
        try:
            monitoring.register_callback(tool, monitoring.events.PY_START, started)
            monitoring.set_events(tool, monitoring.events.PY_START)
            yield
        finally:
            monitoring.set_events(tool, monitoring.events.NO_EVENTS)
            monitoring.register_callback(tool, monitoring.events.PY_START, None)
            monitoring.free_tool_id(tool)
