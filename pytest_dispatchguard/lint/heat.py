"""Heat: from the facts of the project to the functions that run once per op, call or step, each
with the shortest path from a root that reaches it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pytest_dispatchguard.lint.briefs import briefs as briefs
from pytest_dispatchguard.lint.calls import Edge, edges
from pytest_dispatchguard.lint.cold import Coldness, is_cold, named_cold
from pytest_dispatchguard.lint.facts import HotFact
from pytest_dispatchguard.lint.libraries import Known
from pytest_dispatchguard.lint.patterns import patterns
from pytest_dispatchguard.lint.project import Project, dotted_id
from pytest_dispatchguard.lint.roots import find_roots, named_roots

_LONGEST_PATH = 10
"""Functions on the way from a root. Every step may be a wrong guess of what is called; so many of them
prove nothing."""


class HotFunction(NamedTuple):
    """One line of ``dispatchguard hot``."""

    path: str
    function: str
    line: int
    hot: HotFact


@dataclass(frozen=True, slots=True)
class Heat:
    """Which functions of the project are hot, by id ``module:qualified.name``."""

    hot: Mapping[str, HotFact]
    functions: tuple[HotFunction, ...]
    """The same for people, sorted by path and line."""
    edges: Mapping[str, tuple[Edge, ...]]
    """What each hot function may run."""


def solve(
    project: Project,
    hot_roots: Sequence[str] = (),
    cold: Sequence[str] = (),
    library_roots: Mapping[str, Iterable[str]] | None = None,
) -> Heat:
    """Which functions are hot, and why. `hot_roots` and `cold` are patterns of the configuration:
    dotted names of functions or classes, globs, ``@decorator``; `library_roots` adds library
    classes and their hot methods."""
    extra = {base: Known(frozenset(methods)) for base, methods in (library_roots or {}).items()}
    named = named_roots(project, patterns(hot_roots))
    surely = frozenset(target for target, root in named.items() if root.surely)
    coldness = Coldness(project, patterns(cold), surely)
    roots = find_roots(project, named, extra, coldness)
    loops = frozenset(root.target for root in roots if root.only_loops)
    hot: dict[str, HotFact] = {}
    ways: dict[str, tuple[Edge, ...]] = {}
    for only_loops in (False, True):
        frontier = []
        for root in roots:
            if root.only_loops is not only_loops or root.target in hot:
                continue
            if root.surely:
                if named_cold(coldness, root.target):
                    continue
            elif is_cold(coldness, root.target):
                continue
            name = dotted_id(root.target)
            hot[root.target] = HotFact(name, [name], root.reason, False, root.per, root.only_loops)
            frontier.append(root.target)
        _spread(project, coldness, frontier, loops, hot, ways)
    functions = [
        HotFunction(project.modules[module], name, definition.line, fact)
        for function_id, fact in hot.items()
        for module, _, name in [function_id.partition(":")]
        for definition in project.functions[function_id]
    ]
    functions.sort(key=lambda f: (f.path, f.line, f.function))
    return Heat(hot, tuple(functions), ways)


def _spread(
    project: Project,
    coldness: Coldness,
    frontier: list[str],
    loops: frozenset[str],
    hot: dict[str, HotFact],
    ways: dict[str, tuple[Edge, ...]],
) -> None:
    """Breadth first, each level in the order of names, so that every function gets its shortest path."""
    frontier = sorted(frontier)
    while frontier:
        following: list[str] = []
        for source in frontier:
            origin = hot[source]
            if len(origin.path) >= _LONGEST_PATH:
                continue
            ways[source] = tuple(edges(project, source))
            for edge in ways[source]:
                target = edge.target
                # A whole training or sampling run is one however it is started.
                if target in hot or target in loops or (origin.only_loops and not edge.loop):
                    continue
                if is_cold(coldness, target):
                    continue
                hot[target] = HotFact(
                    origin.root,
                    [*origin.path, dotted_id(target)],
                    origin.reason,
                    origin.loop or (edge.loop and not origin.only_loops),
                    origin.per,
                )
                following.append(target)
        frontier = sorted(following)
