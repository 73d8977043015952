"""What judging one file needs to know about the project: a `Brief` for each file with hot functions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from pytest_dispatchguard.lint.callgraph.calls import is_property, scope_of, symbols_called
from pytest_dispatchguard.lint.callgraph.class_hierarchy import (
    OwnMethods,
    inherited,
    method_owner,
    mro,
)
from pytest_dispatchguard.lint.callgraph.families import is_module
from pytest_dispatchguard.lint.callgraph.name_resolution import absolute, lookup, resolve
from pytest_dispatchguard.lint.callgraph.project import Project, dotted_id
from pytest_dispatchguard.lint.callgraph.symbols import Symbol
from pytest_dispatchguard.lint.facts import (
    Brief,
    CalleeBrief,
    ClassBrief,
    FunctionFact,
    Value,
)
from pytest_dispatchguard.lint.hotness.profile import kinds_of
from pytest_dispatchguard.lint.knowledge.library_names import canonical

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_dispatchguard.lint.callgraph.arguments import Given
    from pytest_dispatchguard.lint.facts import HotFact
    from pytest_dispatchguard.lint.hotness.profile import Observed

_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")


class Hot(Protocol):
    """The part of `solve.Heat` that briefs are made from."""

    @property
    def hot(self) -> Mapping[str, HotFact]:
        """The hot functions, by id."""

    @property
    def given(self) -> Mapping[str, Given]:
        """The arguments that hot code passes to them."""

    @property
    def on_cpu(self) -> Mapping[str, Sequence[str]]:
        """Which of their parameters only receive CPU tensors."""

    @property
    def observed(self) -> Observed:
        """The recorded profile."""


class Briefer:
    """Makes the briefs of a solved project, one file at a time."""

    __slots__ = (
        "classes",
        "fields",
        "heat",
        "hot",
        "modules",
        "own_attrs",
        "own_methods",
        "project",
        "values",
    )

    def __init__(self, project: Project, heat: Hot) -> None:
        self.project = project
        self.heat = heat
        self.hot: dict[str, list[str]] = {}
        """The hot functions of each file that has any, in order."""
        for function_id in heat.hot:
            path = project.modules[function_id.partition(":")[0]]
            self.hot.setdefault(path, []).append(function_id)
        # Shared by several briefs:
        self.values: dict[tuple[str, str], Value] = {}
        self.own_methods: dict[str, OwnMethods] = {}
        self.own_attrs: dict[str, dict[str, list[Value]]] = {}
        self.classes: dict[str, ClassBrief] = {}
        self.fields: dict[str, dict[str, list[Value]]] = {}
        self.modules: dict[str, Value] = {}
        """Dotted names of classes to what calling their instances gives; empty if they are no modules."""

    def brief(self, path: str) -> Brief:
        """The brief of a file that has hot functions."""
        return _brief(self.project, self.heat, path, sorted(self.hot[path]), self)


def _brief(project: Project, heat: Hot, path: str, hot: list[str], memo: Briefer) -> Brief:
    facts = project.files[path]
    module = project.module_of[path]
    brief = Brief(path, module)
    brief.imports = sorted({target.partition(".")[0] for _, target in facts.imports})
    brief.names = _names(project, module, memo)
    for name, values in facts.assigns.items():
        brief.globals[name] = [_value(project, module, value, memo) for value in values]
    mentioned: set[str] = set()
    for class_ in facts.classes:
        class_id = f"{module}:{class_.name}"
        brief.classes[class_.name] = _class_brief(project, class_id, memo)
        mentioned.add(dotted_id(class_id))
    for function_id in hot:
        name = function_id.partition(":")[2]
        brief.hot[name] = heat.hot[function_id]
        tensors = sorted({t for fact in project.functions[function_id] for t in fact.tensors})
        if tensors:
            brief.tensors[name] = tensors
        given = heat.given.get(function_id)
        if given:
            brief.given[name] = given
        if heat.observed.runs(function_id):
            kinds = kinds_of(heat.observed.seen[function_id])
            if kinds:
                brief.seen[name] = kinds
        on_cpu = heat.on_cpu.get(function_id)
        if on_cpu:
            brief.on_cpu[name] = list(on_cpu)
        _callees(project, function_id, brief, memo)
    for names in brief.names.values():
        mentioned.update(names)
    for values in (
        *brief.globals.values(),
        *(v for c in brief.classes.values() for v in c.attrs.values()),
    ):
        mentioned.update(value[5:] for value in values if value.startswith("call:"))
    for callee in brief.callees.values():
        if callee.returns.startswith("call:"):
            mentioned.add(callee.returns[5:])
    for name in sorted(mentioned | _annotated(brief)):
        held = _fields_of(project, name, memo)
        if held:
            brief.fields[name] = held
    modules = ((name, _called(project, name, memo)) for name in sorted(mentioned))
    brief.modules = {name: returns for name, returns in modules if returns}
    return brief


def _annotated(brief: Brief) -> set[str]:
    """The names in annotations of the attributes of the file's classes, and of what its calls return."""
    values = [
        value
        for class_ in brief.classes.values()
        for values in class_.attrs.values()
        for value in values
    ]
    values += [callee.returns for callee in brief.callees.values()]
    return {
        name for value in values if value.startswith("ann:") for name in _NAME.findall(value[4:])
    }


