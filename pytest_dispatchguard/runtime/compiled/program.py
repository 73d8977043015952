"""Finds what torch.compile did in a program: graph breaks, repeated recompiles, and guards on constants of
many instances."""

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
"""Rules that only apply at run time. Code that is compiled counts as hot."""

_AGAIN = 4
"""The least recompiles that are reported: fewer may be due to a size that becomes dynamic, types, or
instances. After eight torch gives up."""
_MANY = 50
"""The least instances whose constants are reported: checking them takes half a microsecond in a tight loop,
and several in a program that does more."""
_CONSTANTS = frozenset({"EQUALS_MATCH", "CONSTANT_MATCH"})
_MEANT = ("size mismatch", "stride mismatch", "BACKEND_MATCH", "compiled_backend")
"""Reasons of intended recompiles: torch makes sizes dynamic by itself, unless it may not."""
_ASKED_FOR = ("graph_break()", "torch.compiler.disable", "User-inserted")
"""Reasons of intended graph breaks."""


class Compiling:
    """Compares the records of torch's compiler before and after; nothing is hooked meanwhile."""

    def __init__(self) -> None:
        self._done: Counter[Sync] = Counter()
        self._open: list[Callable[[], Counter[Sync]]] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Counts what is compiled in this context, in all threads."""
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
        """The findings, with counts."""
        found = Counter(self._done)
        for seen in self._open:
            found = _together(found, seen())
        return found


def _together(one: Counter[Sync], other: Counter[Sync]) -> Counter[Sync]:
    """Merges the findings of two periods; those about guards are equal in both."""
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
    """The findings about recompiles, and about the guards of the compiled code."""
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
            again[place] = []  # for the first time, or after a reset
        elif record.reason and not any(meant in record.reason for meant in _MEANT):
            reasons = again.setdefault(place, [])
            reasons.append(first_of(record.reason))
            most[place] = max(most.get(place, []), [*reasons], key=len)
    for place, reasons in most.items():
        if len(reasons) >= _AGAIN:
            found[_sync(AGAIN, place.function, reasons[-1], [place])] += len(reasons)
    return found + _guards({(record.file, record.line) for record in records})


def _guards(places: Iterable[tuple[str, int]]) -> Counter[Sync]:
    """Guards on constants of many instances; of several cache entries the one with most guards counts."""
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
        # Behind the index, elements of the list are checked.
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
    """The frame of a place in torch's notation, ``folder/net.py:3 in forward``, in a file that was compiled
    or imported; None if ambiguous."""
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
