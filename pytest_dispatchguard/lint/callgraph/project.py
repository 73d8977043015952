"""The facts of all files as one project: which dotted name stands for which definition, across
imports, re-exports, aliases and inheritance."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from pytest_dispatchguard.lint.facts import ClassFact, FileFacts, FunctionFact, Value
from pytest_dispatchguard.lint.knowledge.libraries import canonical
from pytest_dispatchguard.lint.sources.module_names import module_name

DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_WRAPPERS = frozenset(
    {
        "Optional",
        "Union",
        "typing.Optional",
        "typing.Union",
        "None",
        "Annotated",
        "typing.Annotated",
    }
)
_FUNCTION_NAME = re.compile(
    r"_*(?:fn|func|f|fun|function|method|obj|cls|klass|class_|wrapped|wrapped_\w+|forward|callable_?|"
    r"target|user_function|\w+_(?:fn|func|function|method|class))"
)
_MOST_TARGETS = 8
_MOST_ANCESTORS = 60
"""Of the project's own: so far from its base no class is that anybody wrote by hand."""
_MOST_STEPS = 40
"""From name to name, before what lies ahead is looked up for itself: it must not end in a RecursionError
however many names in a row somebody writes."""
_MOST_OVERRIDES = 3
"""More of them than that, and nobody can tell which one a receiver of the base class' type has."""


class Thing(NamedTuple):
    """What a name stands for: ``function``, ``class`` and ``instance`` (of a class) of the project
    by their ids ``pkg.module:Class.method``, ``module`` by its dotted name, ``external`` (a
    library's) by its dotted name, ``external-instance`` by the name of its class. `virtual`: a
    subclass' instance perhaps."""

    kind: str
    id: str
    virtual: bool = False


_Name = tuple[str, str]
"""A module and a name in it, or a dotted name and the module that imports it."""


@dataclass(slots=True)
class _Search:
    """A name that is being followed from import to import."""

    on_way: dict[_Name, tuple[Thing, ...]] = field(default_factory=dict)
    """Those that are being followed, standing for nothing so far, and those that led back to one of them."""
    led_back: bool = False
    """Whether one on the way has been met again: what was found may lack what that stands for."""
    steps: int = 0
    """How many follow each other right now, each a few frames of Python."""
    ahead: dict[_Name, tuple[Thing, ...]] = field(default_factory=dict)
    """Names that were looked up first, because the search came to them after too many steps, and that lead
    round."""


class _TooFar(Exception):  # noqa: N818 - a turn that a search takes, no error
    """A search has made so many steps that the name it came to is looked up first, for itself."""

    def __init__(self, key: _Name) -> None:
        super().__init__(key)
        self.key = key


@dataclass(frozen=True, slots=True)
class Project:
    """Tables over the facts; made by `build`, read by the functions of this module."""

    files: dict[str, FileFacts]
    """By path, relative to the project root."""
    modules: Mapping[str, str]
    """Dotted name to path."""
    module_of: Mapping[str, str]
    functions: dict[str, list[FunctionFact]]
    """By id ``module:qualified.name``; several where a name is defined more than once."""
    classes: dict[str, ClassFact]
    definers: dict[str, list[str]]
    """Method name to the ids of the classes that define it."""
    methods: dict[str, list[str]]
    """Class id to the names of the methods it defines."""
    packages: frozenset[str]
    """Names of all modules and of the packages above them."""
    bound: dict[str, dict[str, list[str]]]
    """Module to its names: ``=id`` for what it defines, ``name`` for imports, ``@value`` for
    assigned."""
    stars: Mapping[str, list[str]]
    memo_names: dict[_Name, tuple[Thing, ...]] = field(default_factory=dict)
    memo_round: dict[_Name, tuple[Thing, ...]] = field(default_factory=dict)
    """Of names that lead round to where they began, or into such a round: what each stands for when it is the
    first that is asked for."""
    search: _Search = field(default_factory=_Search)
    memo_mro: dict[str, tuple[str, ...]] = field(default_factory=dict)
    memo_bases: dict[str, list[str]] = field(default_factory=dict)
    memo_methods: dict[tuple[str, str], str] = field(default_factory=dict)
    memo_relatives: dict[str, tuple[frozenset[str], frozenset[str]]] = field(default_factory=dict)
    memo_absolute: dict[_Name, tuple[Thing, ...]] = field(default_factory=dict)
    memo_calls: dict[str, dict[tuple[int, str], tuple[Thing, ...]]] = field(default_factory=dict)
    """What the names written in a function stand for: by its id, then by its line and the name."""
    memo_classes: dict[str, str] = field(default_factory=dict)
    subclasses: dict[str, list[str]] = field(default_factory=dict)
    packaged: frozenset[str] = frozenset()
    """The outermost packages, as folders, that are made to be installed: of a library."""
    memo_offered: dict[str, bool] = field(default_factory=dict)
    alternatives: dict[str, set[str]] = field(default_factory=dict)
    """Class to those that may stand in its place as a base: one name imported from here or from there."""


