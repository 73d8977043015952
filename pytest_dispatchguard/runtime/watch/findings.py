"""Turns what was seen at run time into findings, each at the innermost line of the project."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_dispatchguard.model.findings import Finding, Hot, Ran, Span
from pytest_dispatchguard.runtime.code.source_text import columns, shown
from pytest_dispatchguard.runtime.compiled.program import AGAIN, BREAKS, GUARDS
from pytest_dispatchguard.runtime.syncs.syncs import Frame, Sync

Rel = Callable[[str], str | None]
"""A file's path relative to the project root; None for files that are not the project's own."""
_USUAL = 50
"""The assumed instructions of a line where they are unknown."""
_WORTH = 20
"""With fewer instructions, Python code is not what costs."""
_MOST_TEXTS = 2
"""The most expressions of a line that a message names."""


def observed(
    times: Mapping[Sync, int],
    rel: Rel,
    rules: Mapping[str, str],
    instructions: Mapping[tuple[str, int], int] | None = None,
    ran: Mapping[Sync, Ran] | None = None,
) -> tuple[list[Finding], int]:
    """Findings of what was seen, one for each operation and line, the dearest first, and how many waits no
    line of the project is on the way of. `rules` has the rules' names by code, `instructions` what lines take
    in a call, and `ran` in which loops waits came, as far as that is known."""
    found: defaultdict[tuple[str, int, str], Counter[Sync]] = defaultdict(Counter)
    elsewhere = 0
    for sync, number in times.items():
        place = next((frame for frame in sync.frames if rel(frame.path) is not None), None)
        if not sync.waits and (place is None or place != sync.frames[0]):
            continue  # what a library does at every call is not for its users to change
        if place is None:
            elsewhere += number
        else:
            found[place.path, place.line, _code(sync, place)][sync] += number
    taken = instructions or {}
    steps = any(one.loop for one in (ran or {}).values())
    dearest = sorted(
        found.items(), key=lambda item: (*_order(item[1], taken.get(item[0][:2])), item[0])
    )
    return [
        _finding(
            path,
            line,
            code,
            seen,
            rel,
            rules.get(code, code),
            taken.get((path, line)),
            _loops([ran[sync] for sync in seen]) if ran else (),
            steps,
        )
        for (path, line, code), seen in dearest
    ], elsewhere


def _order(seen: Counter[Sync], instructions: int | None) -> tuple[bool, int]:
    """The sort key of findings, costliest first: a wait costs more than any Python code."""
    waits = any(sync.waits for sync in seen)
    return not waits, -seen.total() * (1 if waits else instructions or _USUAL)


def more(waits: int) -> str:
    """``3 more waits``."""
    return f"{waits} more {'wait' if waits == 1 else 'waits'}"


def _code(sync: Sync, place: Frame) -> str:
    """The linter's rule for the line: there is one for each kind of truth test."""
    words = _line(place.path, place.line).split(None, 1)
    if sync.code != "DG401" or not words:
        return sync.code
    return {"assert": "DG402", "while": "DG403"}.get(words[0], sync.code)


def _finding(
    path: str,
    line: int,
    code: str,
    seen: Counter[Sync],
    rel: Rel,
    rule: str,
    instructions: int | None,
    ran: tuple[Ran, ...],
    steps: bool,
) -> Finding:
    (sync, _), *_ = seen.most_common(1)
    own = [frame for frame in sync.frames if rel(frame.path) is not None]
    way = tuple(dict.fromkeys(frame.function for frame in reversed(own)))
    here = [
        next(frame for frame in other.frames if rel(frame.path) is not None)
        for other, _ in seen.most_common()
    ]
    at_top = own[0].function == "<module>"
    return Finding(
        code,
        rule,
        rel(path) or path,
        _span(here),
        "" if at_top else own[0].function,
        _message(seen, here, ran, instructions),
        # A training script that moves its model once, outside of its steps, has nothing to change.
        certainty="note" if steps and at_top and _ran_once(seen, ran) else "sure",
        hot=Hot(way[0], way, "seen running"),
        source=_line(path, line).strip(),
        ran=ran,
    )


