"""The ways by which functions become hot: from the roots along what each may run, breadth first; and the same
again where some may run something else than before, looking only at what that reaches."""

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
    is_cold,
    named_cold,
)
from pytest_dispatchguard.lint.hotness.public_api import REASON, is_offered, sets_up
from pytest_dispatchguard.lint.hotness.roots import Root

_LONGEST_PATH = 10
"""Functions on the way from a root: so many steps prove nothing."""
_LONGEST_OFFER = 5
"""The same of a way that only users begin."""
_OFFERED = 4
"""The turn of what only users of the library call."""
_LONGEST_GUESS = 6
"""The same of a way on which the type of a receiver had to be guessed, which may have gone wrong."""


class Arrival(NamedTuple):
    """A hot function and a way that led to it."""

    target: str
    fact: HotFact
    direct: bool
    """Whether no type had to be guessed on the way."""
    family: str
    """The class of the root."""
    turn: int
    """When its root has its turn."""


class Reached(NamedTuple):
    """A hot function."""

    fact: HotFact
    arrivals: Sequence[Arrival]
    """Those that led on from it, in order."""


class Grounds(NamedTuple):
    """What decides of ways, whatever functions may run."""

    project: Project
    coldness: Coldness
    loops: frozenset[str]
    """The roots of which only the loops are hot."""

    def offer(self, function_id: str) -> Arrival | None:
        """How users of the library come to a function; None where they do not."""
        if not is_offered(self.project, function_id) or is_cold(self.coldness, function_id):
            return None
        if cold_unless_root(function_id):
            return None
        name = dotted_id(function_id)
        fact = HotFact(name, [name], REASON, users=True)
        return Arrival(function_id, fact, True, class_of(self.project, function_id), _OFFERED)


Ways = Callable[[str], Sequence[Edge]]
"""Gives what a function may run."""


def turn_of(fact: HotFact) -> int:
    """When a root has its turn. What runs per call is that, however near a step is that leads to it as
    well."""
    return _OFFERED * fact.users + 2 * fact.only_loops + (fact.per == "step")


def heated(grounds: Grounds, roots: Sequence[Root], ways: Ways) -> dict[str, Reached]:
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
                if named_cold(grounds.coldness, target):
                    continue
            elif is_cold(grounds.coldness, target):
                continue
            name = dotted_id(target)
            fact = HotFact(name, [name], root.reason, False, root.per, root.only_loops)
            found[target] = Reached(fact, [])
            family = class_of(grounds.project, target)
            begun.append(Arrival(target, fact, True, family, turn_of(fact)))
        for turn in sorted({arrival.turn for arrival in begun}):
            _spread(grounds, [a for a in begun if a.turn == turn], ways, found, seen)
    offers = [offer for f in grounds.project.functions if (offer := grounds.offer(f)) is not None]
    for offer in offers:
        if offer.target not in found:
            found[offer.target] = Reached(offer.fact, [])
    _spread(grounds, offers, ways, found, seen)
    return found


def _spread(
    grounds: Grounds,
    frontier: list[Arrival],
    ways: Ways,
    found: dict[str, Reached],
    seen: dict[str, tuple[bool, bool]],
) -> None:
    """Breadth first, each level in the order of names, so that every function gets its shortest path.

    A function may be met again: what a shorter way could not lead on to (overriding methods outside
    the root's family, too many guesses) a longer one may."""
    while frontier:
        following: list[Arrival] = []
        for arrival in sorted(frontier, key=_order):
            source = arrival.target
            before = seen.get(source, _NOTHING)
            if before == _ALL:
                continue
            home = _at_home(grounds, arrival)
            arrivals = found[source].arrivals
            if arrivals and _covers(before, home, arrival):
                continue
            assert isinstance(arrivals, list)
            arrivals.append(arrival)
            seen[source] = (before[0] or home, before[1] or arrival.direct)
            for edge in ways(source):
                target = edge.target
                known = found.get(target)
                if known is None and _stays_cold(grounds.coldness, edge):
                    continue
                if known is not None and (
                    len(known.fact.path) == 1  # a root has led on by itself
                    or seen.get(target) == _ALL  # another way leads on to nothing new
                ):
                    continue
                next_ = _onward(grounds, arrival, home, edge)
                if next_ is not None:
                    if known is None:
                        found[target] = Reached(next_.fact, [])
                    following.append(next_)
        frontier = following


_NOTHING, _ALL = (False, False), (True, True)


def _order(arrival: Arrival) -> tuple[str, list[str]]:
    return arrival.target, arrival.fact.path


def _covers(seen: tuple[bool, bool], home: bool, arrival: Arrival) -> bool:
    """Whether what led on before leads to all that a way leads on to, and `home` is what it is at."""
    return seen[0] >= home and seen[1] >= arrival.direct


def _at_home(grounds: Grounds, arrival: Arrival) -> bool:
    """Whether a way has led to a function of the family it began in."""
    owner = class_of(grounds.project, arrival.target)
    return bool(owner and arrival.family) and related(grounds.project, owner, arrival.family)


def _stays_cold(coldness: Coldness, edge: Edge) -> bool:
    """Whether a function is cold though hot code may run it: by the user's word, or by its name, unless it
    was seen to run as a matter of course."""
    if edge.often:
        return named_cold(coldness, edge.target)
    return is_cold(coldness, edge.target) or cold_unless_root(edge.target)


