"""What a change to a file means for the rest of the project, from its old and new facts: function bodies
that may lead elsewhere, functions that were added or removed without anybody noticing. In doubt the
change counts as larger, and the whole project is solved again."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pytest_dispatchguard.lint.callgraph.build import names_bound
from pytest_dispatchguard.lint.callgraph.calls import is_property
from pytest_dispatchguard.lint.callgraph.class_hierarchy import OwnMethods, inherited
from pytest_dispatchguard.lint.callgraph.families import holds_modules, holds_tensors
from pytest_dispatchguard.lint.callgraph.project import dotted_id
from pytest_dispatchguard.lint.facts import Brief, FileFacts, FunctionFact
from pytest_dispatchguard.lint.hotness.patterns import means
from pytest_dispatchguard.lint.hotness.public_api import (
    is_training_script,
    is_without_gradients,
    takes_all,
)
from pytest_dispatchguard.lint.hotness.roots import model_calls
from pytest_dispatchguard.lint.knowledge.entry_points import FORWARDS, LIBRARY_ROOTS, OFFERED, STEPS
from pytest_dispatchguard.lint.store.packing import frame, frame_of_class, packed_call

_WORD = re.compile(r"\w+", re.ASCII)
_ROOT = re.compile(r"(?<![\w.])[^\W\d]\w*")
_LOCALS = ".<locals>."


class FileSummary(NamedTuple):
    """What is known about one file of a solved project."""

    module: str
    walked: Collection[str]
    """The functions whose bodies were analyzed to find what is hot."""
    lines: Mapping[str, Sequence[str]]
    """Its classes that inherit from classes of the project, with the ids of these ancestors, nearest
    first."""


class Relevance(NamedTuple):
    """When it makes a difference that a function of some name exists."""

    mentioned: Callable[[str], bool]
    """Whether the facts of any file contain the word."""
    methods: frozenset[str]
    """Methods that are looked up on every class."""
    patterns: Sequence[str]
    """The configured patterns for functions."""
    idle: bool
    """Whether a configured pattern matches nothing: the report then suggests similar names."""
    library: Container[str] = frozenset()
    """The modules whose functions users of the library call."""


class Change(NamedTuple):
    """What differs in a file."""

    came: Sequence[FunctionFact]
    went: Sequence[FunctionFact]
    bodies: Mapping[str, Sequence[FunctionFact]]
    """Functions whose bodies were analyzed and may lead elsewhere now: the old facts, by name."""
    tensors: bool
    """Whether analyzed bodies use other tensors than before."""
    bound: frozenset[str] = frozenset()
    """Names that are newly bound by imports and assignments."""
    attrs: frozenset[str] = frozenset()
    """Classes that assign other attributes to `self`."""
    takes: frozenset[str] = frozenset()
    """Functions whose parameters changed."""
    returns: frozenset[str] = frozenset()
    """Functions that return something else, or newly read their arguments."""
    offers: bool = False
    """Whether functions began or ceased to work on tensors that they are passed."""


def asked_methods(extra: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """The methods that library classes call, including those known from rule packs, and the methods that
    run when an instance is called."""
    known = (known.methods for known in LIBRARY_ROOTS.values())
    return frozenset({"forward", "call"}.union(*known, *extra.values()))


def words_in(facts: Iterable[FileFacts]) -> set[str]:
    """All words by which facts can lead to a function: everything written in files except the names of
    functions where they are defined."""
    said: set[str] = set()
    for file in facts:
        for pair in file.imports:
            said.update(pair)
        said.update(file.assigns)
        for class_ in file.classes:
            said.add(class_.name)
            said.update(class_.attrs)
        for function in file.functions:
            said.update(function.defaults.values(), function.locals)
            for call in function.calls:
                said.update(call.given, call.under)
        said.update(_looked_up(file))
    return words_of(said)


def roots_in(facts: FileFacts) -> set[str]:
    """The first names of dotted names in these facts, which are looked up in the module."""
    return set(_ROOT.findall("\n".join(_looked_up(facts))))


def _looked_up(facts: FileFacts) -> set[str]:
    said: set[str] = set()
    tables = [facts.assigns]
    for class_ in facts.classes:
        said.update(class_.bases, class_.decorators)
        tables.append(class_.attrs)
    for function in facts.functions:
        said.add(function.returns)
        said.update(function.decorators)
        said.update(call.name for call in function.calls)
        tables.append(function.locals)
    for table in tables:
        said.update(*table.values())
    return said


def words_of(names: Iterable[str]) -> set[str]:
    """The words of dotted names and of everything else."""
    return set(_WORD.findall("\n".join(names)))


def change_of(old: FileFacts, new: FileFacts, walked: Container[str]) -> Change | None:
    """What differs in a file; None if it is more than a `Change` can describe. The body of a function
    that was not analyzed matters only for the hooks it registers and the functions it returns."""
    bound, attrs = _bound_anew(old, new), _other_attrs(old, new)
    if old.error or new.error or bound is None or attrs is None:
        return None
    if is_training_script(old) != is_training_script(new):
        return None  # what users call changes
    before, now = ({f.name for f in facts.functions} for facts in (old, new))
    both = before & now
    stayed, stay = ([f for f in facts.functions if f.name in both] for facts in (old, new))
    if [f.name for f in stayed] != [f.name for f in stay]:
        return None
    leading: set[str] = set()
    takes: set[str] = set()
    returns: set[str] = set()
    tensors = offers = False
    in_main = any(name.startswith("main.<locals>.") for name in both)
    for was, is_ in zip(stayed, stay, strict=True):
        if frame(was) != frame(is_):
            if not _is_alike(was, is_):
                return None
            if (was.params, was.defaults) != (is_.params, is_.defaults):
                takes.add(was.name)
                offers |= takes_all(was) != takes_all(is_)
            if was.returns != is_.returns:
                returns.add(was.name)
        if was.reads != is_.reads:
            returns.add(was.name)
        if was.takes_tensors != is_.takes_tensors:
            if FORWARDS.fullmatch(was.name.rpartition(".")[2]) or is_without_gradients(was):
                return None
            offers = True
        if model_calls(was) != model_calls(is_):
            return None
        if was.name.endswith(".__call__") and model_calls(is_):
            same = was.params == is_.params and _leading(was) == _leading(is_)
            if not same:
                return None  # it may have become a callback, or a wrapper of its model
        if was.name.startswith("main") and in_main and _leading(was) != _leading(is_):
            return None  # a loop may have begun to call what is defined in `main`
        if was.name in walked:
            tensors |= was.tensors != is_.tensors
            if _leading(was) != _leading(is_):
                leading.add(was.name)
    return Change(
        [f for f in new.functions if f.name not in before],
        [f for f in old.functions if f.name not in now],
        {name: [f for f in stayed if f.name == name] for name in sorted(leading)},
        tensors,
        bound,
        attrs,
        frozenset(takes),
        frozenset(returns),
        offers,
    )


def _bound_anew(old: FileFacts, new: FileFacts) -> frozenset[str] | None:
    """The names that imports and assignments add to a file; None if any other binding changed."""
    stayed = [pair for pair in new.imports if pair in old.imports]
    kept = [(name, values) for name, values in new.assigns.items() if name in old.assigns]
    if stayed != old.imports or kept != list(old.assigns.items()):
        return None
    names = {pair[0] for pair in new.imports if pair not in old.imports}
    names |= new.assigns.keys() - old.assigns.keys()
    had = names_bound(old, "").keys() | {"*"}
    return None if names & had else frozenset(names)


def _other_attrs(old: FileFacts, new: FileFacts) -> frozenset[str] | None:
    """The classes that assign other attributes to `self`; None if anything else changed about classes."""
    if len(old.classes) != len(new.classes):
        return None
    found = set()
    for was, is_ in zip(old.classes, new.classes, strict=True):
        if frame_of_class(was) == frame_of_class(is_):
            continue
        alike = frame_of_class(replace(is_, attrs=was.attrs)) == frame_of_class(was)
        if not alike or holds_modules(was) != holds_modules(is_):
            return None
        if holds_tensors(was) != holds_tensors(is_):
            return None
        found.add(was.name)
    return frozenset(found)


def _is_alike(was: FunctionFact, is_: FunctionFact) -> bool:
    """Whether a function looks the same to others, except for its parameters and return value."""
    if _LOCALS in was.name or any(call.how.startswith("hook") for call in (*was.calls, *is_.calls)):
        return False
    # The first parameter says what `self` is called; the second, whether attention modules call it, or it is
    # the step of an environment.
    second = was.name.endswith(("__call__", ".step"))
    told = 2 if second else 1 if "." in was.name else 0
    if was.params[:told] != is_.params[:told]:
        return False
    same = replace(is_, params=was.params, defaults=was.defaults, returns=was.returns)
    return frame(was) == frame(same)


def _leading(function: FunctionFact) -> object:
    """The parts of a body that decide where it leads."""
    return function.locals, [packed_call(call) for call in function.calls]


def is_unnoticed(
    function: FunctionFact, facts: FileFacts, about: FileSummary, matters: Relevance
) -> bool:
    """Whether adding or removing a function makes no difference to code that does not mention it."""
    owner, _, last = function.name.rpartition(".")
    around = function.name.split(_LOCALS)
    classes = [class_ for class_ in facts.classes if class_.name == owner]
    marked = any(class_.mark for class_ in classes)
    in_library = about.module in matters.library
    dotted = dotted_id(f"{about.module}:{function.name}")
    return not (
        function.decorators
        or function.mark
        or function.training_loop
        or function.training_step
        or function.feeds_model
        or function.takes_batch
        or model_calls(function)
        or STEPS.fullmatch(last)
        or last in ("backward", "reset", "step", "symbolic", "unscale_", "update")
        or last in OFFERED
        or (function.takes_tensors and (in_library or FORWARDS.fullmatch(last) is not None))
        or (in_library and any(map(holds_tensors, classes)))
        or any(call.how.startswith("hook") for call in function.calls)
        or any(_LOCALS.join(around[: i + 1]) in about.walked for i in range(len(around)))
        or last.startswith(("__", "test"))
        or not last.isascii()
        or last in matters.methods
        or marked
        or any(means(pattern, dotted) for pattern in matters.patterns)
        or matters.idle
    )


def updated_brief(
    brief: Brief,
    change: Change,
    facts: FileFacts,
    about: FileSummary,
    own: Callable[[str], OwnMethods],
) -> Brief:
    """The new brief of a file in which functions were added or removed unnoticed, or bodies changed but
    call the same. `facts` are the new ones; `own` returns what a class of the project defines."""
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
