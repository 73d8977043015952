"""What torch.compile made of a program that ran: graphs that broke, code that was compiled again and again,
and constants of many instances that are checked at every call."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import PurePath

from pytest_dispatchguard.runtime.code.foreign import is_foreign_file
from pytest_dispatchguard.runtime.compiled.counts import first_of
from pytest_dispatchguard.runtime.compiled.guards import Guard, alike, grouped, guards_in
from pytest_dispatchguard.runtime.syncs.syncs import Frame, Sync
from pytest_dispatchguard.runtime.torch_private import compile_records, compiler, guard_trees

BREAKS, AGAIN, GUARDS = "DG711", "DG712", "DG713"
CODES = frozenset({BREAKS, AGAIN, GUARDS})
"""Rules that only running can tell. Who compiles code says that it is hot."""

_AGAIN = 4
"""Compilations after the first that are worth telling: fewer are a size that torch makes dynamic, types, or
instances that are compiled each. After eight torch gives up."""
_MANY = 50
"""Instances whose constants are worth telling: checking them takes half a microsecond in a loop of nothing
else, and several in a program that does more."""
_CONSTANTS = frozenset({"EQUALS_MATCH", "CONSTANT_MATCH"})
_MEANT = ("size mismatch", "stride mismatch", "BACKEND_MATCH", "compiled_backend")
"""Reasons to compile again that somebody wants: torch would make sizes dynamic by itself, where it may."""
_ASKED_FOR = ("graph_break()", "torch.compiler.disable", "User-inserted")
"""What a graph that breaks on purpose says."""


class Compiling:
    """Looks at what torch's compiler remembers, before and after: nothing is watched meanwhile."""

    def __init__(self) -> None:
        self._done: Counter[Sync] = Counter()
        self._open: list[Callable[[], Counter[Sync]]] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Takes account of what is compiled inside, in all threads."""
        there = compiler.compiler_is_there()
        broken = compile_records.break_records() if there else []
        with (
            compile_records.records() if there else nullcontext(compile_records.recorded) as records
        ):

            def seen() -> Counter[Sync]:
                if not compiler.compiler_is_there():
                    return Counter()
                return _breaks(compile_records.breaks(broken)) + _made(records())

            self._open.append(seen)
            try:
                yield
            finally:
                self._open.remove(seen)
                self._done = _together(self._done, seen())

    @property
    def times(self) -> Counter[Sync]:
        """What was seen, and how often."""
        found = Counter(self._done)
        for seen in self._open:
            found = _together(found, seen())
        return found


def _together(one: Counter[Sync], other: Counter[Sync]) -> Counter[Sync]:
    """What was seen in two stretches: what guards check is the same in each."""
    both = one + other
    for sync in both:
        if sync.code == GUARDS:
            both[sync] = 1
    return both


def _breaks(broken: Sequence[compile_records.Break]) -> Counter[Sync]:
    found: Counter[Sync] = Counter()
    for why, places in broken:
        frames = [Frame(*place) for place in reversed(places) if not is_foreign_file(place[0])]
        if frames and not any(asked in why for asked in _ASKED_FOR):
            found[_sync(BREAKS, "torch.compile", first_of(why), frames)] += 1
    return found


def _made(records: Sequence[compile_records.Record]) -> Counter[Sync]:
    """What records of compilations tell, and the guards of what they were about."""
    found: Counter[Sync] = Counter()
    again: dict[Frame, list[str]] = {}
    most: dict[Frame, list[str]] = {}
    for record in records:
        if is_foreign_file(record.file):
            continue
        place = Frame(record.file, record.line, record.function)
        if record.failed:
            at = record.failed_file or record.file, record.failed_line or record.line
            why = f"{first_of(record.failed)}; {record.function} is not compiled at all"
            found[_sync(BREAKS, "torch.compile", why, [Frame(*at, record.function)])] += 1
        elif not record.again:
            again[place] = []  # for the first time, or after the compiler was made to forget
        elif record.reason and not any(meant in record.reason for meant in _MEANT):
            reasons = again.setdefault(place, [])
            reasons.append(first_of(record.reason))
            most[place] = max(most.get(place, []), [*reasons], key=len)
    for place, reasons in most.items():
        if len(reasons) >= _AGAIN:
            found[_sync(AGAIN, place.function, reasons[-1], [place])] += len(reasons)
    return found + _guards({(record.file, record.line) for record in records})


def _guards(places: Iterable[tuple[str, int]]) -> Counter[Sync]:
    """Constants of many instances that compiled code checks; of code that was compiled several times, in the
    entry that checks most."""
    known = sorted(set(places))
    most: dict[tuple[str, str], tuple[int, Sync]] = {}
    for code in dict.fromkeys(compiler.codes_compiled()):
        if (code.co_filename, code.co_firstlineno) not in known:
            continue
        for entry in guard_trees.cache_entries(code):
            guards = list(guards_in(guard_trees.guard_tree(entry)))
            for sync, number in _constants(guards, [code.co_filename, *(p for p, _ in known)]):
                key = str(sync.place), sync.operation
                if number > most.get(key, (0, sync))[0]:
                    most[key] = number, sync
    return Counter(sync for _, sync in most.values())


def _constants(guards: Sequence[Guard], files: Sequence[str]) -> Iterator[tuple[Sync, int]]:
    for group in grouped(guards):
        # Behind the index it is no longer the list that is checked, but what is in it.
        many = "[*]." in group.pattern and group.number >= _MANY
        if not many or group.kind not in _CONSTANTS or group.pattern.endswith(".training"):
            continue
        frame = _frame(group.place, files)
        if frame is not None and group.text:
            values = {
                guard.expression.rpartition("==")[2].strip()
                for guard in guards
                if guard.kind == group.kind and alike(guard.source) == group.pattern
            }
            equal = ", with the same value: a constant of the file is checked once"
            why = f"`{group.pattern}` is checked in each of {group.number}"
            line = group.text.partition("  #")[0]
            yield (
                _sync(GUARDS, line, why + (equal if len(values) == 1 else ""), [frame]),
                group.number,
            )


def _frame(place: str, files: Iterable[str]) -> Frame | None:
    """The frame of a place as torch writes it, ``folder/net.py:3 in forward``: in one of the files that were
    compiled, or another that was imported; None where that is not sure."""
    at, _, function = place.partition(" in ")
    path, _, line = at.rpartition(":")
    wanted = PurePath(path).parts
    imported = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    for candidates in (files, imported):
        found = {
            file
            for file in candidates
            if isinstance(file, str) and PurePath(file).parts[-len(wanted) :] == wanted
        }
        if len(found) == 1 and line.isdecimal():
            return Frame(found.pop(), int(line), function)
        if found:
            return None
    return None


def _sync(code: str, operation: str, why: str, frames: Sequence[Frame]) -> Sync:
    return Sync(operation, why, code, tuple(frames), waits=False)
