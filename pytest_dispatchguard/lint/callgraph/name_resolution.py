"""Name resolution: what a dotted name stands for, across imports, re-exports, aliases, attributes and
inheritance."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

from pytest_dispatchguard.lint.callgraph.class_hierarchy import many_overrides, method_owners, mro
from pytest_dispatchguard.lint.callgraph.factories import returned_functions
from pytest_dispatchguard.lint.callgraph.import_paths import located
from pytest_dispatchguard.lint.callgraph.name_search import MOST_STEPS, follow, look_up
from pytest_dispatchguard.lint.callgraph.project import Project
from pytest_dispatchguard.lint.callgraph.symbols import Symbol, Symbols
from pytest_dispatchguard.lint.facts import Value
from pytest_dispatchguard.lint.knowledge.library_names import canonical

DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")

_WRAPPERS = frozenset(
    "Optional Union typing.Optional typing.Union None Annotated typing.Annotated".split()
)
_CONTAINERS = frozenset("list dict tuple List Dict Sequence type Callable".split())
_MOST_SYMBOLS = 8


def lookup(project: Project, module: str, name: str) -> Symbols:
    """All that a name in a module's namespace may stand for. An import cycle leads to nothing."""
    key = (module, name)
    known = project.search.found.get(key)
    if known is not None:
        return known
    return look_up(project.search, key, partial(_lookup, project, module, name))


def _lookup(project: Project, module: str, name: str) -> Symbols:
    found: list[Symbol] = []
    for entry in project.bound.get(module, {}).get(name, ()):
        if entry[0] == "=":
            identity = entry[1:]
            found.append(Symbol("class" if identity in project.classes else "function", identity))
        elif entry[0] == "@":
            found.extend(of_value(project, module, entry[1:]))
        elif entry == f"{module}.{name}" and entry not in project.modules:
            continue
        else:
            found.extend(absolute(project, located(project, module, entry), inside=module))
    if not found:
        for starred in project.stars.get(module, ()):
            target = located(project, module, starred)
            if target in project.bound:
                found.extend(lookup(project, target, name))
    if not found and f"{module}.{name}" in project.packages:
        found.append(Symbol("module", f"{module}.{name}"))
    return tuple(dict.fromkeys(found))[:_MOST_SYMBOLS]


def absolute(project: Project, dotted: str, inside: str = "") -> Symbols:
    """What an absolute dotted name stands for; `inside` is the module that imports it."""
    key = (dotted, inside)
    known = project.memo_absolute.get(key)
    if known is None:
        search = project.search
        before, search.met_cycle = search.met_cycle, False
        known = _absolute(project, dotted, inside)
        if not search.met_cycle:
            project.memo_absolute[key] = known
        search.met_cycle |= before
    return known


def _absolute(project: Project, dotted: str, inside: str) -> Symbols:
    parts = dotted.split(".")
    if parts[0] not in project.packages:
        return (Symbol("external", canonical(dotted)),)
    # `from a.b.c import d` means the module a.b.c, even if a.b defines another c.
    known = 1
    while known < len(parts) - 1 and ".".join(parts[: known + 1]) in project.packages:
        known += 1
    symbols: Symbols = (Symbol("module", ".".join(parts[:known])),)
    for part in parts[known:]:
        symbols = members(project, symbols, part, inside)
        if not symbols:
            return ()
    return symbols[:_MOST_SYMBOLS]


def resolve(project: Project, module: str, dotted: str) -> Symbols:
    """What a dotted name written at a module's top level stands for."""
    root, _, rest = dotted.partition(".")
    symbols = lookup(project, module, root)
    if not symbols:
        whole = located(project, module, dotted)
        if rest and whole.partition(".")[0] in project.packages:
            return absolute(project, whole)
        return ()
    for part in rest.split(".") if rest else ():
        symbols = members(project, symbols, part)
    return symbols[:_MOST_SYMBOLS]


def _resolve_or_external(project: Project, module: str, dotted: str) -> Symbols:
    """What a dotted name stands for, if its import is already resolved or the module itself defines it."""
    found = resolve(project, module, dotted)
    if found:
        return found
    whole = located(project, module, dotted)
    if whole.partition(".")[0] in project.packages:
        return absolute(project, whole)
    return (Symbol("external", canonical(dotted)),) if "." in dotted else ()


def members(
    project: Project, symbols: Symbols, name: str, inside: str = "", *, own: bool = False
) -> Symbols:
    """What an attribute of any of the symbols stands for."""
    if len(symbols) == 1:
        return member(project, symbols[0], name, inside, own=own)
    found = [t for symbol in symbols for t in member(project, symbol, name, inside, own=own)]
    return tuple(dict.fromkeys(found)) if found else ()


