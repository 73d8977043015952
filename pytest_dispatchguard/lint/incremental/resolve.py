"""Recomputes what is hot after function bodies changed, starting from the last solution: visits only what
the changes affect, and loads files only when needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import NamedTuple

from pytest_dispatchguard.lint.callgraph.arguments import (
    Arguments,
    Given,
    forms,
    ruled_out,
    rules_out,
)
from pytest_dispatchguard.lint.callgraph.calls import Edge, edges
from pytest_dispatchguard.lint.facts import CPU, FunctionFact, HotFact
from pytest_dispatchguard.lint.hotness.reachability import (
    Before,
    ReachContext,
    Reached,
    update_reachable,
)
from pytest_dispatchguard.lint.incremental.hot_paths import Known, Trail

Bodies = Mapping[str, Sequence[FunctionFact]]
"""Functions whose bodies changed: the old facts, by function id."""


class Resolved(NamedTuple):
    """What differs from before."""

    trails: Mapping[str, Trail | None]
    """The new trails of functions; None for functions that no path reaches any more."""
    callers: Mapping[str, set[str]]
    """The functions that may call each one."""
    told: frozenset[str]
    """The functions that became hot or cold, are hot for another reason, or receive other arguments."""


def resolve_changed(
    context: ReachContext, known: Known, bodies: Bodies, takes: AbstractSet[str] = frozenset()
) -> Resolved | None:
    """What is hot after these bodies changed (the project has the new ones) and the parameters of these
    functions changed. None if that needs a full solve. There must be no recorded profile."""
    work = _Work(context, known, bodies, takes)
    work.spread()
    return work.result() if work.is_on_cpu_as_before() else None


class _Work:
    """The steps of `solve`, each limited to what changed."""

    def __init__(
        self, context: ReachContext, known: Known, bodies: Bodies, takes: AbstractSet[str]
    ) -> None:
        self.context, self.known, self.bodies, self.takes = context, known, bodies, takes
        self.project = context.project
        self.ways: dict[str, Sequence[Edge]] = {}
        """Of functions whose bodies changed, and of functions reached for the first time."""
        self.runs: dict[str, Sequence[Edge]] = {}
        self.more: dict[str, set[str]] = {}
        """The functions that these may call, with their callers."""
        self.first: Mapping[str, Reached | None] = {}
        self.given: dict[str, Given] = {}
        self.then: Mapping[str, Reached | None] = {}
        self.arguments = Arguments(self.project, self.fact, self.calling)

    # -- before the change ---------------------------------------------------------------------------------

    def ways_before(self, function_id: str) -> Sequence[Edge]:
        """What a function was able to run."""
        trail = self.known.of(function_id)
        return () if trail is None else trail.ways

    def runs_before(self, function_id: str) -> Sequence[Edge]:
        """What of that remained after its arguments."""
        trail = self.known.of(function_id)
        return () if trail is None else trail.runs

    def first_before(self, function_id: str) -> Reached | None:
        """How it became hot when all edges counted."""
        trail = self.known.of(function_id)
        return None if trail is None else trail.first

    def then_before(self, function_id: str) -> Reached | None:
        """How it was hot."""
        trail = self.known.of(function_id)
        return None if trail is None else trail.then

    def given_before(self, function_id: str) -> Given:
        """The arguments that hot code passed to it."""
        trail = self.known.of(function_id)
        return {} if trail is None else trail.given

    # -- after the change ----------------------------------------------------------------------------------

    def ways_now(self, function_id: str) -> Sequence[Edge]:
        """What a function may run."""
        found = self.ways.get(function_id)
        if found is not None:
            return found
        trail = self.known.of(function_id)
        if trail is not None and function_id not in self.bodies:
            return trail.ways
        found = tuple(edges(self.project, function_id))
        self.ways[function_id] = found
        for edge in found:
            self.more.setdefault(edge.target, set()).add(function_id)
        return found

    def runs_now(self, function_id: str) -> Sequence[Edge]:
        """What of that remains after its arguments."""
        found = self.runs.get(function_id)
        if found is None:
            trail = self.known.of(function_id)
            return self.ways_now(function_id) if trail is None else trail.runs
        return found

    def first_now(self, function_id: str) -> Reached | None:
        """How it becomes hot when all edges count."""
        if function_id in self.first:
            return self.first[function_id]
        return self.first_before(function_id)

    def then_now(self, function_id: str) -> Reached | None:
        """How it is hot."""
        return self.then[function_id] if function_id in self.then else self.then_before(function_id)

    def callers(self, function_id: str) -> set[str]:
        """All functions that may call it, now or before."""
        return self.known.callers(function_id) | self.more.get(function_id, set())

    def fact(self, function_id: str) -> HotFact | None:
        """Why it is hot when all edges count."""
        reached = self.first_now(function_id)
        return None if reached is None else reached.fact

    def calling(self, function_id: str) -> list[str]:
        """The functions that may call it when all edges count."""
        callers = (s for s in self.callers(function_id) if self.first_now(s) is not None)
        return [source for source in callers if function_id in _targets(self.ways_now(source))]

    # -- step by step ------------------------------------------------------------------------------

    def spread(self) -> None:
        """Find what is hot when all edges count, which arguments hot code then passes, and what is hot
        given these."""
        changed = sorted(self.bodies)
        before = Before(self.first_before, self.ways_before)
        self.first = update_reachable(self.context, before, self.ways_now, self.callers, changed)
        walked = {f for f in self.first if _counts(self.first[f]) != _counts(self.first_before(f))}
        self.find_given(walked)
        for function_id in {*self.bodies, *walked, *self.given}:
            runs = self.runs_given(function_id)
            if self.known.of(function_id) is None or runs != self.runs_before(function_id):
                self.runs[function_id] = runs
        before = Before(self.then_before, self.runs_before)
        self.then = update_reachable(
            self.context, before, self.runs_now, self.callers, sorted(self.runs)
        )

    def find_given(self, walked: set[str]) -> None:
        """Find the arguments that hot code passes wherever they may have changed: `walked` are the
        functions that became hot or cold."""
        anew = walked | self.takes
        for source in {*self.bodies, *walked}:
            was = set() if self.first_before(source) is None else _targets(self.ways_before(source))
            now = set() if self.first_now(source) is None else _targets(self.ways_now(source))
            anew |= was ^ now
            if source in walked:
                anew |= now  # calls that only users make count for less
            anew.update(target for target in now & was if self.gives_otherwise(source, target))
        looked: set[str] = set()
        while anew:
            function_id = anew.pop()
            looked.add(function_id)
            hot = self.first_now(function_id) is not None
            given = self.arguments.of(function_id) if hot else {}
            if given != self.given_before(function_id):
                self.given[function_id] = given
            # A function that receives nothing in particular may still pass on something that does.
            anew |= self.handed_on(function_id) - looked

    def gives_otherwise(self, source: str, target: str) -> bool:
        """Whether a function passes other arguments to another one than before."""
        if source not in self.bodies:
            return False
        was = forms(self.project, self.bodies[source], target)
        now = self.arguments.forms(source, target)
        return (was and set(was)) != (now and set(now))

    def handed_on(self, function_id: str) -> set[str]:
        """The functions to which one passes on its own arguments, if these may be something in particular."""
        reached = self.first_now(function_id) or self.first_before(function_id)
        facts = self.project.functions[function_id]
        if reached is None or len(reached.fact.path) == 1 or len(facts) > 1:
            return set()
        words = {"="} if function_id in self.takes else {f"={name}" for name in facts[0].defaults}
        return {
            target
            for target in (_targets(self.ways_now(function_id)) if words else ())
            for form in self.arguments.forms(function_id, target) or ()
            if any(word in form for word in words)
        }

    def runs_given(self, function_id: str) -> Sequence[Edge]:
        """What a function may run, given its arguments."""
        given = self.given.get(function_id, self.given_before(function_id))
        if not given or not rules_out(self.project.functions[function_id], given):
            return self.ways_now(function_id)
        return tuple(edges(self.project, function_id, partial(ruled_out, given=given)))

    def is_on_cpu_as_before(self) -> bool:
        """Whether hot code passes CPU tensors exactly where it did before."""
        on_cpu = _OnCpu(self.known)
        arguments = Arguments(self.project, self.fact_then, self.running)
        touched = set(self.takes)
        flipped = {f for f in self.then if _counts(self.then[f]) != _counts(self.then_before(f))}
        touched |= flipped
        for source in flipped:
            touched |= _targets(self.runs_now(source)) if self.is_walked(source) else set()
        more: dict[str, set[str]] = {}
        for source in {*self.bodies, *self.first, *self.then, *self.runs}:
            was = set() if self.known.of(source) is None else _targets(self.runs_before(source))
            now = _targets(self.runs_now(source)) if self.is_walked(source) else set()
            touched |= was - now
            touched.update(target for target in now & was if self.gives_otherwise(source, target))
            for target in now - was:
                more.setdefault(target, set()).add(source)
        for target, sources in more.items():
            given = [(s, form) for s in sources for form in arguments.forms(s, target) or ()]
            if on_cpu.of(target) or any(on_cpu.perhaps(source, form) for source, form in given):
                touched.add(target)
        return not any(
            on_cpu.of(target)
            or (self.then_now(target) is not None and arguments.is_on_cpu(target, on_cpu))
            for target in touched
        )

    def fact_then(self, function_id: str) -> HotFact | None:
        """Why it is hot."""
        reached = self.then_now(function_id)
        return None if reached is None else reached.fact

    def running(self, function_id: str) -> list[str]:
        """The functions that run it, given their arguments."""
        callers = filter(self.is_walked, self.callers(function_id))
        return [source for source in callers if function_id in _targets(self.runs_now(source))]

    def is_walked(self, function_id: str) -> bool:
        """Whether paths reached a function and were followed further."""
        return self.first_now(function_id) is not None or self.then_now(function_id) is not None

    def result(self) -> Resolved:
        """The result."""
        trails: dict[str, Trail | None] = {}
        callers: dict[str, set[str]] = {}
        told: set[str] = set()
        for function_id in {*self.bodies, *self.first, *self.then, *self.given, *self.runs}:
            before, now = self.known.of(function_id), self.trail(function_id)
            if now == before:
                continue
            trails[function_id] = now
            was, is_ = (set() if t is None else _targets(t.ways) for t in (before, now))
            for target in was ^ is_:
                there = callers.setdefault(target, set(self.known.callers(target)))
                (there.add if target in is_ else there.discard)(function_id)
            if _told(before) != _told(now):
                told.add(function_id)
        return Resolved(trails, callers, frozenset(told))

    def trail(self, function_id: str) -> Trail | None:
        """The trail of a function."""
        if not self.is_walked(function_id):
            return None
        before = self.known.of(function_id)
        return Trail(
            self.ways_now(function_id),
            self.runs_now(function_id),
            self.given.get(function_id, self.given_before(function_id)),
            [] if before is None else before.on_cpu,
            self.first_now(function_id),
            self.then_now(function_id),
        )


class _OnCpu:
    """The parameters to which hot code passed CPU tensors, by function and name."""

    def __init__(self, known: Known) -> None:
        self._known = known

    def of(self, function_id: str) -> Sequence[str]:
        """The parameters of one function."""
        trail = self._known.of(function_id)
        return () if trail is None else trail.on_cpu

    def __contains__(self, key: object) -> bool:
        assert isinstance(key, tuple)
        function_id, name = key
        return name in self.of(function_id)

    def perhaps(self, source: str, form: str) -> bool:
        """Whether a function passes, in that form, something that may be on the CPU."""
        return CPU in form or any(name in form for name in self.of(source))


def _counts(reached: Reached | None) -> tuple[bool, bool]:
    """Whether a function is hot, and whether only because users of the library call it."""
    return reached is not None, reached is not None and reached.fact.users


def _targets(ways: Iterable[Edge]) -> set[str]:
    return {edge.target for edge in ways}


def _told(trail: Trail | None) -> object:
    """The part of a trail that briefs depend on."""
    hot = None if trail is None else trail.then
    return hot and trail and (hot.fact, trail.given)