def _fields_of(project: Project, name: str, memo: Briefer) -> dict[str, list[Value]]:
    """The attributes of a project class that hold tensors."""
    known = memo.fields.get(name)
    if known is None:
        known = {}
        things = absolute(project, name) if name.partition(".")[0] in project.packages else ()
        if len(things) == 1 and things[0].kind == "class":
            known = _tensor_fields(project, things[0].id, memo)
        memo.fields[name] = known
    return known


def _tensor_fields(project: Project, class_id: str, memo: Briefer) -> dict[str, list[Value]]:
    """The attributes of a class that hold tensors, including inherited ones, with the assigned values."""
    found: dict[str, list[Value]] = {}
    for base in mro(project, class_id):
        if base in project.classes:
            for attribute, values in _own_attrs(project, base, memo).items():
                found.setdefault(attribute, values)
    return {a: v for a, v in found.items() if holds_tensors(v)}


def holds_tensors(values: Sequence[Value]) -> bool:
    """Whether an assigned value may be a tensor: an annotation, a registration or a call of torch says so."""
    return any(
        value in ("param", "buffer", "built", "tensor")
        or value.startswith("call:torch.")
        or (value.startswith("ann:") and "Tensor" in value)
        for value in values
    )


def _called(project: Project, name: str, memo: Briefer) -> Value:
    """What calling an instance of a project class gives; empty if that is no module."""
    known = memo.modules.get(name)
    if known is None:
        known = ""
        things = absolute(project, name) if name.partition(".")[0] in project.packages else ()
        if things and all(t.kind == "class" and is_module(project, t.id) for t in things):
            returns = {_forward_returns(project, thing.id, memo) for thing in things}
            known = returns.pop() if len(returns) == 1 else "unknown"
        memo.modules[name] = known
    return known


def _forward_returns(project: Project, class_id: str, memo: Briefer) -> Value:
    target = f"{method_owner(project, class_id, 'forward')}.forward"
    found = project.functions.get(target, ())
    returns = {_returned(project, target, fact, memo) for fact in found}
    return returns.pop() if len(returns) == 1 else "unknown"


def _names(project: Project, module: str, memo: Briefer) -> dict[str, list[str]]:
    """Every name of the module's namespace, with what it may refer to, nearest first."""
    names: dict[str, list[str]] = {}
    for name, entries in project.bound[module].items():
        found: list[str] = []
        for entry in entries:
            if entry[0] == "=":
                found.append(dotted_id(entry[1:]))
            elif entry.startswith("@name:"):
                found.append(_value(project, module, entry[1:], memo)[5:])
            elif entry[0] != "@":
                found.append(canonical(entry))
        if not found:
            continue
        for thing in lookup(project, module, name):
            if thing.kind in ("function", "class", "module", "external"):
                found.append(dotted_id(thing.id))
        names[name] = list(dict.fromkeys(found))
    return names


def _resolved(project: Project, module: str, name: str) -> str:
    """The dotted name that a name refers to where it was written; the name itself if unknown."""
    things = resolve(project, module, name)
    if not things and name.partition(".")[0] in project.packages:
        things = absolute(project, name)
    if len(things) == 1 and things[0].kind in ("class", "function", "module", "external"):
        return dotted_id(things[0].id)
    return canonical(name)


def _value(project: Project, module: str, value: Value, memo: Briefer) -> Value:
    word, colon, rest = value.partition(":")
    if not colon:
        return value
    key = (module, value)
    known = memo.values.get(key)
    if known is None:
        if word == "ann":
            known = "ann:" + (
                rest
                if "Literal[" in rest
                else _NAME.sub(lambda match: _resolved(project, module, match.group()), rest)
            )
        else:
            known = f"{word}:{_resolved(project, module, rest)}"
        memo.values[key] = known
    return known


