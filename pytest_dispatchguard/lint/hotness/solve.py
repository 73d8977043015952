"""Hotness: from the facts of the project to the functions that run once per operation, call or step, each
with its shortest path from an entry point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from pytest_dispatchguard.lint.callgraph.arguments import (
    Arguments,
    Given,
    callers,
    ruled_out,
    rules_out,
)
from pytest_dispatchguard.lint.callgraph.calls import Edge, edges, writes
from pytest_dispatchguard.lint.callgraph.project import Project, dotted_id
from pytest_dispatchguard.lint.facts import HotFact
from pytest_dispatchguard.lint.hotness.cold import Coldness
from pytest_dispatchguard.lint.hotness.patterns import patterns
from pytest_dispatchguard.lint.hotness.profile import Observed, with_seen
from pytest_dispatchguard.lint.hotness.reachability import ReachContext, Reached, reachable
from pytest_dispatchguard.lint.hotness.roots import Root, find_roots, named_roots, ran_roots
from pytest_dispatchguard.lint.knowledge.entry_points import Known


class HotFunction(NamedTuple):
    """One line of ``dispatchguard hot``."""

    path: str
    function: str
    line: int
    hot: HotFact


class Origin(NamedTuple):
    """How the hot functions were found: first by assuming that functions may run everything they mention,
    then without the calls that the arguments passed by hot code rule out."""

    roots: Sequence[Root]
    coldness: Coldness
    ways: Mapping[str, tuple[Edge, ...]]
    """What functions may run, whatever their arguments."""
    first: Mapping[str, Reached]
    given: Mapping[str, Given]
    """The arguments that hot code passes, according to `first`."""
    then: Mapping[str, Reached]


@dataclass(frozen=True, slots=True)
class Heat:
    """Which functions of the project are hot, by id ``module:qualified.name``."""

    hot: Mapping[str, HotFact]
    edges: Mapping[str, tuple[Edge, ...]]
    """What each hot function may run."""
    given: Mapping[str, Given]
    """For hot functions, the parameters for which hot code passes only a few literals, with these
    literals."""
    on_cpu: Mapping[str, list[str]]
    """For hot functions, the parameters for which hot code passes only CPU tensors."""
    observed: Observed
    """The recorded profile of the project."""
    origin: Origin = field(compare=False, repr=False)


def solve(
    project: Project,
    hot_roots: Sequence[str] = (),
    cold: Sequence[str] = (),
    library_roots: Mapping[str, Iterable[str]] | None = None,
    observed: Observed | None = None,
    step: Callable[[], object] | None = None,
) -> Heat:
    """Find the hot functions, and why they are hot.

    `hot_roots` and `cold` are patterns of the configuration: dotted names of functions or classes, globs,
    ``@decorator``. `library_roots` adds library classes and their hot methods. `observed` is the recorded
    profile. `step` is called for each function, so that other work can run in between.
    """
    recorded = observed or Observed()
    extra = {base: Known(frozenset(methods)) for base, methods in (library_roots or {}).items()}
    named = named_roots(project, patterns(hot_roots))
    ran = ran_roots(project, recorded)
    surely = {target for target, root in named.items() if root.surely}
    coldness = Coldness(project, patterns(cold), frozenset(surely))
    roots = find_roots(project, named, extra, coldness)
    heat = _heat(project, coldness, roots, recorded, step)
    unexpected = {
        target: root
        for target, root in ran.items()
        if target not in heat.hot or heat.hot[target].users
    }
    if not unexpected:
        return heat
    # They ran, though nothing in the code says that they do.
    coldness = Coldness(project, patterns(cold), frozenset(surely | unexpected.keys()))
    known = {root.target: root for root in roots}
    together = {**unexpected, **known}
    roots = [together[target] for target in sorted(together)]
    return _heat(project, coldness, roots, recorded, step)


def _heat(
    project: Project,
    coldness: Coldness,
    roots: Sequence[Root],
    recorded: Observed,
    step: Callable[[], object] | None,
) -> Heat:
    plain: dict[str, tuple[Edge, ...]] = {}

    def ways(function_id: str) -> tuple[Edge, ...]:
        found = plain.get(function_id)
        if found is None:
            if step is not None:
                step()
            found = plain[function_id] = with_seen(
                edges(project, function_id), function_id, recorded
            )
        return found

    context = ReachContext(project, coldness, loops_of(roots))
    first = then = reachable(context, roots, ways)
    given = _given(project, first, plain)
    runs = dict(plain)
    for function_id, literals in given.items():
        if literals and rules_out(project.functions[function_id], literals):
            left = edges(project, function_id, partial(ruled_out, given=literals))
            runs[function_id] = with_seen(left, function_id, recorded)
    if runs != plain:
        then = reachable(
            context, roots, lambda f: runs[f] if f in runs else runs.setdefault(f, ways(f))
        )
    hot = {function_id: reached.fact for function_id, reached in then.items()}
    calling = callers(hot, runs)
    arguments = Arguments(project, hot.get, lambda f: calling.get(f, ()))
    if recorded.seen:
        _count(hot, recorded)
    return Heat(
        hot,
        runs,
        {function_id: given[function_id] for function_id in hot if given.get(function_id)},
        arguments.on_cpu(calling),
        recorded,
        Origin(roots, coldness, plain, first, given, then),
    )


def loops_of(roots: Iterable[Root]) -> frozenset[str]:
    """The roots of which only the loops are hot."""
    return frozenset(root.target for root in roots if root.only_loops)


def _given(
    project: Project, first: Mapping[str, Reached], ways: Mapping[str, Sequence[Edge]]
) -> dict[str, Given]:
    """The arguments that hot code passes if all edges count."""
    facts = {function_id: reached.fact for function_id, reached in first.items()}
    calling = callers(facts, ways)
    arguments = Arguments(project, facts.get, lambda f: calling.get(f, ()))
    return {function_id: arguments.of(function_id) for function_id in ways}


def listed(project: Project, heat: Heat) -> list[HotFunction]:
    """The hot functions, sorted by path and line for display."""
    functions = [
        HotFunction(project.modules[module], name, definition.line, fact)
        for function_id, fact in heat.hot.items()
        for module, _, name in [function_id.partition(":")]
        for definition in project.functions[function_id]
        if not writes(definition)
    ]
    functions.sort(key=lambda f: (f.path, f.line, f.function))
    return functions


def _count(hot: Mapping[str, HotFact], observed: Observed) -> None:
    """Record how often hot functions were seen to run."""
    by_name = {dotted_id(function_id): function_id for function_id in hot}
    for function_id, fact in hot.items():
        root = by_name.get(fact.root)
        if root is not None:
            fact.seen = observed.per_call(root, function_id)
