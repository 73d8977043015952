"""From one function to those it may run: calls, properties, functions passed on, decorators,
factories."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from pytest_dispatchguard.lint.callgraph.project import (
    Project,
    Thing,
    class_of,
    lookup,
    many_overrides,
    member,
    members,
    method_owner,
    method_owners,
    mro,
    of_value,
    returned_functions,
    returned_instances,
    wrappers,
)
from pytest_dispatchguard.lint.facts import CallFact, FunctionFact
from pytest_dispatchguard.lint.knowledge.libraries import TEST_PATHS

PROPERTIES = frozenset(
    {"property", "cached_property", "functools.cached_property", "abc.abstractproperty"}
)


_MOST_BY_NAME = 4
"""Definitions of a method; of more, its name alone does not tell which one is meant."""
_DEEPEST = 3
"""Names that stand for one another; no more of them are followed."""


class Add(Protocol):
    """Takes note of one edge."""

    def __call__(self, target: str, loop: bool, direct: bool = False, spread: bool = False) -> None:
        """Adds the edge, or makes a known one an edge in a loop."""


class Edge(NamedTuple):
    """A function that another may run."""

    target: str
    loop: bool
    direct: bool = False
    """Whether no type had to be guessed: a method of self or super, a function of a module."""
    spread: bool = False
    """One of many overriding definitions of what is called on self: which of them runs, only the class
    of the instance tells."""
    often: bool = False
    """Whether a recorded run took it as a matter of course: then nothing has to be guessed of it."""


class Scope(NamedTuple):
    """What a function sees: its module, its class, the name of its self, the functions around
    it."""

    function: str
    module: str
    class_id: str
    self_name: str


def scope_of(project: Project, function_id: str) -> Scope:
    """The scope of a function of the project."""
    module = function_id.partition(":")[0]
    owner = class_of(project, function_id)
    self_name = ""
    if owner:
        method = f"{owner}.{function_id[len(owner) + 1 :].partition('.')[0]}"
        for fact in project.functions.get(method, ()):
            if (
                fact.params
                and "staticmethod" not in fact.decorators
                and not fact.params[0].startswith("*")
            ):
                self_name = fact.params[0]
    return Scope(function_id, module, owner, self_name)


def is_property(fact: FunctionFact) -> bool:
    """Whether reading the attribute runs the function."""
    return any(
        d in PROPERTIES or d.endswith((".cached_property", "cached_property"))
        for d in fact.decorators
    )


def writes(fact: FunctionFact) -> bool:
    """Whether it is what runs where a property is set or deleted, not where it is read."""
    return any(d.endswith((".setter", ".deleter")) for d in fact.decorators)


def things_called(
    project: Project, scope: Scope, fact: FunctionFact, name: str, depth: int = 0
) -> tuple[Thing, ...]:
    """What a dotted name written in a function stands for."""
    if depth:
        return _things_called(project, scope, fact, name, depth)
    memo = project.memo_calls.setdefault(scope.function, {})
    key = (fact.line, name)
    known = memo.get(key)
    if known is None:
        known = memo[key] = _things_called(project, scope, fact, name, depth)
    return known


def _things_called(
    project: Project, scope: Scope, fact: FunctionFact, name: str, depth: int
) -> tuple[Thing, ...]:
    if depth > _DEEPEST:
        return ()
    root, _, rest = name.partition(".")
    parts = rest.split(".") if rest else []
    things: tuple[Thing, ...]
    if root == "super()":
        return _of_super(project, scope, parts)
    if root == scope.self_name and scope.class_id:
        if not parts:
            return (Thing("instance", scope.class_id, True),)
        things = (Thing("instance", scope.class_id, True),)
    elif root in fact.locals:
        found: list[Thing] = []
        for value in fact.locals[root]:
            word, _, written = value.partition(":")
            if word == "name" and written != root:
                found.extend(things_called(project, scope, fact, written, depth + 1))
            elif word == "call":
                found.extend(_made_by(project, scope, fact, written, depth))
            else:
                found.extend(of_value(project, scope.module, value))
        things = tuple(dict.fromkeys(found))
    else:
        things = _named(project, scope, root)
    own = root == scope.self_name
    for part in parts:
        things = members(project, things, part, own=own)
        own = False
    return things


def _made_by(
    project: Project, scope: Scope, fact: FunctionFact, written: str, depth: int
) -> tuple[Thing, ...]:
    """What a call of that name gives: an instance, or the functions a factory hands out."""
    found: list[Thing] = []
    for thing in things_called(project, scope, fact, written, depth + 1):
        if thing.kind == "class":
            found.append(Thing("instance", thing.id))
        elif thing.kind == "function":
            found.extend(Thing("function", f) for f in returned_functions(project, thing.id))
            found.extend(returned_instances(project, thing.id))
    root = written.partition(".")[0]
    if found or root == scope.self_name or root in fact.locals:
        return tuple(found)  # what an unknown object gives is no name of another package
    return of_value(project, scope.module, f"call:{written}")


def _of_super(project: Project, scope: Scope, parts: list[str]) -> tuple[Thing, ...]:
    if not scope.class_id or len(parts) != 1:
        return ()
    for base in mro(project, scope.class_id)[1:]:
        if f"{base}.{parts[0]}" in project.functions:
            owners = method_owners(project, base, parts[0], False)
            return tuple(Thing("function", f"{owner}.{parts[0]}") for owner in owners)
    return ()


def _named(project: Project, scope: Scope, name: str) -> tuple[Thing, ...]:
    """A bare name: nested functions and classes of the functions around first, then the
    module's."""
    around = scope.function
    while True:
        nested = f"{around}.<locals>.{name}"
        if nested in project.functions:
            return (Thing("function", nested),)
        if nested in project.classes:
            return (Thing("class", nested),)
        outer, found, _ = around.rpartition(".<locals>.")
        if not found:
            break
        around = outer
    return lookup(project, scope.module, name)