def member(
    project: Project, symbol: Symbol, name: str, inside: str = "", *, own: bool = False
) -> Symbols:
    """What an attribute of a symbol stands for. With `own` the symbol is ``self``, and all overriding methods
    count, however many."""
    kind = symbol.kind
    if kind == "module":
        submodule = f"{symbol.id}.{name}"
        if submodule == inside:
            return (Symbol("module", submodule),)
        found = lookup(project, symbol.id, name) if symbol.id in project.bound else ()
        if found:
            return found
        return (Symbol("module", submodule),) if submodule in project.packages else ()
    if kind in ("external", "external-instance"):
        return (Symbol("external", canonical(f"{symbol.id}.{name}")),)
    if kind in ("class", "instance"):
        owners = method_owners(project, symbol.id, name, symbol.virtual)
        if symbol.virtual and not own and many_overrides(project, symbol.id, name, owners):
            owners = method_owners(project, symbol.id, name, False)
            if not owners:
                return ()
        if owners:
            return tuple(Symbol("function", f"{owner}.{name}") for owner in owners)
        if kind == "instance" or f"{symbol.id}.{name}" not in project.classes:
            return attribute(project, symbol.id, name)
        return (Symbol("class", f"{symbol.id}.{name}"),)
    return ()


def attribute(project: Project, class_id: str, name: str) -> Symbols:
    """What ``self.name`` is assigned by the nearest class that assigns it. An attribute that depends on
    itself leads to nothing."""
    for base in mro(project, class_id):
        class_ = project.classes.get(base)
        if class_ is not None and name in class_.attrs:
            if project.search.depth >= MOST_STEPS:
                project.search.met_cycle = (
                    True  # not remembered: looked up another way, it may be found
                )
                return ()
            find = partial(assigned, project, base, class_.attrs[name])
            found = follow(project.search, (base, name), find)
            if found:
                return found
    return ()


def assigned(project: Project, class_id: str, values: Sequence[Value]) -> Symbols:
    """What an attribute of a class stands for, if it is assigned these values."""
    module = class_id.partition(":")[0]
    found: list[Symbol] = []
    for value in values:
        word, _, own = value.partition(":")
        method = own.removeprefix("self.")
        known: Symbols = ()
        if word != "item" or method == own or "." in method:
            known = of_value(project, module, value)
        if word == "item" and "." not in method and not known:  # a method, or a table of such
            known = member(project, Symbol("instance", class_id, True), method)
        found.extend(known)
    return tuple(dict.fromkeys(found))[:_MOST_SYMBOLS]


def of_value(project: Project, module: str, value: Value) -> Symbols:
    """What a `facts.Value` of a module stands for."""
    word, _, rest = value.partition(":")
    if word in ("name", "item"):
        return _resolve_or_external(project, module, rest)
    if word == "call":
        found = []
        for symbol in _resolve_or_external(project, module, rest):
            if symbol.kind == "external":
                found.append(Symbol("external-instance", symbol.id))
            else:
                found.extend(returned(project, symbol))
        return tuple(found)
    if word == "ann":
        found = []
        for name in DOTTED.findall(rest):
            if name in _WRAPPERS:
                continue
            if name in _CONTAINERS:
                return ()
            for symbol in _resolve_or_external(project, module, name):
                if symbol.kind == "class":
                    found.append(Symbol("instance", symbol.id, True))
        return tuple(found)
    return ()


def returned(project: Project, symbol: Symbol) -> Iterator[Symbol]:
    """What a call of a class or function of the project returns."""
    if symbol.kind == "class":
        yield Symbol("instance", symbol.id)
    elif symbol.kind == "function":
        for function_id in returned_functions(project, symbol.id):
            yield Symbol("function", function_id)
        yield from returned_instances(project, symbol.id)


def returned_instances(project: Project, function_id: str) -> Symbols:
    """The instances of the project's classes that a function returns."""
    module = function_id.partition(":")[0]
    found: list[Symbol] = []
    for fact in project.functions.get(function_id, ()):
        word, _, rest = fact.returns.partition(":")
        if word in ("call", "ann") and DOTTED.fullmatch(rest):
            for symbol in _resolve_or_external(project, module, rest):
                if symbol.kind == "class":
                    found.append(Symbol("instance", symbol.id, word == "ann"))
    return tuple(found)


def bases(project: Project, class_id: str) -> list[str]:
    """The bases of a class: ids of the project's classes, dotted names of others."""
    class_ = project.classes[class_id]
    module = class_id.partition(":")[0]
    outer = class_.name.rpartition(".")[0]
    direct: list[str] = []
    for base in class_.bases:
        symbols = resolve(project, module, base)
        if not symbols and outer:
            symbols = _scoped_class(project, module, outer, base)
        if not symbols and base.partition(".")[0] not in project.packages and "()" not in base:
            symbols = (Symbol("external", base),)
        classes = {symbol.id for symbol in symbols if symbol.kind == "class"} - {class_id}
        if len(classes) > 1:
            for one in classes:
                project.alternatives.setdefault(one, set()).update(classes - {one})
        for symbol in symbols:
            if (symbol.kind == "class" and symbol.id != class_id) or symbol.kind == "external":
                direct.append(symbol.id)
    return direct


def _scoped_class(project: Project, module: str, outer: str, name: str) -> Symbols:
    while outer:
        for candidate in (f"{module}:{outer}.{name}", f"{module}:{outer}.<locals>.{name}"):
            if candidate in project.classes:
                return (Symbol("class", candidate),)
        outer = outer.rpartition(".")[0]
    return ()
