"""Follow names from import to import, through import cycles and chains of any length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pytest_dispatchguard.lint.callgraph.symbols import Name, Symbols

Find = Callable[[], Symbols]

MOST_STEPS = 40
"""Names followed within each other, before the next one is looked up by itself: a long chain of names must
not end in a RecursionError."""


@dataclass(slots=True)
class Search:
    """The names that are being followed, and what names followed before stand for."""

    found: dict[Name, Symbols] = field(default_factory=dict)
    found_in_cycles: dict[Name, Symbols] = field(default_factory=dict)
    """For names in an import cycle, or that lead into one: what each stands for when it is looked up
    first."""
    in_progress: dict[Name, Symbols] = field(default_factory=dict)
    """The names being followed, so far without a symbol, and those that turned out to be in a cycle with one
    of them."""
    met_cycle: bool = False
    """Whether a name in progress has been met again: what was found may be incomplete."""
    depth: int = 0
    """How many names are being followed within each other, each with a few frames of Python."""
    too_deep: dict[Name, Symbols] = field(default_factory=dict)
    """Names looked up by themselves, because the search met them too deep, and that are in a cycle."""


class _TooDeepError(Exception):
    """The search is so deep that the name it met has to be looked up by itself first."""

    def __init__(self, key: Name, find: Find) -> None:
        super().__init__(key)
        self.key = key
        self.find = find


def look_up(search: Search, key: Name, find: Find) -> Symbols:
    """What a name of a module stands for, that has not been found before. The result does not depend on what
    was looked up before."""
    first = not search.in_progress
    deep = search.depth >= MOST_STEPS and key not in search.in_progress
    if first:
        known = search.found_in_cycles.get(key)
    else:
        known = search.too_deep.get(key) if deep else None
    if known is not None:
        search.met_cycle = True
        return known
    if deep:
        raise _TooDeepError(key, find)
    before, search.met_cycle = search.met_cycle, False
    symbols = follow(search, key, find)
    if not search.met_cycle:
        search.found[key] = symbols
    elif first:
        search.found_in_cycles[key] = symbols
    search.met_cycle |= before
    return symbols


def follow(search: Search, key: Name, find: Find) -> Symbols:
    """What `find` returns for a name; nothing where the name is being followed already."""
    if search.in_progress:
        return _step(search, key, find)
    met_cycle = search.met_cycle
    waiting: list[_TooDeepError] = []
    try:
        while True:
            try:
                if not waiting:
                    return _step(search, key, find)
                _look_up_deep_name(search, waiting[-1].key, waiting[-1].find)
                waiting.pop()
            except _TooDeepError as error:
                waiting.append(error)
                search.too_deep[error.key] = ()  # should it lead back to itself
            finally:
                search.depth = 0
                search.in_progress.clear()
            search.met_cycle = met_cycle
    finally:
        search.too_deep.clear()


def _look_up_deep_name(search: Search, key: Name, find: Find) -> None:
    """Look up a name by itself, for the search that met it too deep."""
    search.met_cycle = False
    symbols = _step(search, key, find)
    if search.met_cycle:
        search.too_deep[key] = symbols
    else:
        search.found[key] = symbols
        del search.too_deep[key]


def _step(search: Search, key: Name, find: Find) -> Symbols:
    known = search.in_progress.get(key)
    if known is not None:
        search.met_cycle = True
        return known
    before, search.met_cycle = search.met_cycle, False
    search.in_progress[key] = ()
    search.depth += 1
    try:
        symbols = find()
        if search.met_cycle:
            search.in_progress[key] = symbols
        else:
            del search.in_progress[key]
    finally:
        search.met_cycle |= before
        search.depth -= 1
    return symbols
