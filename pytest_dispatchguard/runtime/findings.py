"""What was seen running, as findings: each at the nearest line that its reader can change."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pytest_dispatchguard.model import Finding, Hot, Span
from pytest_dispatchguard.runtime.compiling import AGAIN, BREAKS, GUARDS
from pytest_dispatchguard.runtime.syncs import Frame, Sync

Rel = Callable[[str], str | None]
"""A file's path relative to the project root; None for files that are not the project's own."""
_USUAL = 50
"""Instructions of a line of which that is not known."""
_WORTH = 20
"""Instructions that say something: where there are fewer, what costs is no Python code."""


def observed(
    times: Mapping[Sync, int],
    rel: Rel,
    rules: Mapping[str, str],
    instructions: Mapping[tuple[str, int], int] | None = None,
) -> tuple[list[Finding], int]:
    """Findings of what was seen, one for each operation and line, the dearest first, and how many waits no
    line of the project is on the way of. `rules` has the rules' names by code, `instructions` what lines take
    in a call, as far as that is known."""
    found: defaultdict[tuple[str, int, str], Counter[Sync]] = defaultdict(Counter)
    elsewhere = 0
    for sync, number in times.items():
        place = next((frame for frame in sync.frames if rel(frame.path) is not None), None)
        if not sync.waits and (place is None or place != sync.frames[0]):
            continue  # what a library does at every call, its user cannot change
        if place is None:
            elsewhere += number
        else:
            found[place.path, place.line, _code(sync, place)][sync] += number
    taken = instructions or {}
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
        )
        for (path, line, code), seen in dearest
    ], elsewhere


def _order(seen: Counter[Sync], instructions: int | None) -> tuple[bool, int]:
    """What orders findings, the dearest first: a wait is dearer than any Python code."""
    waits = any(sync.waits for sync in seen)
    return not waits, -seen.total() * (1 if waits else instructions or _USUAL)


def more(waits: int) -> str:
    """``3 more waits``."""
    return f"{waits} more {'wait' if waits == 1 else 'waits'}"


def _code(sync: Sync, place: Frame) -> str:
    """The code of the rule that tells of such a line when it reads it: there is one for each kind of test."""
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
) -> Finding:
    (sync, _), *_ = seen.most_common(1)
    named = dict.fromkeys(other.operation for other, _ in seen.most_common())
    own = [frame for frame in sync.frames if rel(frame.path) is not None]
    way = tuple(dict.fromkeys(frame.function for frame in reversed(own)))
    source = _line(path, line)
    start = len(source) - len(source.lstrip()) + 1
    end = max(len(source.rstrip()) + 1, start)
    return Finding(
        code,
        rule,
        rel(path) or path,
        Span(line, start, line, end),
        "" if own[0].function == "<module>" else own[0].function,
        _message(sync, list(named), seen.total(), own[0], instructions),
        hot=Hot(way[0], way, "seen running"),
        source=source.strip(),
    )


_OF_COMPILER = {
    BREAKS: "the graph that `{what}` makes breaks here, {often}: {why}",
    AGAIN: "`{what}` was compiled {often} again: {why}",
    GUARDS: "compiled code checks what `{what}` reads before every call: {why}",
}


def _message(
    sync: Sync, operations: Sequence[str], times: int, place: Frame, instructions: int | None
) -> str:
    often = "once" if times == 1 else f"{times} times"
    what = " and ".join(f"`{name}`" for name in operations)
    said = _OF_COMPILER.get(sync.code)
    if said is not None:
        return said.format(what=sync.operation, often=often, why=sync.why)
    if not sync.waits:
        taken = (
            f" ({instructions:,} instructions a call on this line)"
            if (instructions or 0) >= _WORTH
            else ""
        )
        return f"{what} ran {often}{taken}: {sync.why}"
    inner = sync.frames[0]
    where = "" if inner == place else f", in {_tail(inner.path)}:{inner.line}"
    return f"{what} made the host wait {often}{where}: {sync.why}"


def _tail(path: str) -> str:
    """The end of a path of somebody else's package."""
    head, found, tail = path.rpartition("site-packages/")
    return tail if found else Path(head + tail).name


def _line(path: str, line: int) -> str:
    import linecache

    return linecache.getline(path, line).rstrip("\n")
