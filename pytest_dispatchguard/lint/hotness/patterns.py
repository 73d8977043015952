"""Patterns in the configuration that match functions: dotted names, globs, ``@decorator``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from pytest_dispatchguard.lint.callgraph.name_resolution import resolve
from pytest_dispatchguard.lint.callgraph.project import Project, dotted_id
from pytest_dispatchguard.lint.facts import FunctionFact


class Patterns(NamedTuple):
    """The patterns that the user configured: dotted names and globs, and decorators."""

    names: tuple[str, ...]
    decorators: tuple[str, ...]


def patterns(given: Iterable[str]) -> Patterns:
    """Separate the configured patterns into names and decorators."""
    given = list(given)
    names = [p for p in given if not p.startswith("@")]
    return Patterns(tuple(names), tuple(p[1:] for p in given if p.startswith("@")))


def means(pattern: str, name: str) -> bool:
    """Whether a configured pattern matches a dotted name: the name itself, anything inside it, or a glob."""
    return name == pattern or name.startswith(pattern + ".") or fnmatchcase(name, pattern)


def decorator_names(project: Project, function_id: str, fact: FunctionFact) -> list[str]:
    """The decorators of a function, as written and as resolved."""
    module = function_id.partition(":")[0]
    found: list[str] = []
    for decorator in fact.decorators:
        found.append(decorator)
        found.extend(dotted_id(thing.id) for thing in resolve(project, module, decorator))
    return found


def picked_by(
    project: Project, function_id: str, patterns: Patterns, facts: Sequence[FunctionFact]
) -> str:
    """The first pattern that matches the function, or an empty string."""
    if patterns.names:
        name = dotted_id(function_id)
        for pattern in patterns.names:
            if means(pattern, name):
                return pattern
    if patterns.decorators:
        for fact in facts:
            for decorator in decorator_names(project, function_id, fact):
                for pattern in patterns.decorators:
                    if fnmatchcase(decorator, pattern) or decorator.endswith("." + pattern):
                        return "@" + pattern
    return ""