def build(
    files: Mapping[str, FileFacts],
    roots: Sequence[str] = (),
    packaged: frozenset[str] = frozenset(),
) -> Project:
    """The project made of these files' facts (path relative to the project root -> facts); `packaged` are its
    packages that are made to be installed."""
    modules: dict[str, str] = {}
    module_of: dict[str, str] = {}
    for path in sorted(files):
        module = module_name(path, roots)
        if module in modules:
            module = module_name(path)
            while module in modules:
                module += "_"
        modules[module] = path
        module_of[path] = module
    functions: dict[str, list[FunctionFact]] = {}
    classes: dict[str, ClassFact] = {}
    definers: dict[str, list[str]] = {}
    methods: dict[str, list[str]] = {}
    bound: dict[str, dict[str, list[str]]] = {}
    stars: dict[str, list[str]] = {}
    for module, path in modules.items():
        facts = files[path]
        for class_ in facts.classes:
            identity = f"{module}:{class_.name}"
            classes[identity] = class_
        for function in facts.functions:
            functions.setdefault(f"{module}:{function.name}", []).append(function)
        for class_id, name in methods_defined(facts, module, classes):
            definers.setdefault(name, []).append(class_id)
            methods.setdefault(class_id, []).append(name)
        starred = [target for name, target in facts.imports if name == "*"]
        if starred:
            stars[module] = starred
        bound[module] = names_bound(facts, module)
    project = Project(
        dict(files),
        modules,
        module_of,
        functions,
        classes,
        definers,
        methods,
        packages_of(modules),
        bound,
        stars,
        packaged=packaged,
    )
    for identity in classes:
        for base in mro(project, identity)[1:]:
            if ":" in base:
                project.subclasses.setdefault(base, []).append(identity)
    return project


def packages_of(modules: Iterable[str]) -> frozenset[str]:
    """The names of modules, and of the packages above them."""
    found: set[str] = set()
    for module in modules:
        name = module
        while name and name not in found:
            found.add(name)
            name = name.rpartition(".")[0]
    return frozenset(found)


def methods_defined(
    facts: FileFacts, module: str, classes: Container[str]
) -> Iterator[tuple[str, str]]:
    """The ids of the classes of a file with the names of the methods they define, each once, in order."""
    for name in dict.fromkeys(function.name for function in facts.functions):
        owner, _, last = name.rpartition(".")
        if f"{module}:{owner}" in classes:
            yield f"{module}:{owner}", last


def with_facts(project: Project, new: Mapping[str, FileFacts]) -> None:
    """Gives files of the project other facts, of the same classes and imports. What was found out of names
    that they had stays: whoever calls this knows that it holds."""
    for rel, facts in new.items():
        module = project.module_of[rel]
        old = project.files[rel]
        project.files[rel] = facts
        for function in old.functions:
            project.functions.pop(f"{module}:{function.name}", None)
            project.memo_calls.pop(f"{module}:{function.name}", None)
            project.memo_offered.pop(f"{module}:{function.name}", None)
        for function in facts.functions:
            project.functions.setdefault(f"{module}:{function.name}", []).append(function)
        project.classes.update((f"{module}:{class_.name}", class_) for class_ in facts.classes)
        project.bound[module] = names_bound(facts, module)
        had = dict.fromkeys(methods_defined(old, module, project.classes))
        has = dict.fromkeys(methods_defined(facts, module, project.classes))
        if had.keys() != has.keys():
            _redefine(project, had, has)