def _own_attrs(project: Project, class_id: str, memo: Briefer) -> dict[str, list[Value]]:
    known = memo.own_attrs.get(class_id)
    if known is None:
        module = class_id.partition(":")[0]
        known = {
            name: list(dict.fromkeys(_value(project, module, value, memo) for value in values))
            for name, values in project.classes[class_id].attrs.items()
        }
        memo.own_attrs[class_id] = known
    return known


def _own_methods(project: Project, class_id: str, memo: Briefer) -> OwnMethods:
    known = memo.own_methods.get(class_id)
    if known is None:
        methods = {name: f"{class_id}.{name}" for name in project.methods.get(class_id, ())}
        properties = frozenset(
            name
            for name, method in methods.items()
            if any(fact.decorators and is_property(fact) for fact in project.functions[method])
        )
        known = memo.own_methods[class_id] = methods, properties
    return known


def _class_brief(project: Project, class_id: str, memo: Briefer) -> ClassBrief:
    known = memo.classes.get(class_id)
    if known is not None:
        return known
    line = mro(project, class_id)
    brief = ClassBrief(
        is_module=is_module(project, class_id),
        ancestors=[canonical(dotted_id(base)) for base in line[1:]],
    )
    own = [base for base in line if base in project.classes]
    for base in own:
        for name, values in _own_attrs(project, base, memo).items():
            merged = brief.attrs.get(name)
            if merged is None:
                brief.attrs[name] = list(values)
            elif merged != values:
                merged.extend(value for value in values if value not in merged)
    brief.methods, brief.properties = inherited([_own_methods(project, b, memo) for b in own])
    memo.classes[class_id] = brief
    return brief


def _callees(project: Project, function_id: str, brief: Brief, memo: Briefer) -> None:
    scope = scope_of(project, function_id)
    class_name = scope.class_id.partition(":")[2]
    for fact in project.functions[function_id]:
        for call in fact.calls:
            if call.how.startswith("hook"):
                continue
            root = call.name.partition(".")[0]
            bound_here = root in (scope.self_name, "super()") and class_name
            key = f"{class_name}.{call.name}" if bound_here else call.name
            if root in fact.locals:
                key = f"{function_id.partition(':')[2]}.{call.name}"
            if key in brief.callees:
                continue
            things = symbols_called(project, scope, fact, call.name)
            callee = _callee(project, things, memo)
            if callee is not None:
                brief.callees[key] = callee


def _callee(project: Project, things: tuple[Symbol, ...], memo: Briefer) -> CalleeBrief | None:
    """What is certain about a call that may run any of these functions."""
    targets = [
        thing.id for thing in things if thing.kind == "function" and thing.id in project.functions
    ]
    if not targets:
        return None
    found = [
        (target, fact)
        for target in targets
        for fact in project.functions[target]
        if not any(d.endswith((".setter", ".deleter", "overload")) for d in fact.decorators)
    ]
    if not found:
        return None
    returns = {_returned(project, target, fact, memo) for target, fact in found}
    decorators = [set(_decorators(project, target, fact)) for target, fact in found]
    # If there are several implementations, the one for torch decides where only one answer is possible.
    best = next((t for t in targets if ".torch." in t.partition(":")[0] + "."), targets[0])
    return CalleeBrief(
        target=best,
        returns=returns.pop() if len(returns) == 1 else "unknown",
        decorators=sorted(set.intersection(*decorators)),
        returns_function=all(fact.returns_function for _, fact in found),
        yields=all(fact.yields for _, fact in found),
        on_cpu=all(fact.on_cpu for _, fact in found),
        reads=all(fact.reads for _, fact in found),
    )


_MOST_RETURNS = 4
"""Functions that give what the next one gave, that are followed."""


def _returned(
    project: Project, target: str, fact: FunctionFact, memo: Briefer, depth: int = _MOST_RETURNS
) -> Value:
    """What a function returns; where that is what another function of the project returns, what that is."""
    value = _value(project, target.partition(":")[0], fact.returns, memo)
    name = value.removeprefix("call:")
    if name == value or not depth or name.partition(".")[0] not in project.packages:
        return value
    things = absolute(project, name)
    if len(things) != 1 or things[0].kind != "function" or things[0].id not in project.functions:
        return value
    behind = {
        _returned(project, things[0].id, other, memo, depth - 1)
        for other in project.functions[things[0].id]
    }
    return behind.pop() if len(behind) == 1 else "unknown"


def _decorators(project: Project, function_id: str, fact: FunctionFact) -> list[str]:
    module = function_id.partition(":")[0]
    return [_resolved(project, module, name) for name in fact.decorators]
