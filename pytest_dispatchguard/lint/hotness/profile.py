"""Applies a recorded profile to the current project: which calls were seen, how often, and with what.
Functions that have changed since the recording are ignored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pytest_dispatchguard.lint.callgraph.calls import Edge
from pytest_dispatchguard.lint.facts import FileFacts
from pytest_dispatchguard.lint.syntax.chunks import Lines
from pytest_dispatchguard.profile import Profile, Seen, digest
from pytest_dispatchguard.project_folder import PROFILE

_STEPS = 12
"""How many nested calls to follow from a root."""
_LEAST = 1e-4
"""Calls that happen less often than this per call of the root are not followed."""
_OFTEN, _ENOUGH = 0.5, 3
"""A call that runs in at least half of the calls of its function, seen this many times, is neither a
first-time path nor an error path."""


@dataclass(slots=True)
class Observed:
    """What was recorded about the functions of a project, by function id (see `project`)."""

    seen: dict[str, Seen] = field(default_factory=dict)
    callees: dict[str, dict[str, float]] = field(default_factory=dict)
    """For each function, what it called, and how often per call of its own."""
    stale: frozenset[str] = frozenset()
    """Functions that have changed since they were recorded."""
    files: frozenset[str] = frozenset()
    """Modules in which anything ran."""
    note: str = ""
    """A note about the profile for the report; empty if there is none."""
    _memo: dict[str, dict[str, float]] = field(default_factory=dict)

    def per_call(self, root: str, function_id: str) -> float | None:
        """How often a function runs per call of a root. None if that is unknown: the root did not run, or
        the function has changed since the recording."""
        if not self.runs(root) or function_id in self.stale:
            return None
        if function_id not in self.seen and function_id.partition(":")[0] not in self.files:
            return None
        return round(self._from(root).get(function_id, 0.0), 3)

    def runs(self, function_id: str) -> bool:
        """Whether the function ran in the recording, and has not changed since."""
        known = self.seen.get(function_id)
        return known is not None and known.calls > 0

    def often(self, source: str, target: str) -> bool:
        """Whether a function was seen to call another one regularly."""
        known = self.seen.get(source)
        return (
            known is not None
            and known.calls >= _ENOUGH
            and self.callees.get(source, {}).get(target, 0.0) >= _OFTEN
        )

    def _from(self, root: str) -> dict[str, float]:
        known = self._memo.get(root)
        if known is not None:
            return known
        total = {root: 1.0}
        here = {root: 1.0}
        for _ in range(_STEPS):
            following: dict[str, float] = {}
            for source, times in here.items():
                for target, each in self.callees.get(source, {}).items():
                    if target != root and times * each > _LEAST:
                        following[target] = following.get(target, 0.0) + times * each
            if not following:
                break
            for target, times in following.items():
                total[target] = total.get(target, 0.0) + times
            here = following
        self._memo[root] = total
        return total


def observed(
    profile: Profile,
    facts: Mapping[str, FileFacts],
    module_of: Mapping[str, str],
    text_of: Callable[[str], str | None],
) -> Observed:
    """Match a profile with the project: the files' facts and modules by path, and their texts."""
    by_file: dict[str, dict[str, Seen]] = {}
    for (path, name), seen in profile.functions.items():
        by_file.setdefault(path, {})[name] = seen
    found: dict[str, Seen] = {}
    stale: set[str] = set()
    for path, functions in by_file.items():
        text = text_of(path) if path in facts else None
        if text is None:
            stale.update(f"{path}:{name}" for name in functions)
            continue
        now = _digests(text, facts[path])
        for name, seen in functions.items():
            function_id = f"{module_of[path]}:{name}"
            if seen.digest in now.get(name, ()):
                found[function_id] = seen
            else:
                stale.add(function_id)
    callees = {}
    for function_id, seen in found.items():
        named = {
            f"{module_of[path]}:{name}": times / seen.calls
            for (path, name), times in seen.callees.items()
            if seen.calls and path in module_of
        }
        callees[function_id] = {target: each for target, each in named.items() if target in found}
    files = frozenset(function_id.partition(":")[0] for function_id in found)
    return Observed(found, callees, frozenset(stale), files, _note(len(stale), len(found)))


def _note(stale: int, found: int) -> str:
    if not stale:
        return ""
    return (
        f"{PROFILE.as_posix()}: {stale} of {stale + found} recorded functions have changed since, so "
        "their recordings are ignored: record again with `pytest --overhead-record`"
    )


def _digests(text: str, facts: FileFacts) -> dict[str, set[str]]:
    """The digests of the functions of a file, by name. A property has up to three functions of one name."""
    lines = Lines(text)
    found: dict[str, set[str]] = {}
    for fact in facts.functions:
        first = lines.line_of(lines.offset(fact.start_byte))
        written = [lines.line(number) for number in range(first, fact.end_line + 1)]
        found.setdefault(fact.name, set()).add(digest(written))
    return found


def with_seen(edges: Iterable[Edge], source: str, known: Observed) -> tuple[Edge, ...]:
    """What a function may run according to its source, adjusted to the calls that were recorded."""
    seen = known.callees.get(source)
    if not seen:
        return tuple(edges)
    found = {edge.target: edge for edge in edges}
    for target, each in seen.items():
        edge = found.get(target, Edge(target, loop=False))
        often = known.often(source, target)
        # Which of several definitions runs, and whether any does, is now known.
        found[target] = edge._replace(
            loop=edge.loop or each > 1.5, direct=True, spread=False, often=often
        )
    found.pop(source, None)
    return tuple(found.values())


def kinds_of(seen: Seen) -> dict[str, list[str]]:
    """For each parameter, the kinds of values it was recorded with."""
    return {name: sorted(kinds) for name, kinds in seen.kinds.items() if kinds}