def edges(
    project: Project, function_id: str, ruled_out: Callable[[CallFact], bool] | None = None
) -> list[Edge]:
    """The functions that a function may run, each once, in a loop if any of the ways is. Calls that are
    `ruled_out` lead nowhere."""
    scope = scope_of(project, function_id)
    found: dict[str, Edge] = {}
    add = partial(_add, found)
    facts = project.functions[function_id]
    for fact in facts:
        if len(facts) > 1 and writes(fact):
            continue  # what reads a property does not run its setter
        for call in fact.calls:
            if ruled_out is None or not (call.under and ruled_out(call)):
                _follow(project, scope, fact, call, add)
        for decorator in fact.decorators:
            for thing in _named_dotted(project, scope, decorator):
                if thing.kind == "function":
                    for wrapper in wrappers(project, thing.id):
                        add(wrapper, False)
                elif thing.kind in ("class", "instance"):
                    owner = method_owner(project, thing.id, "__call__")
                    if owner and thing.kind == "instance":
                        for wrapper in wrappers(project, f"{owner}.__call__"):
                            add(wrapper, False)
    found.pop(function_id, None)
    return list(found.values())


def _add(
    found: dict[str, Edge], target: str, loop: bool, direct: bool = False, spread: bool = False
) -> None:
    known = found.get(target)
    if known is not None:
        loop, direct, spread = (
            loop or known.loop,
            direct or known.direct,
            spread and known.spread,
        )
    found[target] = Edge(target, loop, direct, spread)


def calls_to(project: Project, function_id: str, target: str) -> list[CallFact]:
    """The calls by which a function may run another."""
    scope = scope_of(project, function_id)
    return [
        call
        for fact in project.functions[function_id]
        for call in fact.calls
        if target in _reached(project, scope, fact, call)
    ]


def _reached(project: Project, scope: Scope, fact: FunctionFact, call: CallFact) -> set[str]:
    found: set[str] = set()

    def add(target: str, loop: bool, direct: bool = False, spread: bool = False) -> None:
        found.add(target)

    _follow(project, scope, fact, call, add)
    return found


