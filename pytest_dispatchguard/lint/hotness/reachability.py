"""Reachability: from the entry points along the call graph, breadth first. Also updates a known result
when some functions may run something else, by visiting only what that affects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from pytest_dispatchguard.lint.callgraph.calls import Edge
from pytest_dispatchguard.lint.callgraph.class_hierarchy import related
from pytest_dispatchguard.lint.callgraph.project import Project, class_of, dotted_id
from pytest_dispatchguard.lint.facts import HotFact
from pytest_dispatchguard.lint.hotness.cold import (
    Coldness,
    cold_unless_root,
    in_main,
    is_cold,
    named_cold,
)
from pytest_dispatchguard.lint.hotness.public_api import sets_up, why_offered
from pytest_dispatchguard.lint.hotness.roots import Root

_LONGEST_PATH = 10
"""The longest path from a root, in functions: longer ones prove nothing."""
_LONGEST_OFFER = 5
"""The same, if only users of the library call the root."""
_OFFERED = 4
"""The turn of functions that only users of the library call."""
_LONGEST_GUESS = 6
"""The same, if the type of a receiver on the path had to be guessed, which may be wrong."""


class Arrival(NamedTuple):
    """A hot function, and one path that reaches it."""

    target: str
    fact: HotFact
    direct: bool
    """Whether no receiver type on the path had to be guessed."""
    family: str
    """The class of the root."""
    turn: int
    """When its root is processed; see `turn_of`."""


class Reached(NamedTuple):
    """A hot function."""

    fact: HotFact
    arrivals: Sequence[Arrival]
    """The paths that were followed further from it, in order."""


class ReachContext(NamedTuple):
    """What reachability depends on beside the edges of the call graph."""

    project: Project
    coldness: Coldness
    loops: frozenset[str]
    """The roots of which only the loops are hot."""

    def offer(self, function_id: str) -> Arrival | None:
        """The path by which users of the library call a function, or what a decorator says does; None if they
        do not."""
        reason = why_offered(self.project, function_id)
        if not reason or is_cold(self.coldness, function_id) or cold_unless_root(function_id):
            return None
        name = dotted_id(function_id)
        fact = HotFact(name, [name], reason, users=True)
        return Arrival(function_id, fact, True, class_of(self.project, function_id), _OFFERED)


Ways = Callable[[str], Sequence[Edge]]
"""Returns what a function may run."""


def turn_of(fact: HotFact) -> int:
    """When a root is processed. A function that runs per call counts as such, even if a root that runs
    per step is closer."""
    return _OFFERED * fact.users + 2 * fact.only_loops + (fact.per == "step")


def reachable(context: ReachContext, roots: Sequence[Root], ways: Ways) -> dict[str, Reached]:
    """The functions that the roots reach."""
    found: dict[str, Reached] = {}
    seen: dict[str, tuple[bool, bool]] = {}
    for only_loops in (False, True):
        begun = []
        for root in roots:
            target = root.target
            if root.only_loops is not only_loops or target in found:
                continue
            if root.surely:
                if named_cold(context.coldness, target):
                    continue
            elif is_cold(context.coldness, target) or in_main(target):
                continue
            name = dotted_id(target)
            fact = HotFact(name, [name], root.reason, False, root.per, root.only_loops)
            found[target] = Reached(fact, [])
            family = class_of(context.project, target)
            begun.append(Arrival(target, fact, True, family, turn_of(fact)))
        for turn in sorted({arrival.turn for arrival in begun}):
            _spread(context, [a for a in begun if a.turn == turn], ways, found, seen)
    offers = [offer for f in context.project.functions if (offer := context.offer(f)) is not None]
    for offer in offers:
        if offer.target not in found:
            found[offer.target] = Reached(offer.fact, [])
    _spread(context, offers, ways, found, seen)
    return found


def _spread(
    context: ReachContext,
    frontier: list[Arrival],
    ways: Ways,
    found: dict[str, Reached],
    seen: dict[str, tuple[bool, bool]],
) -> None:
    """Breadth first, each level sorted by name, so that every function gets its shortest path.

    A function may be visited again: a longer path may lead on where a shorter one could not (to methods
    overridden outside the root's family, or after too many guesses).
    """
    while frontier:
        following: list[Arrival] = []
        for arrival in sorted(frontier, key=_order):
            source = arrival.target
            before = seen.get(source, _NOTHING)
            if before == _ALL:
                continue
            home = _at_home(context, arrival)
            arrivals = found[source].arrivals
            if arrivals and _covers(before, home, arrival):
                continue
            assert isinstance(arrivals, list)
            arrivals.append(arrival)
            seen[source] = (before[0] or home, before[1] or arrival.direct)
            for edge in ways(source):
                target = edge.target
                known = found.get(target)
                if known is None and _stays_cold(context.coldness, edge):
                    continue
                if known is not None and (
                    len(known.fact.path) == 1  # a root starts its own paths
                    or seen.get(target) == _ALL  # another path leads to nothing new
                ):
                    continue
                next_ = _onward(context, arrival, home, edge)
                if next_ is not None:
                    if known is None:
                        found[target] = Reached(next_.fact, [])
                    following.append(next_)
        frontier = following


_NOTHING, _ALL = (False, False), (True, True)


def _order(arrival: Arrival) -> tuple[str, list[str]]:
    return arrival.target, arrival.fact.path


def _covers(seen: tuple[bool, bool], home: bool, arrival: Arrival) -> bool:
    """Whether earlier paths through a function already lead to everything that this path would lead to;
    `home` is the result of `_at_home`."""
    return seen[0] >= home and seen[1] >= arrival.direct


def _at_home(context: ReachContext, arrival: Arrival) -> bool:
    """Whether a path has reached a function of the class family in which it began."""
    owner = class_of(context.project, arrival.target)
    return bool(owner and arrival.family) and related(context.project, owner, arrival.family)


def _stays_cold(coldness: Coldness, edge: Edge) -> bool:
    """Whether a function stays cold although hot code may run it: the user or its name says so, unless it
    was recorded to run regularly."""
    if edge.often:
        return named_cold(coldness, edge.target)
    return is_cold(coldness, edge.target) or cold_unless_root(edge.target)


def _onward(context: ReachContext, arrival: Arrival, home: bool, edge: Edge) -> Arrival | None:
    """The path extended by an edge; None if it ends here."""
    _, origin, direct, family, turn = arrival
    # A whole training or sampling loop is one, however it is started.
    if edge.target in context.loops or (origin.only_loops and not edge.loop):
        return None
    if edge.spread and not home:
        return None
    straight = direct and edge.direct
    if origin.users and (len(origin.path) >= _LONGEST_OFFER or sets_up(edge.target)):
        return None
    if len(origin.path) >= (_LONGEST_PATH if straight else _LONGEST_GUESS):
        return None
    fact = HotFact(
        origin.root,
        [*origin.path, dotted_id(edge.target)],
        origin.reason,
        origin.loop or (edge.loop and not origin.only_loops),
        origin.per,
        users=origin.users,
    )
    return Arrival(edge.target, fact, straight, family, turn)


# -- again -----------------------------------------------------------------------------------------


class Before(NamedTuple):
    """What was known before some functions changed what they may run."""

    reached: Callable[[str], Reached | None]
    ways: Ways


_Place = tuple[int, int]
"""When a path reached a function: the turn, and its length in functions."""
_AT_OFFER: _Place = (_OFFERED, 1)


class _Again:
    """Visits, in order, the places where paths may be new or gone. What leads to a place is settled
    before the place itself."""

    def __init__(
        self,
        context: ReachContext,
        before: Before,
        ways: Ways,
        callers: Callable[[str], Iterable[str]],
    ) -> None:
        self.context, self.before, self.ways, self.callers = context, before, ways, callers
        self.now: dict[str, Reached | None] = {}
        self.places: list[tuple[int, int, str]] = []
        self.because: dict[tuple[int, int, str], set[str] | None] = {}
        """For each place, the functions whose outgoing paths changed there; None if an earlier path to
        the function itself changed."""

    def reached(self, function_id: str) -> Reached | None:
        """What is currently known about a function."""
        if function_id in self.now:
            return self.now[function_id]
        return self.before.reached(function_id)

    def mark(self, place: _Place, target: str, source: str | None) -> None:
        """Schedule a place for a visit."""
        key = (*place, target)
        if key not in self.because:
            heappush(self.places, key)
            self.because[key] = set()
        because = self.because[key]
        if source is None:
            self.because[key] = None
        elif because is not None:
            because.add(source)

    def begin(self, source: str) -> None:
        """Schedule what a function led to before and leads to now, if the two differ."""
        was, now = set(self.before.ways(source)), set(self.ways(source))
        different = {edge.target for edge in was ^ now}
        for arrival in _arrivals(self.before.reached(source)):
            for target in different:
                self.mark(_after(arrival), target, source)

    def go(self) -> None:
        """Visit all scheduled places, including those scheduled meanwhile."""
        while self.places:
            key = heappop(self.places)
            self.look(key[:2], key[2], self.because.pop(key))

    def look(self, place: _Place, target: str, because: set[str] | None) -> None:
        """Determine which paths reach a function at one place."""
        reached, known = self.reached(target), self.before.reached(target)
        if reached is not None and len(reached.fact.path) == 1 and not reached.fact.users:
            return  # a root starts its own paths
        here = _arrivals(reached)
        earlier = [a for a in here if _place(a) < place]
        seen = _NOTHING
        for arrival in earlier:
            home = _at_home(self.context, arrival)
            seen = (seen[0] or home, seen[1] or arrival.direct)
        if earlier and because is not None and self.leads_nowhere_new(place, target, because, seen):
            return
        if known is None and not here and _stays_cold(self.context.coldness, Edge(target, False)):
            return
        coming = [] if seen == _ALL else self.coming(place, target)
        fact = None if reached is None else reached.fact
        if coming and not earlier:
            fact = min(coming, key=lambda came: came[:2])[2].fact
        processed: list[Arrival] = []
        for arrival in sorted((a for *_, a in coming), key=_order):
            home = _at_home(self.context, arrival)
            if (earlier or processed) and _covers(seen, home, arrival):
                continue
            processed.append(arrival)
            seen = (seen[0] or home, seen[1] or arrival.direct)
        all_ = [*earlier, *processed, *(a for a in here if _place(a) > place)]
        self.now[target] = Reached(fact, all_) if all_ and fact is not None else None
        if processed == [a for a in _arrivals(known) if _place(a) == place]:
            return
        comes = (a for source in self.callers(target) for a in _arrivals(self.reached(source)))
        for later in (*map(_place, _arrivals(known)), *map(_after, comes)):
            if later > place:
                self.mark(later, target, None)
        if place < _AT_OFFER and self.context.offer(target) is not None:
            self.mark(_AT_OFFER, target, None)
        for edge in self.ways(target):
            self.mark((place[0], place[1] + 1), edge.target, target)

    def leads_nowhere_new(
        self, place: _Place, target: str, because: Iterable[str], seen: tuple[bool, bool]
    ) -> bool:
        """Whether the paths from these functions at one place, old and new, lead to nothing beyond
        earlier paths."""
        for source in because:
            was = self.led(self.before.reached(source), self.before.ways(source), place, target)
            now = self.led(self.reached(source), self.ways(source), place, target)
            for _, arrival in (*was, *now):
                if not _covers(seen, _at_home(self.context, arrival), arrival):
                    return False
        return True

    def coming(self, place: _Place, target: str) -> list[tuple[str, list[str], Arrival]]:
        """All paths that reach a function at one place, with the functions that they come from and how
        they got there."""
        offer = self.context.offer(target) if place == _AT_OFFER else None
        if offer is not None:
            return [("", [], offer)]
        return [
            (source, way, arrival)
            for source in self.callers(target)
            if (reached := self.reached(source)) is not None
            for way, arrival in self.led(reached, self.ways(source), place, target)
        ]

    def led(
        self, source: Reached | None, ways: Iterable[Edge], place: _Place, target: str
    ) -> list[tuple[list[str], Arrival]]:
        """The paths from one function to another at one place."""
        found = []
        for arrival in _arrivals(source):
            if _after(arrival) == place:
                home = _at_home(self.context, arrival)
                for edge in ways:
                    if edge.target == target:
                        next_ = _onward(self.context, arrival, home, edge)
                        if next_ is not None:
                            found.append((arrival.fact.path, next_))
        return found


def _arrivals(reached: Reached | None) -> Sequence[Arrival]:
    return () if reached is None else reached.arrivals


def _place(arrival: Arrival) -> _Place:
    return arrival.turn, len(arrival.fact.path)


def _after(arrival: Arrival) -> _Place:
    return arrival.turn, len(arrival.fact.path) + 1


def update_reachable(
    context: ReachContext,
    before: Before,
    ways: Ways,
    callers: Callable[[str], Iterable[str]],
    changed: Iterable[str],
) -> dict[str, Reached | None]:
    """What is known about functions after the `changed` ones may run something else, if it differs from
    `before`; None for functions that are no longer hot. There must be no recorded profile. `callers`
    returns all possible callers of a function, and may return more."""
    again = _Again(context, before, ways, callers)
    for source in changed:
        again.begin(source)
    again.go()
    return {f: now for f, now in again.now.items() if now != before.reached(f)}
