"""The edges of the call graph: which functions a function may run, by calls, properties, decorators,
factories and functions passed on."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from pytest_dispatchguard.lint.callgraph.class_hierarchy import (
    many_overrides,
    method_owner,
    method_owners,
    mro,
)
from pytest_dispatchguard.lint.callgraph.factories import returned_functions, wrappers
from pytest_dispatchguard.lint.callgraph.families import families, is_module
from pytest_dispatchguard.lint.callgraph.name_resolution import (
    lookup,
    member,
    members,
    of_value,
    returned,
)
from pytest_dispatchguard.lint.callgraph.project import Project, class_of
from pytest_dispatchguard.lint.callgraph.symbols import Symbol, Symbols
from pytest_dispatchguard.lint.facts import CallFact, FunctionFact, is_distinctive, is_telling
from pytest_dispatchguard.lint.knowledge.cold_names import TEST_PATHS

PROPERTIES = frozenset(
    {"property", "cached_property", "functools.cached_property", "abc.abstractproperty"}
)


_MOST_BY_NAME = 8
"""With more definitions of a method, its name alone does not tell which one is meant."""
_DEEPEST = 3
"""How many names that stand for one another are followed."""


class Add(Protocol):
    """A callback that records an edge."""

    def __call__(self, target: str, loop: bool, direct: bool = False, spread: bool = False) -> None:
        """Record the edge, or that a known edge is in a loop."""


class Edge(NamedTuple):
    """An edge of the call graph: a function that another may run."""

    target: str
    loop: bool
    direct: bool = False
    """Whether it needed no guess at a type: a method of self or super, or a function of a module."""
    spread: bool = False
    """Whether it is one of many overriding definitions of a method called on self: only the class of the
    instance tells which one runs."""
    often: bool = False
    """Whether a recorded run used this edge regularly, so that nothing needs to be guessed."""


class Scope(NamedTuple):
    """What is visible in a function: its module and class, the name of its self, and the functions around
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
    """Whether it runs when a property is set or deleted, not when it is read."""
    return any(d.endswith((".setter", ".deleter")) for d in fact.decorators)


def symbols_called(
    project: Project, scope: Scope, fact: FunctionFact, name: str, depth: int = 0
) -> Symbols:
    """What a dotted name written in a function stands for."""
    if depth:
        return _symbols_called(project, scope, fact, name, depth)
    memo = project.memo_calls.setdefault(scope.function, {})
    key = (fact.line, name)
    known = memo.get(key)
    if known is None:
        known = memo[key] = _symbols_called(project, scope, fact, name, depth)
    return known


def _symbols_called(
    project: Project, scope: Scope, fact: FunctionFact, name: str, depth: int
) -> Symbols:
    if depth > _DEEPEST:
        return ()
    root, _, rest = name.partition(".")
    parts = rest.split(".") if rest else []
    symbols: Symbols
    if root == "super()":
        return _of_super(project, scope, parts)
    if root == scope.self_name and scope.class_id:
        symbols = (Symbol("instance", scope.class_id, True),)
    elif root in fact.locals:
        found: list[Symbol] = []
        for value in fact.locals[root]:
            word, _, written = value.partition(":")
            if word == "name" and written != root:
                found.extend(symbols_called(project, scope, fact, written, depth + 1))
            elif word == "call":
                found.extend(_made_by(project, scope, fact, written, depth))
            else:
                found.extend(of_value(project, scope.module, value))
        symbols = tuple(dict.fromkeys(found))
    else:
        symbols = _named(project, scope, root)
    own = root == scope.self_name
    for part in parts:
        symbols = members(project, symbols, part, own=own)
        own = False
    return symbols


