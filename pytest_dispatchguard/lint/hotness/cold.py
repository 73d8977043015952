"""Functions that are cold whoever calls them: the user says so, or they run only at set-up, for logging
or display, when saving or loading, in tests, or are deprecated."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from pytest_dispatchguard.lint.callgraph.calls import writes
from pytest_dispatchguard.lint.callgraph.class_hierarchy import mro
from pytest_dispatchguard.lint.callgraph.families import families, looks_like_module
from pytest_dispatchguard.lint.callgraph.name_resolution import resolve
from pytest_dispatchguard.lint.callgraph.project import Project, class_of
from pytest_dispatchguard.lint.facts import FunctionFact
from pytest_dispatchguard.lint.hotness.patterns import Patterns, picked_by
from pytest_dispatchguard.lint.knowledge.cold_names import (
    COLD_DECORATORS,
    COLD_METHODS,
    COLD_PATHS,
    COLD_UNLESS_ROOTS,
    KERNEL_DECORATORS,
    REMEMBERING_DECORATORS,
    SCRIPT_PATHS,
    TEST_PATHS,
    TESTING,
    looks_like_tests,
)

_CONFIG_CLASS = re.compile(
    r"\w*(?:Config|Configuration|Arguments|Args|Options|Exception|Error|Warning)"
)
_DEPRECATED = re.compile(
    r"(?:\w+[.:])*_*Deprecated(?:\w*(?:Model|Module|Layer|Pipeline|Class|Metric|Loss))?(?:Mixin)?"
)
_FOR_DEBUGGING = re.compile(r"_*Debug(?!ged)\w*|\w*Debugger")
"""Classes for whoever looks for an error."""
_EXCEPTION = re.compile(r"(?:\w+\.)*\w*(?:Exception|Error|Warning)")


@dataclass(frozen=True, slots=True)
class Coldness:
    """What decides whether a function is cold: the user's patterns, and the functions the user named as
    hot."""

    project: Project
    patterns: Patterns
    named: frozenset[str]
    memo: dict[str, bool] = field(default_factory=dict)


def is_cold(coldness: Coldness, function_id: str) -> bool:
    """Whether the function is cold. Naming a function as hot overrides the defaults; nothing overrides
    naming it as cold."""
    known = coldness.memo.get(function_id)
    if known is None:
        known = named_cold(coldness, function_id) or (
            function_id not in coldness.named
            and (
                _cold_by_default(coldness.project, function_id)
                or _sets_up(coldness.project, function_id)
                or _goes_away(coldness.project, function_id)
            )
        )
        coldness.memo[function_id] = known
    return known


def cold_unless_root(function_id: str) -> bool:
    """Whether its name suggests that it is called at set-up or now and then, not in every step."""
    name = function_id.partition(":")[2].rpartition(".")[2]
    return COLD_UNLESS_ROOTS.fullmatch(name) is not None


def named_cold(coldness: Coldness, function_id: str) -> bool:
    """Whether the user named it as cold: by a comment on the function or its class, or in the
    configuration."""
    project = coldness.project
    facts = project.functions[function_id]
    if any(fact.mark for fact in facts):
        return any(fact.mark == "cold" for fact in facts)
    owner = class_of(project, function_id)
    if owner and project.classes[owner].mark == "cold":
        return True
    return bool(picked_by(project, function_id, coldness.patterns, facts))


def path_of(project: Project, function_id: str) -> str:
    """The path of the file that defines the function."""
    return project.modules[function_id.partition(":")[0]]


def in_tests(project: Project, function_id: str) -> bool:
    """Whether the function belongs to tests, benchmarks or documentation."""
    path = path_of(project, function_id)
    return _of_tests(path) and not (looks_like_tests(path) and _evaluates(project, path))


def _evaluates(project: Project, path: str) -> bool:
    """Whether a file feeds a model, and has no tests."""
    facts = project.files[path]
    if any(target.partition(".")[0] in TESTING for _, target in facts.imports):
        return False
    names = (fact.name.rpartition(".")[2] for fact in facts.functions)
    return not any(name.startswith("test") for name in names) and _is_program(project, path)


@lru_cache(maxsize=4096)
def _of_tests(path: str) -> bool:
    return TEST_PATHS.search(path) is not None


@lru_cache(maxsize=4096)
def _cold_path(path: str) -> bool:
    return COLD_PATHS.search(path) is not None


def _cold_by_default(project: Project, function_id: str) -> bool:
    module, _, name = function_id.partition(":")
    if COLD_METHODS.fullmatch(name.rpartition(".")[2]) or in_tests(project, function_id):
        return True
    path = path_of(project, function_id)
    if _cold_path(path) or (SCRIPT_PATHS.search(path) and not _is_program(project, path)):
        return True
    facts = project.functions[function_id]
    # Overloads in front of a function do not make it cold.
    return _is_for_set_up(project, module, name) or all(
        _cold_by_decorator(project, module, fact) for fact in facts
    )


def _is_program(project: Project, path: str) -> bool:
    """Whether a file trains a model, or feeds one in a loop."""
    return any(fact.training_loop or fact.feeds_model for fact in project.files[path].functions)


_IN_MAIN = "main.<locals>."


def in_main(function_id: str) -> bool:
    """Whether a function is defined inside `main`: only a loop of that makes it hot."""
    return function_id.partition(":")[2].startswith(_IN_MAIN)


def _is_for_set_up(project: Project, module: str, name: str) -> bool:
    """Whether a function is defined inside `main`, which does not call it in a loop."""
    if not name.startswith(_IN_MAIN):
        return False
    called = _called(project, f"{module}:main", loop=True)
    waiting = list(called)
    while waiting:
        more = _called(project, f"{module}:{_IN_MAIN}{waiting.pop()}", loop=False) - called
        called |= more
        waiting += more
    return name.removeprefix(_IN_MAIN).partition(".")[0] not in called


def _called(project: Project, function_id: str, *, loop: bool) -> set[str]:
    """The plain names that a function calls, in a loop perhaps."""
    return {
        call.name
        for fact in project.functions.get(function_id, ())
        for call in fact.calls
        if call.how == "call" and (call.loop or not loop) and "." not in call.name
    }


def _keeps_results(decorator: str) -> bool:
    last = decorator.rpartition(".")[2]
    known = last in ("lru_cache", "cache", "cached_property")
    return known or REMEMBERING_DECORATORS.fullmatch(decorator) is not None


def is_kept(fact: FunctionFact) -> bool:
    """Whether what a function gives is kept, by its decorators, and the function not called again."""
    return any(map(_keeps_results, fact.decorators))


def _cold_by_decorator(project: Project, module: str, fact: FunctionFact) -> bool:
    for decorator in fact.decorators:
        if decorator in ("property", "staticmethod", "classmethod"):
            continue
        if KERNEL_DECORATORS.fullmatch(decorator) or _keeps_results(decorator):
            return True
        if any(thing.id in COLD_DECORATORS for thing in resolve(project, module, decorator)):
            return True
    return writes(fact)


def _sets_up(project: Project, function_id: str) -> bool:
    """Whether it creates something long-lived: a module, an optimizer, a configuration, an exception."""
    owner, _, last = function_id.rpartition(".")
    if last not in ("__init__", "__new__", "__post_init__") or owner not in project.classes:
        return False
    known = families(project, owner, {})
    if any(one.lasting for _, one in known) or looks_like_module(project, owner):
        return True
    if _CONFIG_CLASS.fullmatch(owner.rpartition(":")[2].rpartition(".")[2]):
        return True
    return any(_EXCEPTION.fullmatch(base.rpartition(":")[2]) for base in mro(project, owner))


def _goes_away(project: Project, function_id: str) -> bool:
    """Whether it or its class is deprecated, or for debugging, so that nobody would optimize it."""
    owner = class_of(project, function_id)
    if owner:
        fact = project.classes[owner]
        if fact.mark == "hot":
            return False
        if any(_DEPRECATED.fullmatch(base) for base in (*fact.bases, *mro(project, owner)[1:])):
            return True
        if _is_deprecated(fact.decorators) or _FOR_DEBUGGING.fullmatch(fact.name):
            return True
    return all(_is_deprecated(fact.decorators) for fact in project.functions[function_id])


def _is_deprecated(decorators: Iterable[str]) -> bool:
    return any(name.rpartition(".")[2].lstrip("_") == "deprecated" for name in decorators)
