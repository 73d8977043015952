"""Heat: from the facts of the project to the functions that run once per op, call or step, each
with the shortest path from a root that reaches it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from pytest_dispatchguard.lint.arguments import Arguments, Given, Table, ruled_out
from pytest_dispatchguard.lint.calls import Edge, edges, writes
from pytest_dispatchguard.lint.cold import Coldness, cold_unless_root, is_cold, named_cold
from pytest_dispatchguard.lint.facts import CallFact, HotFact
from pytest_dispatchguard.lint.libraries import Known
from pytest_dispatchguard.lint.patterns import patterns
from pytest_dispatchguard.lint.profiled import Observed, with_seen
from pytest_dispatchguard.lint.project import Project, akin, class_of, dotted_id
from pytest_dispatchguard.lint.roots import Root, find_roots, named_roots

_LONGEST_PATH = 10
"""Functions on the way from a root: so many steps prove nothing."""
_LONGEST_GUESS = 6
"""The same of a way on which the type of a receiver had to be guessed, which may have gone wrong."""


class HotFunction(NamedTuple):
    """One line of ``dispatchguard hot``."""

    path: str
    function: str
    line: int
    hot: HotFact


class Basis(NamedTuple):
    """What heat was found from. As long as only bodies of functions change, it stays, but for what it has of
    these."""

    roots: Sequence[Root]
    coldness: Coldness
    ways: dict[str, tuple[Edge, ...]]
    """What functions may run whatever they are given."""
    table: Table


@dataclass(frozen=True, slots=True)
class Heat:
    """Which functions of the project are hot, by id ``module:qualified.name``."""

    hot: Mapping[str, HotFact]
    edges: Mapping[str, tuple[Edge, ...]]
    """What each hot function may run."""
    given: Mapping[str, Given]
    """Of hot functions, the parameters that hot code gives few literals, and these."""
    on_cpu: Mapping[str, list[str]]
    """Of hot functions, the parameters that hot code only gives tensors on the CPU."""
    observed: Observed
    """What was recorded of the project."""
    basis: Basis = field(compare=False, repr=False)


RuledOut = Callable[[CallFact], bool]


class Lead(Protocol):
    """Says what a function may run."""

    def __call__(self, function_id: str, ruled_out: RuledOut | None = None) -> tuple[Edge, ...]:
        """Calls that are `ruled_out` lead nowhere."""


class _Arrival(NamedTuple):
    """A hot function and the way that led to it."""

    target: str
    fact: HotFact
    direct: bool
    """Whether no type had to be guessed on the way."""
    family: str
    """The class of the root."""


def solve(
    project: Project,
    hot_roots: Sequence[str] = (),
    cold: Sequence[str] = (),
    library_roots: Mapping[str, Iterable[str]] | None = None,
    observed: Observed | None = None,
    step: Callable[[], object] | None = None,
) -> Heat:
    """Which functions are hot, and why. `hot_roots` and `cold` are patterns of the configuration:
    dotted names of functions or classes, globs, ``@decorator``; `library_roots` adds library
    classes and their hot methods; `observed` is what was recorded of the project; a `step` is taken for each
    function, so that others may go first."""
    recorded = observed or Observed()
    extra = {base: Known(frozenset(methods)) for base, methods in (library_roots or {}).items()}
    named = named_roots(project, patterns(hot_roots))
    surely = frozenset(target for target, root in named.items() if root.surely)
    coldness = Coldness(project, patterns(cold), surely)
    roots = find_roots(project, named, extra, coldness)
    heat = _solved(project, Basis(roots, coldness, {}, Table()), recorded, step)
    if recorded.seen:
        _count(heat.hot, recorded)
    return heat


def solve_again(project: Project, before: Heat, changed: Iterable[str]) -> Heat:
    """Which functions are hot, and why, in a project of which that was known `before` the bodies of the
    `changed` functions became others, and nothing was recorded. Uses up what was known."""
    for function_id in changed:
        before.basis.ways.pop(function_id, None)
        before.basis.table.forms.pop(function_id, None)
    return _solved(project, before.basis, before.observed, None)


def listed(project: Project, heat: Heat) -> list[HotFunction]:
    """The hot functions for people, sorted by path and line."""
    functions = [
        HotFunction(project.modules[module], name, definition.line, fact)
        for function_id, fact in heat.hot.items()
        for module, _, name in [function_id.partition(":")]
        for definition in project.functions[function_id]
        if not writes(definition)
    ]
    functions.sort(key=lambda f: (f.path, f.line, f.function))
    return functions


def _solved(
    project: Project, basis: Basis, recorded: Observed, step: Callable[[], object] | None
) -> Heat:
    """What is hot; of what functions may run, and give each other, the basis may know some already."""
    roots, coldness, plain, table = basis

    def lead(function_id: str, ruled_out: RuledOut | None = None) -> tuple[Edge, ...]:
        known = plain.get(function_id) if ruled_out is None else None
        if known is not None:
            return known
        if step is not None:
            step()
        found = with_seen(edges(project, function_id, ruled_out), function_id, recorded)
        if ruled_out is None:
            plain[function_id] = found
        return found

    ways: dict[str, tuple[Edge, ...]] = {}
    hot = _heated(project, coldness, roots, ways, lead)
    arguments = Arguments(project, hot, ways, table)
    given = {function_id: arguments.of(function_id) for function_id in ways}
    if _rule_out(project, ways, given, lead):
        hot = _heated(project, coldness, roots, ways, lead)
    given = {function_id: given[function_id] for function_id in hot if given.get(function_id)}
    on_cpu = Arguments(project, hot, ways, table).on_cpu()
    return Heat(hot, ways, given, on_cpu, recorded, basis)


def _count(hot: Mapping[str, HotFact], observed: Observed) -> None:
    """Says of hot functions how often they were seen to run."""
    by_name = {dotted_id(function_id): function_id for function_id in hot}
    for function_id, fact in hot.items():
        root = by_name.get(fact.root)
        if root is not None:
            fact.seen = observed.per_call(root, function_id)


def _rule_out(
    project: Project, ways: dict[str, tuple[Edge, ...]], given: Mapping[str, Given], lead: Lead
) -> bool:
    """Takes out of the ways what stands under conditions that the given arguments rule out; whether there is
    any."""
    found = False
    for function_id, literals in given.items():
        if literals and any(
            call.under and ruled_out(call, literals)
            for fact in project.functions[function_id]
            for call in fact.calls
        ):
            ways[function_id] = lead(function_id, partial(ruled_out, given=literals))
            found = True
    return found


def _heated(
    project: Project,
    coldness: Coldness,
    roots: Sequence[Root],
    ways: dict[str, tuple[Edge, ...]],
    lead: Lead,
) -> dict[str, HotFact]:
    """The functions that the roots reach; `ways` holds what each may run, and is added to."""
    loops = frozenset(root.target for root in roots if root.only_loops)
    hot: dict[str, HotFact] = {}
    seen: dict[str, tuple[bool, bool]] = {}
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
            frontier.append(
                _Arrival(root.target, hot[root.target], True, class_of(project, root.target))
            )
        # What runs per call is that, however near a step is that leads to it as well.
        for per in ("call", "step"):
            begun = [arrival for arrival in frontier if arrival.fact.per == per]
            _spread(project, coldness, begun, loops, hot, ways, seen, lead)
    return hot


def _stays_cold(coldness: Coldness, edge: Edge) -> bool:
    """Whether a function is cold though hot code may run it: by the user's word, or by its name, unless it
    was seen to run as a matter of course."""
    if edge.often:
        return named_cold(coldness, edge.target)
    return is_cold(coldness, edge.target) or cold_unless_root(edge.target)


def _spread(
    project: Project,
    coldness: Coldness,
    frontier: list[_Arrival],
    loops: frozenset[str],
    hot: dict[str, HotFact],
    ways: dict[str, tuple[Edge, ...]],
    seen: dict[str, tuple[bool, bool]],
    lead: Lead,
) -> None:
    """Breadth first, each level in the order of names, so that every function gets its shortest path.

    A function may be met again: what a shorter way could not lead on to (overriding methods outside
    the root's family, too many guesses) a longer one may."""
    while frontier:
        following: list[_Arrival] = []
        for arrival in sorted(frontier, key=lambda a: (a.target, a.fact.path)):
            source, origin, direct, family = arrival
            before = seen.get(source)
            if before == (True, True):
                continue
            owner = class_of(project, source)
            at_home = bool(owner and family) and akin(project, owner, family)
            if before is not None and before[0] >= at_home and before[1] >= direct:
                continue
            seen[source] = (
                at_home or bool(before and before[0]),
                direct or bool(before and before[1]),
            )
            if source not in ways:
                ways[source] = lead(source)
            for edge in ways[source]:
                target = edge.target
                # A whole training or sampling run is one however it is started.
                if target in loops or (origin.only_loops and not edge.loop):
                    continue
                if edge.spread and not at_home:
                    continue
                straight = direct and edge.direct
                if len(origin.path) >= (_LONGEST_PATH if straight else _LONGEST_GUESS):
                    continue
                known = hot.get(target)
                if known is not None and len(known.path) == 1:
                    continue  # a root has led on by itself
                if known is None and _stays_cold(coldness, edge):
                    continue
                if known is not None and seen.get(target) == (True, True):
                    continue  # another way leads on to nothing new
                fact = HotFact(
                    origin.root,
                    [*origin.path, dotted_id(target)],
                    origin.reason,
                    origin.loop or (edge.loop and not origin.only_loops),
                    origin.per,
                )
                hot.setdefault(target, fact)
                following.append(_Arrival(target, fact, straight, family))
        frontier = following