def _made_by(
    project: Project, scope: Scope, fact: FunctionFact, written: str, depth: int
) -> Symbols:
    """What a call of this name returns: an instance, or the functions of a factory."""
    found: list[Symbol] = []
    for symbol in symbols_called(project, scope, fact, written, depth + 1):
        found.extend(returned(project, symbol))
    root = written.partition(".")[0]
    if found or root == scope.self_name or root in fact.locals:
        return tuple(
            found
        )  # what a method of an unknown object returns is no name of another package
    return of_value(project, scope.module, f"call:{written}")


def _of_super(project: Project, scope: Scope, parts: list[str]) -> Symbols:
    if not scope.class_id or len(parts) != 1:
        return ()
    for base in mro(project, scope.class_id)[1:]:
        if f"{base}.{parts[0]}" in project.functions:
            owners = method_owners(project, base, parts[0], False)
            return tuple(Symbol("function", f"{owner}.{parts[0]}") for owner in owners)
    return ()


def _named(project: Project, scope: Scope, name: str) -> Symbols:
    """What a bare name stands for: a nested function or class of the functions around it, else a name of the
    module."""
    around = scope.function
    while True:
        nested = f"{around}.<locals>.{name}"
        if nested in project.functions:
            return (Symbol("function", nested),)
        if nested in project.classes:
            return (Symbol("class", nested),)
        outer, found, _ = around.rpartition(".<locals>.")
        if not found:
            break
        around = outer
    return lookup(project, scope.module, name)


def edges(
    project: Project, function_id: str, ruled_out: Callable[[CallFact], bool] | None = None
) -> list[Edge]:
    """The functions that a function may run, each once; in a loop if any of its calls is. Calls that are
    `ruled_out` are skipped."""
    scope = scope_of(project, function_id)
    found: dict[str, Edge] = {}
    add = partial(_add, found)
    facts = project.functions[function_id]
    for fact in facts:
        if len(facts) > 1 and writes(fact):
            continue  # reading a property does not run its setter
        for call in fact.calls:
            if ruled_out is None or not (call.under and ruled_out(call)):
                _follow(project, scope, fact, call, add)
        for decorator in fact.decorators:
            for symbol in _named_dotted(project, scope, decorator):
                if symbol.kind == "function":
                    for wrapper in wrappers(project, symbol.id):
                        add(wrapper, False)
                elif symbol.kind in ("class", "instance"):
                    owner = method_owner(project, symbol.id, "__call__")
                    if owner and symbol.kind == "instance":
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
    """The calls through which a function may run another."""
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


def _named_dotted(project: Project, scope: Scope, name: str) -> Symbols:
    root, _, rest = name.partition(".")
    symbols = _named(project, scope, root)
    for part in rest.split(".") if rest else ():
        symbols = members(project, symbols, part)
    return symbols


def _follow(project: Project, scope: Scope, fact: FunctionFact, call: CallFact, add: Add) -> None:
    if call.how.startswith("hook"):
        return
    symbols = symbols_called(project, scope, fact, call.name)
    if not symbols and call.how in ("call", "new-scope"):
        for target in _by_rare_name(project, scope, call):
            add(target, call.loop)
        return
    direct, spread = _ways(project, scope, call.name, symbols)
    for symbol in symbols:
        if symbol.kind == "function":
            if call.how == "returned" and not symbol.id.endswith(f".<locals>.{call.name}"):
                continue  # it is run where the result is called
            facts = project.functions.get(symbol.id, ())
            if call.how != "read" or any(is_property(f) for f in facts):
                add(symbol.id, call.loop, symbol.id in direct, symbol.id in spread)
            if call.how in ("call", "decorated", "new-scope"):
                for inner in returned_functions(project, symbol.id):
                    add(inner, call.loop)
        elif symbol.kind == "class":
            if call.how in ("call", "new-scope", "decorated"):
                for name in ("__new__", "__init__", "__post_init__"):
                    _add_method(project, symbol, name, call.loop, add)
                if call.how == "new-scope":
                    _add_method(project, symbol, "__enter__", call.loop, add)
                    _add_method(project, symbol, "__exit__", call.loop, add)
        elif symbol.kind == "instance" and call.how in ("call", "passed", "decorated", "new-scope"):
            if call.how == "new-scope":
                _add_method(project, symbol, "__enter__", call.loop, add)
                _add_method(project, symbol, "__exit__", call.loop, add)
            elif call.how != "passed" and call.name != scope.self_name:
                for name in ("__call__", "forward", "call"):
                    _add_method(project, symbol, name, call.loop, add)
            elif call.how == "call":
                _add_method(project, symbol, "__call__", call.loop, add)