def _redefine(
    project: Project, had: Iterable[tuple[str, str]], has: Collection[tuple[str, str]]
) -> None:
    for class_id, name in had:
        project.definers[name].remove(class_id)
        project.methods[class_id].remove(name)
    for class_id, name in has:
        project.definers.setdefault(name, []).append(class_id)
        project.methods.setdefault(class_id, []).append(name)
    places = {module: number for number, module in enumerate(project.modules)}
    for _, name in has:
        # Stable: within a module they are in order.
        project.definers[name].sort(key=lambda class_id: places[class_id.partition(":")[0]])


def names_bound(facts: FileFacts, module: str) -> dict[str, list[str]]:
    """The names of a module, as `Project.bound` has them."""
    names: dict[str, list[str]] = {}
    for class_ in facts.classes:
        if "." not in class_.name:
            names.setdefault(class_.name, []).append(f"={module}:{class_.name}")
    for name in dict.fromkeys(f.name for f in facts.functions if "." not in f.name):
        names.setdefault(name, []).append(f"={module}:{name}")
    for name, target in facts.imports:
        if name != "*":
            names.setdefault(name, []).append(target)
    for name, found in facts.assigns.items():
        if name not in names:
            names[name] = ["@" + v for v in found if v.startswith(("name:", "call:", "item:"))]
    return names


# --- names ----------------------------------------------------------------------------------------


def lookup(project: Project, module: str, name: str) -> tuple[Thing, ...]:
    """All that a name of a module's own namespace may stand for. An import cycle leads to nothing. What is
    found does not depend on what was asked for before."""
    key = (module, name)
    known = project.memo_names.get(key)
    if known is not None:
        return known
    search = project.search
    first = not search.on_way
    far = search.steps >= _MOST_STEPS and key not in search.on_way
    known = project.memo_round.get(key) if first else search.ahead.get(key) if far else None
    if known is not None:
        search.led_back = True
        return known
    if far:
        raise _TooFar(key)
    before, search.led_back = search.led_back, False
    found = _followed(project, key, partial(_lookup, project, module, name))
    if not search.led_back:
        project.memo_names[key] = found
    elif first:
        project.memo_round[key] = found
    search.led_back |= before
    return found


def _followed(
    project: Project, key: _Name, find: Callable[[], tuple[Thing, ...]]
) -> tuple[Thing, ...]:
    """What is found for a name; nothing where it is being followed already."""
    search = project.search
    if search.on_way:
        return _step(search, key, find)
    led_back = search.led_back
    waiting: list[_Name] = []
    try:
        while True:
            try:
                if not waiting:
                    return _step(search, key, find)
                _look_ahead(project, waiting[-1])
                waiting.pop()
            except _TooFar as far:
                waiting.append(far.key)
                search.ahead[far.key] = ()  # where it leads round to itself
            finally:
                search.steps = 0
                search.on_way.clear()
            search.led_back = led_back
    finally:
        search.ahead.clear()


def _look_ahead(project: Project, key: _Name) -> None:
    """Keeps what a name stands for, for the search that came to it."""
    search = project.search
    search.led_back = False
    found = _step(search, key, partial(_lookup, project, *key))
    if search.led_back:
        search.ahead[key] = found
    else:
        project.memo_names[key] = found
        del search.ahead[key]


def _step(search: _Search, key: _Name, find: Callable[[], tuple[Thing, ...]]) -> tuple[Thing, ...]:
    known = search.on_way.get(key)
    if known is not None:
        search.led_back = True
        return known
    before, search.led_back = search.led_back, False
    search.on_way[key] = ()
    search.steps += 1
    try:
        found = find()
        if search.led_back:
            search.on_way[key] = found
        else:
            del search.on_way[key]
    finally:
        search.led_back |= before
        search.steps -= 1
    return found