def _ran_once(seen: Counter[Sync], ran: Sequence[Ran]) -> bool:
    """Whether what was seen came once, and in no loop."""
    return seen.total() == 1 and not any(one.loop for one in ran)


def _span(places: Sequence[Frame]) -> Span:
    """The span of the expression, or of the line if there are several, or no columns."""
    path, line = places[0].path, places[0].line
    known = columns(path, places[0].place) if len({frame.place for frame in places}) == 1 else None
    if known is not None:
        return Span(line, known[0], places[0].end_line, known[1])
    source = _line(path, line)
    start = len(source) - len(source.lstrip()) + 1
    return Span(line, start, line, max(len(source.rstrip()) + 1, start))


def _loops(seen: Sequence[Ran]) -> tuple[Ran, ...]:
    """What was seen at a place by loop, most frequent first."""
    found: dict[str, Ran] = {}
    for one in seen:
        before = found.get(one.loop)
        found[one.loop] = one if before is None else replace(one, times=one.times + before.times)
    return tuple(sorted(found.values(), key=lambda one: (-one.times, one.loop)))


_OF_COMPILER = {
    BREAKS: "the graph that `{what}` makes breaks here, {often}: {why}",
    AGAIN: "`{what}` was compiled {often} again: {why}",
    GUARDS: "compiled code checks what `{what}` reads before every call: {why}",
}


def _message(
    seen: Counter[Sync], places: Sequence[Frame], ran: Sequence[Ran], instructions: int | None
) -> str:
    (sync, _), *_ = seen.most_common(1)
    operations = list(dict.fromkeys(other.operation for other, _ in seen.most_common()))
    times = seen.total()
    often = "once" if times == 1 else f"{times} times"
    said = _OF_COMPILER.get(sync.code)
    if said is not None:
        return said.format(what=sync.operation, often=often, why=sync.why)
    if not sync.waits:
        taken = (
            f" ({instructions:,} instructions a call on this line)"
            if (instructions or 0) >= _WORTH
            else ""
        )
        return f"{_quoted(operations)} ran {often}{taken}: {sync.why}"
    inner = sync.frames[0]
    where = "" if inner == places[0] else f", in {_tail(inner.path)}:{inner.line}"
    told = "".join(f", {text}" for text in (_rounds(one, times) for one in ran) if text)
    return f"{_what(operations, places)} made the host wait {often}{told}{where}: {sync.why}"


_SAID = {"truth": "its truth value"}
"""Operations whose names are not those of a call, in words."""


def _what(operations: Sequence[str], places: Sequence[Frame]) -> str:
    """The source of the expression, and the name of the operation unless the source contains it."""
    texts = list(dict.fromkeys(shown(f.path, f.place) for f in places))
    if not all(texts):
        return _quoted(operations)
    left = len(texts) - _MOST_TEXTS
    told = _quoted(texts[:_MOST_TEXTS]) + (f" and {left} more" if left > 0 else "")
    unsaid = [name for name in operations if not any(_names(text, name) for text in texts)]
    return f"{told} ({', '.join(_SAID.get(name, name) for name in unsaid)})" if unsaid else told


def _names(text: str, operation: str) -> bool:
    return re.search(rf"\b{re.escape(operation)}\b", text) is not None


def _quoted(names: Sequence[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)


def _rounds(ran: Ran, in_all: int) -> str:
    """``in each of 5 steps``, ``twice in each of 5 rounds of the loop at ev.py:6``; empty outside."""
    if not ran.loop or ran.rounds == 1:
        return ""
    if not ran.rounds:
        return f"in the loop at {ran.loop}"
    unit = "steps" if ran.steps else f"rounds of the loop at {ran.loop}"
    each, rest = divmod(ran.times, ran.rounds)
    if rest:
        often = "" if ran.times == in_all else f"{_times(ran.times)} "
        return f"{often}in {ran.rounds} {unit}"
    return f"{f'{_times(each)} ' if each > 1 else ''}in each of {ran.rounds} {unit}"


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def _tail(path: str) -> str:
    """The end of a path of another package."""
    head, found, tail = path.rpartition("site-packages/")
    return tail if found else Path(head + tail).name


def _line(path: str, line: int) -> str:
    import linecache

    return linecache.getline(path, line).rstrip("\n")