def _ways(
    project: Project, scope: Scope, name: str, symbols: Symbols
) -> tuple[frozenset[str], frozenset[str]]:
    """The functions that a name certainly stands for, and those that are among many overriding
    definitions."""
    root, dot, last = name.partition(".")
    functions = frozenset(symbol.id for symbol in symbols if symbol.kind == "function")
    none: frozenset[str] = frozenset()
    if root == "super()":
        return functions, none
    if root == scope.self_name and scope.class_id:
        if not dot or "." in last:
            return none, none
        nearest = f"{method_owner(project, scope.class_id, last)}.{last}"
        owners = [function_id.rpartition(".")[0] for function_id in functions]
        # What an attribute holds may be a function of no class.
        methods = [owner for owner in owners if owner in project.classes]
        many = many_overrides(project, scope.class_id, last, methods)
        return functions, functions - {nearest} if many else none
    return frozenset(f for f in functions if not class_of(project, f)), none


def _add_method(project: Project, symbol: Symbol, name: str, loop: bool, add: Add) -> None:
    for found in member(project, symbol, name):
        if found.kind == "function":
            add(found.id, loop)


_VALUE = re.compile(r"(?:^|[,=])(?:[=~*?]|\.\.\.|cpu)")
"""What is no literal, in `CallFact.given`."""


def _by_rare_name(project: Project, scope: Scope, call: CallFact) -> list[str]:
    """The methods with a rare name in one family of classes, or with a name that modules give theirs
    (`forward_features`, `encode`) where all that have it are modules, for a call on an object of unknown
    type. Modules are given more than literals: `text.encode("utf-8")` and `distribution.sample()` are calls
    of something else."""
    root, dot, _ = call.name.partition(".")
    method = call.name.rpartition(".")[2]
    if not dot or root == "super()" or method.startswith("__") or not is_telling(method):
        return []
    package = scope.module.partition(".")[0]
    owners = [
        owner
        for owner in project.definers.get(method, ())
        if owner.partition(".")[0].partition(":")[0] == package
        and not TEST_PATHS.search(project.modules[owner.partition(":")[0]])
    ]
    if not owners or len(owners) > _MOST_BY_NAME:
        return []
    if method.startswith("forward_") or not is_distinctive(method):
        given = root == scope.self_name or any(map(_VALUE.search, call.given))
        if given and all(_is_module_or_tensor(project, owner) for owner in owners):
            return [f"{owner}.{method}" for owner in owners]
        if not is_distinctive(method):
            return []
    kin = (frozenset(base for base in mro(project, owner) if ":" in base) for owner in owners)
    if not frozenset.intersection(*kin) and not _stand_in(owners):
        return []
    return [f"{owner}.{method}" for owner in owners]


def _is_module_or_tensor(project: Project, class_id: str) -> bool:
    """Whether a class is a module, or a tensor of a class of its own."""
    tensor = any(name == "torch.Tensor" for name, _ in families(project, class_id, {}))
    return tensor or is_module(project, class_id)


def _stand_in(owners: Sequence[str]) -> bool:
    """Whether classes stand in for one another, by their names: side by side in a module, all named after one
    of them, as `BoxTransform` and `BoxTransformRotated`."""
    modules, names = zip(*(owner.split(":", 1) for owner in owners), strict=True)
    return len(set(modules)) == 1 and all(name.startswith(min(names, key=len)) for name in names)