def _lookup(project: Project, module: str, name: str) -> tuple[Thing, ...]:
    found: list[Thing] = []
    for entry in project.bound.get(module, {}).get(name, ()):
        if entry[0] == "=":
            identity = entry[1:]
            found.append(Thing("class" if identity in project.classes else "function", identity))
        elif entry[0] == "@":
            found.extend(of_value(project, module, entry[1:]))
        elif entry == f"{module}.{name}" and entry not in project.modules:
            continue
        else:
            found.extend(absolute(project, entry, inside=module))
    if not found:
        for target in project.stars.get(module, ()):
            if target in project.bound:
                found.extend(lookup(project, target, name))
    if not found and f"{module}.{name}" in project.packages:
        found.append(Thing("module", f"{module}.{name}"))
    return tuple(dict.fromkeys(found))[:_MOST_TARGETS]


def absolute(project: Project, dotted: str, inside: str = "") -> tuple[Thing, ...]:
    """What an absolute dotted name stands for; `inside` is the module that imports it."""
    key = (dotted, inside)
    known = project.memo_absolute.get(key)
    if known is None:
        search = project.search
        before, search.led_back = search.led_back, False
        known = _absolute(project, dotted, inside)
        if not search.led_back:
            project.memo_absolute[key] = known
        search.led_back |= before
    return known


def _absolute(project: Project, dotted: str, inside: str) -> tuple[Thing, ...]:
    parts = dotted.split(".")
    if parts[0] not in project.packages:
        return (Thing("external", canonical(dotted)),)
    # `from a.b.c import d` asks for the module a.b.c, whatever else a.b calls c.
    known = 1
    while known < len(parts) - 1 and ".".join(parts[: known + 1]) in project.packages:
        known += 1
    things: tuple[Thing, ...] = (Thing("module", ".".join(parts[:known])),)
    for part in parts[known:]:
        things = members(project, things, part, inside)
        if not things:
            return ()
    return things[:_MOST_TARGETS]


def resolve(project: Project, module: str, dotted: str) -> tuple[Thing, ...]:
    """What a dotted name written at a module's top level stands for."""
    root, _, rest = dotted.partition(".")
    things = lookup(project, module, root)
    if not things:
        if root in project.packages and rest:
            return absolute(project, dotted)
        return ()
    for part in rest.split(".") if rest else ():
        things = members(project, things, part)
    return things[:_MOST_TARGETS]


def members(
    project: Project, things: tuple[Thing, ...], name: str, inside: str = "", *, own: bool = False
) -> tuple[Thing, ...]:
    """What an attribute of one of the things stands for."""
    if len(things) == 1:
        return member(project, things[0], name, inside, own=own)
    found = [t for thing in things for t in member(project, thing, name, inside, own=own)]
    return tuple(dict.fromkeys(found)) if found else ()


def member(
    project: Project, thing: Thing, name: str, inside: str = "", *, own: bool = False
) -> tuple[Thing, ...]:
    """What an attribute of a thing stands for; `own`: the thing is the self of the method that asks, so
    that all overriding methods count, however many."""
    kind = thing.kind
    if kind == "module":
        submodule = f"{thing.id}.{name}"
        if submodule == inside:
            return (Thing("module", submodule),)
        found = lookup(project, thing.id, name) if thing.id in project.bound else ()
        if found:
            return found
        return (Thing("module", submodule),) if submodule in project.packages else ()
    if kind in ("external", "external-instance"):
        return (Thing("external", canonical(f"{thing.id}.{name}")),)
    if kind in ("class", "instance"):
        owners = method_owners(project, thing.id, name, thing.virtual)
        if thing.virtual and not own and many_overrides(project, thing.id, owners):
            owners = method_owners(project, thing.id, name, False)
            if not owners:
                return ()
        if owners:
            return tuple(Thing("function", f"{owner}.{name}") for owner in owners)
        if kind == "instance" or f"{thing.id}.{name}" not in project.classes:
            return attribute(project, thing.id, name)
        return (Thing("class", f"{thing.id}.{name}"),)
    return ()


