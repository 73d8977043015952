"""What torch.compile made of a program that ran: graphs that broke, code that was compiled again and again,
and constants of many instances that are checked at every call."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import PurePath

from pytest_dispatchguard.runtime import torch_private
from pytest_dispatchguard.runtime.compiled import first_of
from pytest_dispatchguard.runtime.foreign import is_foreign_file
from pytest_dispatchguard.runtime.guards import grouped, guards_of
from pytest_dispatchguard.runtime.syncs import Frame, Sync

BREAKS, AGAIN, GUARDS = "DG711", "DG712", "DG713"
CODES = frozenset({BREAKS, AGAIN, GUARDS})
"""Rules that only running can tell. Who compiles code says that it is hot."""

_AGAIN = 4
"""Compilations after the first that are worth telling: fewer are a size that torch makes dynamic, types, or
instances that are compiled each. After eight torch gives up."""
_MANY = 16
"""Instances whose constants are worth telling: a check takes some hundredth of a microsecond."""
_CONSTANTS = frozenset({"EQUALS_MATCH", "CONSTANT_MATCH", "ID_MATCH", "TRUE_MATCH", "FALSE_MATCH"})


class Compiling:
    """Looks at what torch's compiler remembers, before and after: nothing is watched meanwhile."""

    def __init__(self) -> None:
        self._done: Counter[Sync] = Counter()
        self._open: list[Callable[[], Counter[Sync]]] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Takes account of what is compiled inside, in all threads."""
        there = torch_private.compiler_is_there()
        broken = torch_private.break_records() if there else []
        with torch_private.records() if there else nullcontext(torch_private.recorded) as records:

            def seen() -> Counter[Sync]:
                if not torch_private.compiler_is_there():
                    return Counter()
                return _breaks(torch_private.breaks(broken)) + _made(records())

            self._open.append(seen)
            try:
                yield
            finally:
                self._open.remove(seen)
                self._done += seen()

    @property
    def times(self) -> Counter[Sync]:
        """What was seen, and how often."""
        found = Counter(self._done)
        for seen in self._open:
            found += seen()
        return found


def _breaks(broken: Sequence[torch_private.Break]) -> Counter[Sync]:
    found: Counter[Sync] = Counter()
    for why, places in broken:
        frames = [Frame(*place) for place in reversed(places) if not is_foreign_file(place[0])]
        if frames:
            found[_sync(BREAKS, "torch.compile", first_of(why), frames)] += 1
    return found


def _made(records: Sequence[torch_private.Record]) -> Counter[Sync]:
    """What records of compilations tell, and the guards of what they were about."""
    found: Counter[Sync] = Counter()
    by_function: dict[tuple[str, int, str], list[torch_private.Record]] = {}
    for record in records:
        place = record.file, record.line, record.function
        if is_foreign_file(record.file):
            continue
        if record.failed:
            at = (record.failed_file or record.file, record.failed_line or record.line)
            why = f"{first_of(record.failed)}; {record.function} is not compiled at all"
            found[_sync(BREAKS, "torch.compile", why, [Frame(*at, record.function)])] += 1
        elif record.again:
            by_function.setdefault(place, []).append(record)
    for (path, line, function), again in by_function.items():
        if len(again) >= _AGAIN:
            why = next((r.reason for r in reversed(again) if r.reason), "")
            told = first_of(why) or "torch gives no reason"
            found[_sync(AGAIN, function, told, [Frame(path, line, function)])] += len(again)
    if records:
        found += _guards({(record.file, record.line) for record in records})
    return found


def _guards(places: Iterable[tuple[str, int]]) -> Counter[Sync]:
    """Constants of many instances that compiled code checks."""
    found: Counter[Sync] = Counter()
    known = set(places)
    codes = [
        code
        for code in torch_private.codes_compiled()
        if (code.co_filename, code.co_firstlineno) in known
    ]
    for guards in grouped(guards_of(dict.fromkeys(codes))):
        # Behind the index it is no longer the list that is checked, but what is in it.
        many = "[*]." in guards.pattern and guards.number >= _MANY
        if many and guards.kind in _CONSTANTS and guards.text:
            frame = _frame(guards.place, [path for path, _ in known])
            if frame is not None:
                why = f"`{guards.pattern}` has a value of its own in each, a guard of its own"
                line = guards.text.partition("  #")[0]
                found[_sync(GUARDS, line, why, [frame])] += guards.number
    return found


def _frame(place: str, files: Iterable[str]) -> Frame | None:
    """The frame of a place as torch writes it, ``folder/net.py:3 in forward``: in one of the files that were
    compiled, or another that was imported."""
    at, _, function = place.partition(" in ")
    path, _, line = at.rpartition(":")
    wanted = PurePath(path).parts
    imported = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    for file in (*files, *imported):
        if isinstance(file, str) and PurePath(file).parts[-len(wanted) :] == wanted:
            return Frame(file, int(line), function) if line.isdecimal() else None
    return None


def _sync(code: str, operation: str, why: str, frames: Sequence[Frame]) -> Sync:
    return Sync(operation, why, code, tuple(frames), waits=False)
