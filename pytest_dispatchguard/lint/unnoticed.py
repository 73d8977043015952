"""What a change of a file is to the rest of the project, told from its facts of before and now: bodies that
may lead elsewhere, functions that came or went unnoticed. In doubt it is more, and all is found out anew."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pytest_dispatchguard.lint.calls import is_property
from pytest_dispatchguard.lint.facts import Brief, FileFacts, FunctionFact
from pytest_dispatchguard.lint.libraries import LIBRARY_ROOTS
from pytest_dispatchguard.lint.packing import frame, frame_around, packed_call
from pytest_dispatchguard.lint.patterns import means
from pytest_dispatchguard.lint.project import OwnMethods, dotted_id, inherited, names_bound

_WORD = re.compile(r"\w+", re.ASCII)
_LOCALS = ".<locals>."


class About(NamedTuple):
    """What is known of one file of a project that was solved."""

    module: str
    walked: Collection[str]
    """The functions whose bodies were read to find what is hot."""
    lines: Mapping[str, Sequence[str]]
    """Its classes that inherit from classes of the project, with the ids of these, nearest first."""
    below: frozenset[str]
    """Its classes that those of other files inherit from, where these have hot functions."""


class Matters(NamedTuple):
    """What makes it matter that there is a function of some name."""

    mentioned: Callable[[str], bool]
    """Whether the facts of any file hold the word."""
    methods: frozenset[str]
    """What every class is asked for."""
    patterns: Sequence[str]
    """Of the configuration, for functions."""
    idle: bool
    """Whether something of the configuration matches nothing: what is near to it is told."""


class Change(NamedTuple):
    """Functions that a file did not have, and those that it no longer has."""

    came: Sequence[FunctionFact]
    went: Sequence[FunctionFact]
    bodies: Mapping[str, Sequence[FunctionFact]]
    """Those whose bodies were read and may lead elsewhere now, by name, as they were."""
    tensors: bool
    """Whether bodies that were read use other tensors than they did."""


def asked_methods(extra: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """The methods that library classes have called, those of rule packs among them, and those that calling an
    instance runs."""
    known = (known.methods for known in LIBRARY_ROOTS.values())
    return frozenset({"forward", "call"}.union(*known, *extra.values()))


def words_in(facts: Iterable[FileFacts]) -> set[str]:
    """All words by which facts can lead to a function: of what is written in files, all but the names of
    functions where they are defined."""
    said: set[str] = set()
    for file in facts:
        for pair in file.imports:
            said.update(pair)
        tables = [file.assigns]
        for class_ in file.classes:
            said.add(class_.name)
            said.update(class_.bases, class_.decorators)
            tables.append(class_.attrs)
        for function in file.functions:
            said.add(function.returns)
            said.update(function.decorators, function.defaults.values())
            tables.append(function.locals)
            for call in function.calls:
                said.add(call.name)
                said.update(call.given, call.under)
        for table in tables:
            said.update(table, *table.values())
    return words_of(said)


def words_of(names: Iterable[str]) -> set[str]:
    """The words of dotted names and of all else that is written."""
    return set(_WORD.findall("\n".join(names)))


def change_of(old: FileFacts, new: FileFacts, walked: Container[str]) -> Change | None:
    """What functions came and went, and which bodies are others, where nothing else that finding out what
    is hot has read of the file, or can read, is other than it was; else None. The body of a function that was
    not walked is read by nobody, but for the hooks it sets and the functions it hands out."""
    if old.error or new.error or frame_around(old) != frame_around(new):
        return None
    before, now = ({f.name for f in facts.functions} for facts in (old, new))
    stayed, stay = ([f for f in facts.functions if f.name in before & now] for facts in (old, new))
    if [f.name for f in stayed] != [f.name for f in stay]:
        return None
    leading: set[str] = set()
    tensors = False
    for was, is_ in zip(stayed, stay, strict=True):
        if frame(was, whole=False) != frame(is_, whole=False):
            return None
        if was.name in walked:
            tensors |= was.tensors != is_.tensors
            if _leading(was) != _leading(is_):
                leading.add(was.name)
    return Change(
        [f for f in new.functions if f.name not in before],
        [f for f in old.functions if f.name not in now],
        {name: [f for f in stayed if f.name == name] for name in sorted(leading)},
        tensors,
    )


def _leading(function: FunctionFact) -> object:
    """What of a body decides of where it leads."""
    return function.locals, [packed_call(call) for call in function.calls]


def unnoticed_change(
    old: FileFacts,
    new: FileFacts,
    walked: Container[str],
    unnoticed: Callable[[FunctionFact, FileFacts], bool],
) -> Change | None:
    """As `change_of`, where every function that came or went is `unnoticed` in the file that has it."""
    change = change_of(old, new, walked)
    if change is None:
        return None
    each = [*((f, new) for f in change.came), *((f, old) for f in change.went)]
    return change if all(unnoticed(function, facts) for function, facts in each) else None


def is_unnoticed(function: FunctionFact, facts: FileFacts, about: About, matters: Matters) -> bool:
    """Whether it makes no difference to any other function that there is this one, or is not."""
    owner, _, last = function.name.rpartition(".")
    around = function.name.split(_LOCALS)
    marked = any(class_.mark for class_ in facts.classes if class_.name == owner)
    dotted = dotted_id(f"{about.module}:{function.name}")
    return not (
        function.decorators
        or function.mark
        or function.training_loop
        or any(call.how == "hook" for call in function.calls)
        or any(_LOCALS.join(around[: i + 1]) in about.walked for i in range(len(around)))
        or last.startswith("__")
        or not last.isascii()
        or last in matters.methods
        or matters.mentioned(last)
        or marked
        or owner in about.below
        or any(means(pattern, dotted) for pattern in matters.patterns)
        or matters.idle
    )


def remade(
    brief: Brief, change: Change, facts: FileFacts, about: About, own: Callable[[str], OwnMethods]
) -> Brief:
    """The brief of a file whose functions came and went unnoticed, or have other bodies with the same calls.
    `facts` are those of now, `own` gives what a class of the project defines."""
    came = {f.name: [dotted_id(f"{about.module}:{f.name}")] for f in change.came}
    known = {**brief.names, **came}
    names = {name: known[name] for name in names_bound(facts, about.module) if name in known}
    touched = {f"{about.module}:{f.name.rpartition('.')[0]}" for f in (*change.came, *change.went)}
    classes = dict(brief.classes)
    for name, class_ in brief.classes.items():
        line = [f"{about.module}:{name}", *about.lines.get(name, ())]
        if touched.intersection(line):
            methods, properties = inherited([own(base) for base in line])
            classes[name] = replace(class_, methods=methods, properties=properties)
    tensors = {
        name: found
        for name in brief.hot
        if (found := sorted({t for f in facts.functions if f.name == name for t in f.tensors}))
    }
    return replace(brief, names=names, classes=classes, tensors=tensors)


def own_methods(facts: FileFacts, class_id: str) -> OwnMethods:
    """What a class of a file defines."""
    prefix = class_id.partition(":")[2] + "."
    found = [f for f in facts.functions if f.name.rpartition(".")[0] + "." == prefix]
    methods = {f.name[len(prefix) :]: f"{class_id.partition(':')[0]}:{f.name}" for f in found}
    properties = frozenset(f.name[len(prefix) :] for f in found if is_property(f))
    return methods, properties
