"""Records which functions of a project run, with their callees and kinds of arguments."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

from pytest_dispatchguard.profile import Name, Profile, Seen, digest
from pytest_dispatchguard.runtime.hooks.function_calls import each_function

Rel = Callable[[str], "str | None"]
"""A file's path relative to the project root; None for files that are not the project's own."""

_LOOKED_AT = 24
"""Calls of a function whose arguments are examined; after these only every 2^n-th call."""


class Recorder:
    """The calls recorded so far, by code."""

    def __init__(self, rel: Rel) -> None:
        self._rel = rel
        # By the identity of code: equal code of another file is another function.
        self._codes: dict[int, CodeType] = {}
        self._own: dict[int, bool] = {}
        self._calls: dict[int, int] = {}
        self._callees: dict[tuple[int, int], int] = {}
        self._kinds: dict[int, dict[str, Counter[str]]] = {}

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Records all threads."""
        with each_function(self.entered):
            yield

    def entered(self, frame: FrameType) -> bool:
        """Records the start of a function; whether it is one of the project."""
        code = frame.f_code
        key = id(code)
        own = self._own.get(key)
        if own is None:
            own = self._ours(code)
        if not own:
            return False
        calls = self._calls[key] = self._calls.get(key, 0) + 1
        caller = self._caller(frame.f_back)
        if caller is not None:
            edge = caller, key
            self._callees[edge] = self._callees.get(edge, 0) + 1
        if calls <= _LOOKED_AT or not calls & (calls - 1):
            self._look(code, frame)
        return True

    def _ours(self, code: CodeType) -> bool:
        """Whether code is a function of the project. Lambdas and comprehensions count as part of the
        function around them."""
        own = not code.co_name.startswith("<") and self._rel(code.co_filename) is not None
        self._codes[id(code)] = code  # kept alive, so that its id stays unique
        self._own[id(code)] = own
        return own

    def _caller(self, frame: FrameType | None) -> int | None:
        known = self._own
        while frame is not None:
            key = id(frame.f_code)
            own = known.get(key)
            if own is None:
                own = self._ours(frame.f_code)
            if own:
                return key
            frame = frame.f_back
        return None

    def _look(self, code: CodeType, frame: FrameType) -> None:
        number = code.co_argcount + code.co_kwonlyargcount
        if not number:
            return
        values = frame.f_locals
        known = self._kinds.setdefault(id(code), {})
        for name in code.co_varnames[:number]:
            if name in values:
                kinds = known.get(name)
                if kinds is None:
                    kinds = known[name] = Counter()
                kinds[_kind(values[name])] += 1
        if sys.version_info[:2] == (3, 12):
            values.clear()  # a copy in 3.12, which would keep the arguments alive as long as the frame

    def profile(self) -> Profile:
        """The records by function name, without functions whose file cannot be read or has changed."""
        profile = Profile()
        names = dict(self._named(profile.texts))
        for key, (name, text_digest) in names.items():
            seen = profile.functions.setdefault(name, Seen(text_digest))
            seen.add(Seen(text_digest, self._calls[key], Counter(), self._kinds.get(key, {})))
        for (caller, callee), times in list(self._callees.items()):
            if caller in names and callee in names:
                profile.functions[names[caller][0]].callees[names[callee][0]] += times
        return profile

    def _named(self, texts: dict[str, dict[str, str]]) -> Iterator[tuple[int, tuple[Name, str]]]:
        """Code that ran, with the name of its function and the digest of its text. Fills `texts` with the
        functions of each file."""
        outlines: dict[str, dict[tuple[int, str], tuple[str, str]]] = {}
        for key in list(self._calls):
            code = self._codes[key]
            path = code.co_filename
            rel = self._rel(path)
            if rel is None:
                continue
            if path not in outlines:
                outlines[path] = _outlines(path)
                if outlines[path]:
                    texts.setdefault(rel, {}).update(outlines[path].values())
            found = outlines[path].get((code.co_firstlineno, code.co_name))
            if found is not None:
                name, text_digest = found
                yield key, ((rel, name), text_digest)


def _outlines(path: str) -> dict[tuple[int, str], tuple[str, str]]:
    """The qualified name and text digest of the functions of a file, by first line and name."""
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
    """The kind of a value: `tensor`, `module`, or its type."""
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