def attribute(project: Project, class_id: str, name: str) -> tuple[Thing, ...]:
    """What ``self.name`` was assigned, by the nearest class that assigns it. An attribute that is made of
    itself leads to nothing."""
    for base in mro(project, class_id):
        class_ = project.classes.get(base)
        if class_ is not None and name in class_.attrs:
            if project.search.steps >= _MOST_STEPS:
                project.search.led_back = True  # found in another way, it may lead on
                return ()
            find = partial(assigned, project, base, class_.attrs[name])
            found = _followed(project, (base, name), find)
            if found:
                return found
    return ()


def assigned(project: Project, class_id: str, values: Sequence[Value]) -> tuple[Thing, ...]:
    """What an attribute of a class stands for that is assigned these values."""
    module = class_id.partition(":")[0]
    found: list[Thing] = []
    for value in values:
        own = value.partition(":")[2]
        if value.startswith("item:self.") and "." not in own[5:]:
            found.extend(member(project, Thing("instance", class_id, True), own[5:]))
        else:
            found.extend(of_value(project, module, value))
    return tuple(dict.fromkeys(found))[:_MOST_TARGETS]


def of_value(project: Project, module: str, value: Value) -> tuple[Thing, ...]:
    """What a value, as a word of `facts.Value` met in that module, stands for."""
    word, _, rest = value.partition(":")
    if word in ("name", "item"):
        return _resolve_or_external(project, module, rest)
    if word == "call":
        found = []
        for thing in _resolve_or_external(project, module, rest):
            if thing.kind == "class":
                found.append(Thing("instance", thing.id))
            elif thing.kind == "external":
                found.append(Thing("external-instance", thing.id))
            elif thing.kind == "function":
                found.extend(Thing("function", f) for f in returned_functions(project, thing.id))
                found.extend(returned_instances(project, thing.id))
        return tuple(found)
    if word == "ann":
        found = []
        for name in DOTTED.findall(rest):
            if name in _WRAPPERS or name in (
                "list",
                "dict",
                "tuple",
                "List",
                "Dict",
                "Sequence",
                "type",
                "Callable",
            ):
                if name in _WRAPPERS:
                    continue
                return ()
            for thing in _resolve_or_external(project, module, name):
                if thing.kind == "class":
                    found.append(Thing("instance", thing.id, True))
        return tuple(found)
    return ()


def returned_instances(project: Project, function_id: str) -> tuple[Thing, ...]:
    """The instances of classes of the project that a function returns."""
    module = function_id.partition(":")[0]
    found: list[Thing] = []
    for fact in project.functions.get(function_id, ()):
        word, _, rest = fact.returns.partition(":")
        if word in ("call", "ann"):
            for thing in (
                _resolve_or_external(project, module, rest) if DOTTED.fullmatch(rest) else ()
            ):
                if thing.kind == "class":
                    found.append(Thing("instance", thing.id, word == "ann"))
    return tuple(found)


def _resolve_or_external(project: Project, module: str, dotted: str) -> tuple[Thing, ...]:
    """A name of which the scout has resolved the import, or a name of the module itself."""
    found = resolve(project, module, dotted)
    if found:
        return found
    if dotted.partition(".")[0] in project.packages:
        return absolute(project, dotted)
    return (Thing("external", canonical(dotted)),) if "." in dotted else ()


def returned_functions(project: Project, function_id: str, depth: int = 0) -> list[str]:
    """The nested functions that a factory or decorator hands out in the end."""
    found: list[str] = []
    if depth > 3:
        return found
    for fact in project.functions.get(function_id, ()):
        for call in fact.calls:
            if call.how == "returned":
                inner = f"{function_id}.<locals>.{call.name}"
                if inner in project.functions and inner not in found:
                    found.append(inner)
    return found