def _named_dotted(project: Project, scope: Scope, name: str) -> tuple[Thing, ...]:
    root, _, rest = name.partition(".")
    things = _named(project, scope, root)
    for part in rest.split(".") if rest else ():
        things = members(project, things, part)
    return things


def _follow(project: Project, scope: Scope, fact: FunctionFact, call: CallFact, add: Add) -> None:
    if call.how.startswith("hook"):
        return
    things = things_called(project, scope, fact, call.name)
    if not things and call.how in ("call", "new-scope"):
        for target in _by_rare_name(project, scope, call.name):
            add(target, call.loop)
        return
    direct, spread = _ways(project, scope, call.name, things)
    for thing in things:
        if thing.kind == "function":
            facts = project.functions.get(thing.id, ())
            if call.how != "read" or any(is_property(f) for f in facts):
                add(thing.id, call.loop, thing.id in direct, thing.id in spread)
            if call.how in ("call", "decorated", "new-scope"):
                for inner in returned_functions(project, thing.id):
                    add(inner, call.loop)
        elif thing.kind == "class":
            if call.how in ("call", "new-scope", "decorated"):
                for name in ("__new__", "__init__", "__post_init__"):
                    _add_method(project, thing, name, call.loop, add)
                if call.how == "new-scope":
                    _add_method(project, thing, "__enter__", call.loop, add)
                    _add_method(project, thing, "__exit__", call.loop, add)
        elif thing.kind == "instance" and call.how in ("call", "passed", "decorated", "new-scope"):
            if call.how == "new-scope":
                _add_method(project, thing, "__enter__", call.loop, add)
                _add_method(project, thing, "__exit__", call.loop, add)
            elif call.how != "passed" and call.name != scope.self_name:
                for name in ("__call__", "forward", "call"):
                    _add_method(project, thing, name, call.loop, add)
            elif call.how == "call":
                _add_method(project, thing, "__call__", call.loop, add)


def _ways(
    project: Project, scope: Scope, name: str, things: tuple[Thing, ...]
) -> tuple[frozenset[str], frozenset[str]]:
    """Of the functions that a name stands for: those that it surely means, and those that are some of
    many overriding definitions."""
    root, dot, last = name.partition(".")
    functions = frozenset(thing.id for thing in things if thing.kind == "function")
    none: frozenset[str] = frozenset()
    if root == "super()":
        return functions, none
    if root == scope.self_name and scope.class_id:
        if not dot or "." in last:
            return none, none
        nearest = f"{method_owner(project, scope.class_id, last)}.{last}"
        owners = [function_id.rpartition(".")[0] for function_id in functions]
        many = many_overrides(project, scope.class_id, owners)
        return functions, functions - {nearest} if many else none
    return frozenset(f for f in functions if not class_of(project, f)), none


def _add_method(project: Project, thing: Thing, name: str, loop: bool, add: Add) -> None:
    for found in member(project, thing, name):
        if found.kind == "function":
            add(found.id, loop)


def is_telling(name: str) -> bool:
    """Whether the last word of a dotted name is one that two things hardly have by chance."""
    root, dot, _ = name.partition(".")
    method = name.rpartition(".")[2]
    return not (
        not dot
        or root == "super()"
        or len(method) <= 8
        or "_" not in method.strip("_")
        or method.startswith("__")
    )


def _by_rare_name(project: Project, scope: Scope, name: str) -> list[str]:
    """The methods of one family of classes with a telling name, called on something of unknown type."""
    if not is_telling(name):
        return []
    method = name.rpartition(".")[2]
    package = scope.module.partition(".")[0]
    owners = [
        owner
        for owner in project.definers.get(method, ())
        if owner.partition(".")[0].partition(":")[0] == package
        and not TEST_PATHS.search(project.modules[owner.partition(":")[0]])
    ]
    if not owners or len(owners) > _MOST_BY_NAME:
        return []
    families = (frozenset(base for base in mro(project, owner) if ":" in base) for owner in owners)
    if not frozenset.intersection(*families):
        return []
    return [f"{owner}.{method}" for owner in owners]