def _onward(grounds: Grounds, arrival: Arrival, home: bool, edge: Edge) -> Arrival | None:
    """The way that goes on to what a function may run; None where it ends."""
    _, origin, direct, family, turn = arrival
    # A whole training or sampling run is one however it is started.
    if edge.target in grounds.loops or (origin.only_loops and not edge.loop):
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
    """What was known before some functions came to run something else."""

    reached: Callable[[str], Reached | None]
    ways: Ways


_Place = tuple[int, int]
"""When ways have come to a function: the turn, and how many functions they lead through."""
_AT_OFFER: _Place = (_OFFERED, 1)


class _Again:
    """Goes through the places where ways may come that did not, or no longer come, in order: what led to each
    is settled by then."""

    def __init__(
        self,
        grounds: Grounds,
        before: Before,
        ways: Ways,
        callers: Callable[[str], Iterable[str]],
    ) -> None:
        self.grounds, self.before, self.ways, self.callers = grounds, before, ways, callers
        self.now: dict[str, Reached | None] = {}
        self.places: list[tuple[int, int, str]] = []
        self.because: dict[tuple[int, int, str], set[str] | None] = {}
        """Of places: the functions from which something else comes; None where what came to the function
        earlier is other than it was."""

    def reached(self, function_id: str) -> Reached | None:
        """A function as it is known by now."""
        if function_id in self.now:
            return self.now[function_id]
        return self.before.reached(function_id)

    def mark(self, place: _Place, target: str, source: str | None) -> None:
        """Has a place looked at."""
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
        """Marks what a function led to, and leads to, if one of both is not so."""
        was, now = set(self.before.ways(source)), set(self.ways(source))
        different = {edge.target for edge in was ^ now}
        for arrival in _arrivals(self.before.reached(source)):
            for target in different:
                self.mark(_after(arrival), target, source)

    def go(self) -> None:
        """Looks at all places that are marked, and at those this marks."""
        while self.places:
            key = heappop(self.places)
            self.look(key[:2], key[2], self.because.pop(key))

    def look(self, place: _Place, target: str, because: set[str] | None) -> None:
        """Finds out which ways have come to a function at one place."""
        reached, known = self.reached(target), self.before.reached(target)
        if reached is not None and len(reached.fact.path) == 1 and not reached.fact.users:
            return  # a root leads on by itself
        here = _arrivals(reached)
        earlier = [a for a in here if _place(a) < place]
        seen = _NOTHING
        for arrival in earlier:
            home = _at_home(self.grounds, arrival)
            seen = (seen[0] or home, seen[1] or arrival.direct)
        if earlier and because is not None and self.is_nothing_new(place, target, because, seen):
            return
        if known is None and not here and _stays_cold(self.grounds.coldness, Edge(target, False)):
            return
        coming = [] if seen == _ALL else self.coming(place, target)
        fact = None if reached is None else reached.fact
        if coming and not earlier:
            fact = min(coming, key=lambda came: came[:2])[2].fact
        processed: list[Arrival] = []
        for arrival in sorted((a for *_, a in coming), key=_order):
            home = _at_home(self.grounds, arrival)
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
        if place < _AT_OFFER and self.grounds.offer(target) is not None:
            self.mark(_AT_OFFER, target, None)
        for edge in self.ways(target):
            self.mark((place[0], place[1] + 1), edge.target, target)

    def is_nothing_new(
        self, place: _Place, target: str, because: Iterable[str], seen: tuple[bool, bool]
    ) -> bool:
        """Whether what comes from these functions at one place, and what came, leads to no more than what
        came earlier."""
        for source in because:
            was = self.led(self.before.reached(source), self.before.ways(source), place, target)
            now = self.led(self.reached(source), self.ways(source), place, target)
            for _, arrival in (*was, *now):
                if not _covers(seen, _at_home(self.grounds, arrival), arrival):
                    return False
        return True

    def coming(self, place: _Place, target: str) -> list[tuple[str, list[str], Arrival]]:
        """All ways that come to a function at one place, with the functions that they come from and how they
        came there."""
        offer = self.grounds.offer(target) if place == _AT_OFFER else None
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
        """The ways from one function to another at one place."""
        found = []
        for arrival in _arrivals(source):
            if _after(arrival) == place:
                home = _at_home(self.grounds, arrival)
                for edge in ways:
                    if edge.target == target:
                        next_ = _onward(self.grounds, arrival, home, edge)
                        if next_ is not None:
                            found.append((arrival.fact.path, next_))
        return found


def _arrivals(reached: Reached | None) -> Sequence[Arrival]:
    return () if reached is None else reached.arrivals


def _place(arrival: Arrival) -> _Place:
    return arrival.turn, len(arrival.fact.path)


def _after(arrival: Arrival) -> _Place:
    return arrival.turn, len(arrival.fact.path) + 1


def heated_again(
    grounds: Grounds,
    before: Before,
    ways: Ways,
    callers: Callable[[str], Iterable[str]],
    changed: Iterable[str],
) -> dict[str, Reached | None]:
    """What is known of functions after the `changed` ones came to run something else, where it is other than
    it was `before`; None of those that are no longer hot. Nothing may have been recorded of the project; of a
    function, `callers` has all that may run it, and perhaps others."""
    again = _Again(grounds, before, ways, callers)
    for source in changed:
        again.begin(source)
    again.go()
    return {f: now for f, now in again.now.items() if now != before.reached(f)}
