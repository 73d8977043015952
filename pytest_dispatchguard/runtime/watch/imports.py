"""Counts imports within functions: each looks up its module and names every time."""

from __future__ import annotations

import builtins
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

from pytest_dispatchguard.runtime.code.foreign import is_user_s
from pytest_dispatchguard.runtime.syncs.syncs import Sync, place_of

_WHY = "an import looks its module up, and its names, each time: import once"
_WORTH = 3
"""How often an import runs before it is reported: the first one loads the module."""


class Importing:
    """The imports seen so far, in functions of files that are the project's `own`."""

    def __init__(self, own: Callable[[str], bool]) -> None:
        self._own = own
        # By the identity of code: equal code of another file is another function.
        self._known: dict[int, tuple[CodeType, bool]] = {}
        """Whether code is a function of the project; kept alive, so that its id stays unique."""
        self._seen: dict[tuple[int, int, str], list[Any]] = {}
        """By function, line and module: the finding, and its count."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watches all threads."""
        before = builtins.__import__

        def counted(name: str, *rest: Any, **named: Any) -> Any:
            self._note(name)
            return before(name, *rest, **named)

        builtins.__import__ = counted
        try:
            yield
        finally:
            if (
                builtins.__import__ is counted
            ):  # if replaced meanwhile, the one who did so restores it
                builtins.__import__ = before

    @property
    def times(self) -> Counter[Sync]:
        """The imports that ran repeatedly."""
        found: Counter[Sync] = Counter()
        for seen, number in list(self._seen.values()):
            if number >= _WORTH:
                found[seen] += number
        return found

    def _note(self, name: str) -> None:
        frame = sys._getframe(2)
        code = frame.f_code
        if id(code) not in self._known:
            self._known[id(code)] = code, self._counts(code)
        if self._known[id(code)][1]:
            known = self._seen.get((id(code), frame.f_lineno, name))
            if known is None:
                seen = Sync(f"import {name}", _WHY, "DG602", place_of(frame), waits=False)
                known = self._seen[id(code), frame.f_lineno, name] = [seen, 0]
            known[1] += 1

    def _counts(self, code: CodeType) -> bool:
        function = bool(code.co_flags & inspect.CO_OPTIMIZED)
        return function and is_user_s(code) and self._own(code.co_filename)
