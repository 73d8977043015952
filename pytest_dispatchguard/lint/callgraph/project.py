"""The facts of all files as one project: tables of its modules, functions and classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pytest_dispatchguard.lint.callgraph.name_search import Search
from pytest_dispatchguard.lint.callgraph.symbols import Name, Symbols
from pytest_dispatchguard.lint.facts import ClassFact, FileFacts, FunctionFact


@dataclass(frozen=True, slots=True)
class Project:
    """Tables of what the files define; made by `build.build`."""

    files: dict[str, FileFacts]
    """By path, relative to the project root."""
    modules: Mapping[str, str]
    """Dotted name to path."""
    module_of: Mapping[str, str]
    functions: dict[str, list[FunctionFact]]
    """By id ``module:qualified.name``; more than one where a name is defined again."""
    classes: dict[str, ClassFact]
    definers: dict[str, list[str]]
    """Method name to the ids of the classes that define it."""
    methods: dict[str, list[str]]
    """Class id to the names of the methods it defines."""
    packages: frozenset[str]
    """Names of all modules and of the packages that contain them."""
    bound: dict[str, dict[str, list[str]]]
    """Module to its names, and each name to ``=id`` (a definition), ``dotted.name`` (an import) or
    ``@value`` (an assignment)."""
    stars: Mapping[str, list[str]]
    """Module to the modules of its star imports."""
    find_bases: Callable[[Project, str], list[str]]
    """`name_resolution.bases`: names lead to classes, and classes by the names of their bases to their
    methods."""
    search: Search = field(default_factory=Search)
    memo_mro: dict[str, tuple[str, ...]] = field(default_factory=dict)
    memo_bases: dict[str, list[str]] = field(default_factory=dict)
    memo_methods: dict[tuple[str, str], str] = field(default_factory=dict)
    memo_relatives: dict[str, tuple[frozenset[str], frozenset[str]]] = field(default_factory=dict)
    memo_absolute: dict[Name, Symbols] = field(default_factory=dict)
    memo_located: dict[tuple[str, str], str] = field(default_factory=dict)
    """Folder and the first part of what a file in it imports, to the folder that this is looked up in."""
    memo_calls: dict[str, dict[tuple[int, str], Symbols]] = field(default_factory=dict)
    """Function id to what the names written in it stand for, by line and name."""
    memo_classes: dict[str, str] = field(default_factory=dict)
    subclasses: dict[str, list[str]] = field(default_factory=dict)
    packaged: frozenset[str] = frozenset()
    """The top-level packages, as folders, that get installed: those of a library."""
    memo_offered: dict[str, bool] = field(default_factory=dict)
    alternatives: dict[str, set[str]] = field(default_factory=dict)
    """Class to those that may replace it as a base, where one name is imported from either of two modules."""


def imports_torch(facts: FileFacts) -> bool:
    """Whether a file imports torch, or something from it."""
    for _, target in facts.imports:
        if target.startswith("torch") and (len(target) == 5 or target[5] == "."):
            return True
    return False


def class_of(project: Project, function_id: str) -> str:
    """The id of the class that a method, or a function nested in a method, belongs to; empty for other
    functions."""
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