def wrappers(project: Project, decorator_id: str) -> list[str]:
    """The functions that a decorator, or a decorator factory, puts in place of what it
    decorates."""
    result: list[str] = []
    queue = [(decorator_id, 0)]
    while queue:
        current, depth = queue.pop(0)
        for inner in returned_functions(project, current):
            if any(_decorates(fact) for fact in project.functions[inner]):
                if depth < 4:
                    queue.append((inner, depth + 1))
            else:
                result.append(inner)
    return result


def _decorates(fact: FunctionFact) -> bool:
    """Whether a nested function is a decorator itself: it takes one thing, named as functions
    are."""
    return len(fact.params) == 1 and _FUNCTION_NAME.fullmatch(fact.params[0]) is not None


# --- classes --------------------------------------------------------------------------------------


def mro(project: Project, class_id: str) -> tuple[str, ...]:
    """The class and its ancestors, nearest first: ids of the project's own, dotted names of
    others."""
    known = project.memo_mro.get(class_id)
    if known is not None:
        return known
    stack = [(class_id, iter(_begun(project, class_id)))]
    while stack:
        current, bases = stack[-1]
        base = next((b for b in bases if ":" in b and b not in project.memo_mro), None)
        if base is not None:
            stack.append((base, iter(_begun(project, base))))
            continue
        stack.pop()
        line = _linearized(project, project.memo_bases[current])
        project.memo_mro[current] = (current, *_near(line))
    return project.memo_mro[class_id]


def _near(line: Sequence[str]) -> Sequence[str]:
    """Ancestors without those of the project that are too far away to be anybody's, in classes that a program
    has written; what they all begin with in a library counts."""
    if len(line) <= _MOST_ANCESTORS:
        return line
    far = [one for one in line[_MOST_ANCESTORS:] if ":" not in one]
    return (*line[:_MOST_ANCESTORS], *far)


def _begun(project: Project, class_id: str) -> Sequence[str]:
    """The bases of a class, which until its ancestors are known has none but itself: it may inherit from
    itself."""
    project.memo_mro[class_id] = (class_id,)
    project.memo_bases[class_id] = bases = _bases(project, class_id)
    return bases


def _linearized(project: Project, bases: Sequence[str]) -> Sequence[str]:
    lines = [project.memo_mro[base] if ":" in base else (base,) for base in bases]
    if len(lines) == 1:
        return tuple(dict.fromkeys(lines[0]))
    return _merge([*map(list, lines), list(bases)])


def _bases(project: Project, class_id: str) -> list[str]:
    """The bases of a class: ids of the project's own, dotted names of others."""
    class_ = project.classes[class_id]
    module = class_id.partition(":")[0]
    outer = class_.name.rpartition(".")[0]
    direct: list[str] = []
    for base in class_.bases:
        things = resolve(project, module, base)
        if not things and outer:
            things = _scoped_class(project, module, outer, base)
        if not things and base.partition(".")[0] not in project.packages and "()" not in base:
            things = (Thing("external", base),)
        classes = {thing.id for thing in things if thing.kind == "class"} - {class_id}
        if len(classes) > 1:
            for one in classes:
                project.alternatives.setdefault(one, set()).update(classes - {one})
        for thing in things:
            if (thing.kind == "class" and thing.id != class_id) or thing.kind == "external":
                direct.append(thing.id)
    return direct


def _scoped_class(project: Project, module: str, outer: str, name: str) -> tuple[Thing, ...]:
    while outer:
        for candidate in (f"{module}:{outer}.{name}", f"{module}:{outer}.<locals>.{name}"):
            if candidate in project.classes:
                return (Thing("class", candidate),)
        outer = outer.rpartition(".")[0]
    return ()


def _merge(lines: list[list[str]]) -> list[str]:
    """C3; where the bases contradict each other, the first that is left goes first."""
    result: list[str] = []
    lines = [list(line) for line in lines if line]
    while lines:
        for line in lines:
            head = line[0]
            if not any(head in other[1:] for other in lines):
                break
        else:
            head = lines[0][0]
        result.append(head)
        lines = [rest for line in lines if (rest := [name for name in line if name != head])]
    return result


OwnMethods = tuple[dict[str, str], frozenset[str]]
"""The methods that a class defines, by name, and those of them that are properties."""


