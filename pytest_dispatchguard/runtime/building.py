"""Watches for functions that are built anew at every call of the one around them, to be called once."""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import dataclass, field
from types import CodeType, FrameType

from pytest_dispatchguard.runtime.foreign import is_foreign
from pytest_dispatchguard.runtime.syncs import Frame, Sync, place_of

_CALLS = 3
"""Calls of the function around that say something."""
_EACH = 2
"""Calls of what it builds, for each that it is built: who is called more often is worth it."""
_FUNCTION = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS


@dataclass
class _Built:
    """A function inside another."""

    maker: CodeType
    by_maker: int = 0
    """Calls that the one around it makes itself, while it runs."""
    by_caller: int = 0
    """Calls by who called the one around it."""
    others: int = 0


@dataclass
class _Maker:
    calls: int = 0
    callers: set[CodeType] = field(default_factory=set)
    way: tuple[Frame, ...] = ()
    """Where it was called first."""


class Building:
    """What was seen so far."""

    def __init__(self) -> None:
        self._looked_at: set[CodeType] = set()
        self._makers: dict[CodeType, _Maker] = {}
        self._built: dict[CodeType, _Built] = {}

    def entered(self, frame: FrameType) -> bool:
        """Takes note of a function that begins; whether it is of interest."""
        code = frame.f_code
        if code not in self._looked_at:
            self._look(code)
        maker, built = self._makers.get(code), self._built.get(code)
        if maker is not None:
            maker.calls += 1
            if frame.f_back is not None:
                maker.callers.add(frame.f_back.f_code)
                maker.way = maker.way or place_of(frame)
        if built is not None:
            caller = None if frame.f_back is None else frame.f_back.f_code
            if caller is built.maker:
                built.by_maker += 1
            elif caller in self._makers[built.maker].callers:
                built.by_caller += 1
            else:
                built.others += 1
        return maker is not None or built is not None

    def _look(self, code: CodeType) -> None:
        self._looked_at.add(code)
        inside = [
            inner
            for inner in code.co_consts
            if isinstance(inner, CodeType)
            and inner.co_flags & _FUNCTION == _FUNCTION
            and not inner.co_name.startswith("<")
        ]
        if inside and code.co_flags & _FUNCTION == _FUNCTION and not is_foreign(code):
            self._makers[code] = _Maker()
            for inner in inside:
                self._looked_at.discard(inner)
                self._built[inner] = _Built(code)

    def wasted(self) -> Counter[Sync]:
        """The functions that were built for nothing but a call, and how often."""
        found: Counter[Sync] = Counter()
        for code, built in self._built.items():
            maker = self._makers[built.maker]
            calls = built.by_maker + built.by_caller
            if (
                maker.calls >= _CALLS
                and not built.others
                and maker.calls <= 2 * calls
                and calls <= _EACH * maker.calls
            ):
                rule, why = _said(code, built)
                place = Frame(code.co_filename, code.co_firstlineno, _name(built.maker))
                found[Sync(code.co_name, why, rule, (place, *maker.way[1:]), waits=False)] += calls
        return found


def _said(code: CodeType, built: _Built) -> tuple[str, str]:
    if not code.co_freevars:
        return "DG302", "it is built again each time, and needs nothing of the call: build it once"
    if built.by_caller > built.by_maker:
        return "DG303", "it is built for this one call, as a wrapper, and thrown away"
    return "DG301", "it is built each time, to be called on the spot"


def _name(code: CodeType) -> str:
    return str(getattr(code, "co_qualname", None) or code.co_name)
