"""Heat: from the facts of the project to the functions that run once per op, call or step, each with the
shortest path from a root that reaches it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pytest_dispatchguard.lint.briefs import briefs as briefs
from pytest_dispatchguard.lint.calls import Edge, edges
from pytest_dispatchguard.lint.facts import HotFact
from pytest_dispatchguard.lint.libraries import Known
from pytest_dispatchguard.lint.project import Project, dotted_id
from pytest_dispatchguard.lint.roots import Cold, find_roots, patterns


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
    """Which functions are hot, and why. `hot_roots` and `cold` are patterns of the configuration: dotted names of
    functions or classes, globs, ``@decorator``; `library_roots` adds library classes and their hot methods."""
    extra = {base: Known(frozenset(methods)) for base, methods in (library_roots or {}).items()}
    is_cold = Cold(project, patterns(cold))
    roots, named = find_roots(project, patterns(hot_roots), extra, is_cold)
    loops = frozenset(root.target for root in roots if root.only_loops)
    hot: dict[str, HotFact] = {}
    ways: dict[str, tuple[Edge, ...]] = {}
    for only_loops in (False, True):
        frontier = []
        for root in roots:
            if root.only_loops is not only_loops or root.target in hot:
                continue
            # Being a root outweighs being cold by name only where the user said so.
            if is_cold(root.target, named, False):
                continue
            name = dotted_id(root.target)
            hot[root.target] = HotFact(name, [name], root.reason, False, root.per, root.only_loops)
            frontier.append(root.target)
        _spread(project, frontier, hot, ways, named, is_cold, loops)
    functions = []
    for function_id, fact in hot.items():
        module, _, name = function_id.partition(":")
        for definition in project.functions[function_id]:
            functions.append(HotFunction(project.modules[module], name, definition.line, fact))
    functions.sort(key=lambda f: (f.path, f.line, f.function))
    return Heat(hot, tuple(functions), ways)


def _spread(
    project: Project,
    frontier: list[str],
    hot: dict[str, HotFact],
    ways: dict[str, tuple[Edge, ...]],
    named: set[str],
    is_cold: Cold,
    loops: frozenset[str],
) -> None:
    """Breadth first, each level in the order of names, so that every function gets its shortest path."""
    frontier = sorted(frontier)
    while frontier:
        following: list[str] = []
        for source in frontier:
            from_ = hot[source]
            ways[source] = tuple(edges(project, source))
            for edge in ways[source]:
                target = edge.target
                if target in hot or (from_.only_loops and not edge.loop):
                    continue
                if target in loops:
                    continue  # a whole training or sampling run, whoever starts it
                if is_cold(target, named, edge.instance):
                    continue
                hot[target] = HotFact(
                    from_.root,
                    [*from_.path, dotted_id(target)],
                    from_.reason,
                    from_.loop or (edge.loop and not from_.only_loops),
                    from_.per,
                )
                following.append(target)
        frontier = sorted(following)