def inherited(line: Iterable[OwnMethods]) -> tuple[dict[str, str], list[str]]:
    """The methods and properties of a class, from those that it and its ancestors define, nearest first."""
    methods: dict[str, str] = {}
    properties: set[str] = set()
    for own_methods, own_properties in line:
        properties |= own_properties - methods.keys()
        methods = {**own_methods, **methods}
    return methods, sorted(properties)


def method_owner(project: Project, class_id: str, name: str) -> str:
    """The id of the nearest class that defines the method; empty where none of the project's
    does."""
    key = (class_id, name)
    known = project.memo_methods.get(key)
    if known is None:
        known = ""
        if name in project.definers:
            for base in mro(project, class_id):
                if f"{base}.{name}" in project.functions:
                    known = base
                    break
        project.memo_methods[key] = known
    return known


def relatives(project: Project, class_id: str) -> tuple[frozenset[str], frozenset[str]]:
    """The subclasses of a class, and what else is in their inheritance beside the class' own."""
    known = project.memo_relatives.get(class_id)
    if known is None:
        below = frozenset(project.subclasses.get(class_id, ()))
        beside = frozenset(base for sub in below for base in mro(project, sub))
        known = (below, beside - below - frozenset(mro(project, class_id)))
        project.memo_relatives[class_id] = known
    return known


def method_owners(project: Project, class_id: str, name: str, virtual: bool) -> list[str]:
    """The classes whose definition of a method an instance may run: the nearest, and if the
    instance may be a subclass', all that its subclasses bring in."""
    nearest = method_owner(project, class_id, name)
    found = [nearest] if nearest else []
    for other in sorted(project.alternatives.get(nearest, ())):
        owner = method_owner(project, other, name)
        if owner and owner not in found:
            found.append(owner)
    if virtual and name in project.definers:
        below, beside = relatives(project, class_id)
        for owner in project.definers[name]:
            if owner not in found and (owner in below or (not nearest and owner in beside)):
                found.append(owner)
    return found


def many_overrides(project: Project, class_id: str, owners: Sequence[str]) -> bool:
    """Whether these definitions of a method are too many below the class to tell which one is meant.
    Those for other frameworks do not compete with those for torch."""
    if len(owners) <= _MOST_OVERRIDES:
        return False
    ancestors = mro(project, class_id)
    below = [owner for owner in owners if owner not in ancestors]
    return len([owner for owner in below if _imports_torch(project, owner)] or below) > (
        _MOST_OVERRIDES
    )


def _imports_torch(project: Project, class_id: str) -> bool:
    return imports_torch(project.files[project.modules[class_id.partition(":")[0]]])


def imports_torch(facts: FileFacts) -> bool:
    """Whether a file imports torch, or something of it."""
    return any(target == "torch" or target.startswith("torch.") for _, target in facts.imports)


def akin(project: Project, one: str, other: str) -> bool:
    """Whether one of two classes inherits from the other, or both are the same."""
    return one in mro(project, other) or other in mro(project, one)


def class_of(project: Project, function_id: str) -> str:
    """The id of the class whose method a function is, or is nested in; else empty."""
    known = project.memo_classes.get(function_id)
    if known is None:
        known = project.memo_classes[function_id] = _class_of(project, function_id)
    return known


def _class_of(project: Project, function_id: str) -> str:
    module, _, name = function_id.partition(":")
    while name:
        name = name.rpartition(".")[0]
        if name.endswith("<locals>"):
            name = name[: -len(".<locals>")]
            continue
        if f"{module}:{name}" in project.classes:
            return f"{module}:{name}"
        if not name:
            return ""
    return ""


def dotted_id(identity: str) -> str:
    """``pkg.module:Class.method`` as ``pkg.module.Class.method``."""
    return identity.replace(":", ".", 1)


def dotted_thing(thing: Thing) -> str:
    """The dotted name of a thing."""
    return dotted_id(thing.id)


def things_named(project: Project, things: Iterable[Thing]) -> list[str]:
    """The dotted names of things, each once."""
    return list(dict.fromkeys(dotted_thing(thing) for thing in things))
