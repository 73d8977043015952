"""How functions became hot, stored file by file in the cache, so that it can be updated when some of them
may run something else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_dispatchguard.lint.callgraph.calls import Edge
from pytest_dispatchguard.lint.facts import HotFact
from pytest_dispatchguard.lint.hotness.reachability import Arrival, Reached

if TYPE_CHECKING:
    from pytest_dispatchguard.lint.callgraph.arguments import Given
    from pytest_dispatchguard.lint.callgraph.project import Project
    from pytest_dispatchguard.lint.hotness.solve import Heat


class Trail(NamedTuple):
    """What was found out about a function that some path reached."""

    ways: Sequence[Edge]
    """What it may run, whatever its arguments."""
    runs: Sequence[Edge]
    """What of that remains after the arguments passed by hot code."""
    given: Given
    """These arguments, as found in the first pass."""
    on_cpu: list[str]
    first: Reached | None
    """How it became hot when all edges counted."""
    then: Reached | None
    """How it is hot in the end; None if it is not."""


@dataclass(slots=True)
class Trails:
    """The trails of the functions of one file, by function id, and for all functions of the file the ids
    of their callers."""

    trails: dict[str, Trail] = field(default_factory=dict)
    callers: dict[str, set[str]] = field(default_factory=dict)


def trails_of(project: Project, heat: Heat) -> dict[str, Trails]:
    """The trails of a solved project, by path. There must be no recorded profile."""
    found: dict[str, Trails] = {}

    def at(function_id: str) -> Trails:
        path = project.modules[function_id.partition(":")[0]]
        return found.setdefault(path, Trails())

    _, _, all_ways, first, given, then = heat.origin
    for source, runs in heat.edges.items():
        ways = all_ways[source]
        at(source).trails[source] = Trail(
            ways,
            runs,
            given.get(source, {}),
            heat.on_cpu.get(source, []),
            first.get(source),
            then.get(source),
        )
        for edge in ways:
            at(edge.target).callers.setdefault(edge.target, set()).add(source)
    return found


# -- as text ---------------------------------------------------------------------------------------


def pack_trails(trails: Trails) -> str:
    """The trails of a file as JSON."""
    rows = [[name, *_packed(trail)] for name, trail in sorted(trails.trails.items())]
    callers = {name: sorted(found) for name, found in sorted(trails.callers.items())}
    return json.dumps([rows, callers], separators=(",", ":"))


def unpack_trails(text: str) -> Trails:
    """The trails of a file from JSON."""
    rows, callers = json.loads(text)
    return Trails(
        {name: _unpacked(name, row) for name, *row in rows},
        {name: set(found) for name, found in callers.items()},
    )


def _packed(trail: Trail) -> Iterator[object]:
    yield _packed_edges(trail.ways)
    yield 0 if trail.runs == trail.ways else _packed_edges(trail.runs)
    yield trail.given
    yield trail.on_cpu
    yield _packed_reached(trail.first)
    yield 0 if trail.then == trail.first else _packed_reached(trail.then)


def _unpacked(name: str, row: Sequence[Any]) -> Trail:
    ways, runs, given, on_cpu, first, then = row
    edges, reached = _edges(ways), _reached(name, first)
    return Trail(
        edges,
        edges if runs == 0 else _edges(runs),
        given,
        on_cpu,
        reached,
        reached if then == 0 else _reached(name, then),
    )


def _packed_edges(edges: Sequence[Edge]) -> list[object]:
    return [[e.target, e.loop + 2 * e.direct + 4 * e.spread] for e in edges]


def _edges(rows: Sequence[tuple[str, int]]) -> tuple[Edge, ...]:
    return tuple(Edge(t, bool(flags & 1), bool(flags & 2), bool(flags & 4)) for t, flags in rows)


def _packed_reached(reached: Reached | None) -> object:
    if reached is None:
        return None
    arrivals = [
        [a.turn, a.fact.loop + 2 * a.direct, a.family, a.fact.reason, a.fact.path]
        for a in reached.arrivals
    ]
    fact = reached.fact
    if fact == reached.arrivals[0].fact:
        return [0, arrivals]
    return [[reached.arrivals[0].turn, fact.loop, fact.reason, fact.path], arrivals]


def _reached(name: str, packed: Any) -> Reached | None:
    if packed is None:
        return None
    own, rows = packed
    arrivals = [
        Arrival(name, _fact(turn, bool(flags & 1), reason, path), bool(flags & 2), family, turn)
        for turn, flags, family, reason, path in rows
    ]
    return Reached(arrivals[0].fact if own == 0 else _fact(*own), arrivals)


def _fact(turn: int, loop: bool, reason: str, path: list[str]) -> HotFact:
    per = "step" if turn & 1 else "call"
    loops = bool(turn & 2) and len(path) == 1
    return HotFact(path[0], path, reason, loop, per, loops, users=bool(turn & 4))


class Known:
    """The trails of a project; each file is loaded on first use."""

    def __init__(self, read: Callable[[str], str | None], modules: Mapping[str, str]) -> None:
        self._read = read
        self._modules = modules
        self._files: dict[str, Trails] = {}

    def file(self, path: str) -> Trails:
        """The trails of one file."""
        if path not in self._files:
            text = self._read(path)
            self._files[path] = Trails() if text is None else unpack_trails(text)
        return self._files[path]

    def of(self, function_id: str) -> Trail | None:
        """The trail of one function; None if no path reached it."""
        path = self._modules[function_id.partition(":")[0]]
        return self.file(path).trails.get(function_id)

    def callers(self, function_id: str) -> set[str]:
        """The functions that may call one."""
        path = self._modules[function_id.partition(":")[0]]
        return self.file(path).callers.get(function_id, set())
