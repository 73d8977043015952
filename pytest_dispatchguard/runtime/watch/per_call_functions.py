"""Watches for functions that are defined at every call of their enclosing function, to be called once."""

from __future__ import annotations

import dis
import inspect
import linecache
import re
from collections import Counter
from dataclasses import dataclass, field
from types import CodeType, FrameType

from pytest_dispatchguard.runtime.code.foreign import is_foreign
from pytest_dispatchguard.runtime.syncs.syncs import Frame, Sync, place_of, qualified

_CALLS = 3
"""The least calls of the enclosing function."""
_EACH = 2
"""The least calls of an inner function, for each definition, that make it worthwhile."""
_FUNCTION = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS


@dataclass
class _Built:
    """A function defined in another."""

    code: CodeType
    maker: CodeType
    by_maker: int = 0
    """Calls by the enclosing function itself, while it runs."""
    by_caller: int = 0
    """Calls by the caller of the enclosing function."""
    others: int = 0


@dataclass
class _Maker:
    calls: int = 0
    callers: set[int] = field(default_factory=set)
    way: tuple[Frame, ...] = ()
    """The stack of its first call."""


class Building:
    """The inner functions seen so far."""

    def __init__(self) -> None:
        # By the identity of code: equal code of another file is another function.
        self._looked_at: dict[int, CodeType] = {}
        self._makers: dict[int, _Maker] = {}
        self._built: dict[int, _Built] = {}

    def entered(self, frame: FrameType) -> bool:
        """Records the start of a function; whether it is of interest."""
        code = frame.f_code
        key = id(code)
        if key not in self._looked_at:
            self._look(code)
        maker, built = self._makers.get(key), self._built.get(key)
        if maker is None and built is None:
            return False
        caller = frame.f_back
        if maker is not None:
            maker.calls += 1
            if caller is not None:
                maker.callers.add(id(caller.f_code))
                maker.way = maker.way or place_of(frame)
        if built is not None:
            if caller is not None and caller.f_code is built.maker and _names(caller, code):
                built.by_maker += 1
            elif caller is not None and id(caller.f_code) in self._makers[id(built.maker)].callers:
                built.by_caller += 1
            else:
                built.others += 1
        return True

    def _look(self, code: CodeType) -> None:
        self._looked_at[id(code)] = code
        inside = [
            inner
            for inner in code.co_consts
            if isinstance(inner, CodeType)
            and inner.co_flags & _FUNCTION == _FUNCTION
            and not inner.co_name.startswith("<")
        ]
        if inside and code.co_flags & _FUNCTION == _FUNCTION and not is_foreign(code):
            self._makers[id(code)] = _Maker()
            for inner in inside:
                self._built[id(inner)] = _Built(inner, code)

    def wasted(self) -> Counter[Sync]:
        """The functions that were defined for a single call, and how often."""
        found: Counter[Sync] = Counter()
        for built in list(self._built.values()):
            maker = self._makers[id(built.maker)]
            calls = built.by_maker + built.by_caller
            # Called by another function, more than one call makes it worthwhile.
            most = maker.calls if built.by_caller else _EACH * maker.calls
            enough = maker.calls >= _CALLS and maker.calls <= 2 * calls
            if enough and calls <= most and not built.others:
                rule, why = _said(built)
                code = built.code
                place = Frame(code.co_filename, code.co_firstlineno, qualified(built.maker))
                found[Sync(code.co_name, why, rule, (place, *maker.way[1:]), waits=False)] += calls
        return found


def _names(frame: FrameType, code: CodeType) -> bool:
    """Whether the running line calls the function by name; else it was passed to its caller."""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return re.search(rf"\b{re.escape(code.co_name)}\s*\(", line) is not None


def _has_defaults(maker: CodeType, code: CodeType) -> bool:
    """Whether a function has defaults, which may depend on the call."""
    instructions = list(dis.get_instructions(maker))
    for number, instruction in enumerate(instructions):
        if instruction.argval is code:
            for later in instructions[number + 1 : number + 6]:
                if later.opname in ("MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE") and (
                    (later.arg or 0) & 3
                ):
                    return True
    return False


def _said(built: _Built) -> tuple[str, str]:
    if not built.code.co_freevars and not _has_defaults(built.maker, built.code):
        return "DG302", "it is built again each time, and needs nothing of the call: build it once"
    if built.by_caller > built.by_maker:
        return "DG303", "it is built for this one call, as a wrapper, and thrown away"
    return "DG301", "it is built each time, to be called on the spot"
