"""A call graph that loads the facts of a file on first use. What concerns all files at once (who inherits
from whom, who defines what) is taken from the last solution."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping
from typing import NamedTuple, TypeVar

from pytest_dispatchguard.lint.callgraph.build import methods_defined, names_bound, packages_of
from pytest_dispatchguard.lint.callgraph.class_hierarchy import mro
from pytest_dispatchguard.lint.callgraph.name_resolution import bases
from pytest_dispatchguard.lint.callgraph.project import Project
from pytest_dispatchguard.lint.facts import ClassFact, FileFacts, FunctionFact

_T = TypeVar("_T")


class Families(NamedTuple):
    """The class hierarchy of a project, as stored."""

    lines: dict[str, list[str]]
    """Each class, with itself and its ancestors."""
    definers: dict[str, list[str]]
    subclasses: dict[str, list[str]]
    alternatives: dict[str, list[str]]


def families_of(project: Project) -> Families:
    """The class hierarchy of a fully loaded project."""
    return Families(
        {class_id: list(mro(project, class_id)) for class_id in project.classes},
        {name: owners for name, owners in project.definers.items() if owners},
        project.subclasses,
        {class_id: sorted(others) for class_id, others in project.alternatives.items()},
    )


def pack_families(families: Families) -> str:
    """The families as JSON."""
    return json.dumps(families, separators=(",", ":"))


def unpack_families(text: str) -> Families:
    """The families from JSON."""
    return Families(*json.loads(text))


class _Table(dict[str, _T]):
    """Facts keyed by module, or by an id in a module; a file is loaded when one of its entries is read."""

    def __init__(self, read: Callable[[str], object]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, key: str) -> _T:
        if self._read(self._home(key)):
            return self[key]
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        if super().__contains__(key):
            return True
        return bool(self._read(self._home(str(key)))) and super().__contains__(key)

    def _home(self, key: str) -> str:
        return key.partition(":")[0]

    def get(self, key: str, default: _T | None = None) -> _T | None:  # type: ignore[override]  # no other default is asked for
        """The entry of a key."""
        return self[key] if key in self else default  # noqa: SIM401 - this is what get is


class _Files(_Table[FileFacts]):
    """The same, keyed by path."""

    def _home(self, key: str) -> str:
        return key


class _Functions(_Table[list[FunctionFact]]):
    """Functions by id; whether a method exists is known without loading its file."""

    def __init__(self, read: Callable[[str], object], families: Families) -> None:
        super().__init__(read)
        self._families = families

    def __contains__(self, key: object) -> bool:
        owner, _, name = str(key).rpartition(".")
        if owner in self._families.lines:
            return owner in self._families.definers.get(name, ())
        return super().__contains__(key)


class _Classes(_Table[ClassFact]):
    """Classes by id; whether a class exists is known without loading its file."""

    def __init__(self, read: Callable[[str], object], known: Container[str]) -> None:
        super().__init__(read)
        self._known = known

    def __contains__(self, key: object) -> bool:
        return key in self._known


class _Bound(_Table[dict[str, list[str]]]):
    """Bound names of every module of the project."""

    def __init__(self, read: Callable[[str], object], modules: Container[str]) -> None:
        super().__init__(read)
        self._modules = modules

    def __contains__(self, key: object) -> bool:
        return key in self._modules


def project_on_demand(
    modules: Mapping[str, str],
    families: Families,
    facts: Callable[[str], FileFacts],
    packaged: frozenset[str] = frozenset(),
) -> Project:
    """A project of these modules (dotted name to path, sorted by path); `facts` loads the facts of a file
    on first use."""
    begun: set[str] = set()

    def read(module: str) -> bool:
        """Load a file if it was not loaded yet; return whether it was not."""
        if module in begun or module not in modules:
            return False
        begun.add(module)
        path = modules[module]
        files[path] = found = facts(path)
        classes.update((f"{module}:{class_.name}", class_) for class_ in found.classes)
        for function in found.functions:
            function_id = f"{module}:{function.name}"
            if dict.__contains__(functions, function_id):
                dict.__getitem__(functions, function_id).append(function)
            else:
                dict.__setitem__(functions, function_id, [function])
        for class_id, name in methods_defined(found, module, classes):
            methods.setdefault(class_id, []).append(name)
        starred = [target for name, target in found.imports if name == "*"]
        if starred:
            stars[module] = starred
        bound[module] = names_bound(found, module)
        return True

    module_of = {path: module for module, path in modules.items()}
    files = _Files(lambda path: read(module_of.get(path, "")))
    functions = _Functions(read, families)
    classes = _Classes(read, families.lines)
    methods: _Table[list[str]] = _Table(read)
    bound = _Bound(read, modules)
    stars: _Table[list[str]] = _Table(read)
    project = Project(
        files,
        modules,
        module_of,
        functions,
        classes,
        families.definers,
        methods,
        packages_of(modules),
        bound,
        stars,
        bases,
        packaged=packaged,
    )
    project.memo_mro.update((name, tuple(line)) for name, line in families.lines.items())
    project.subclasses.update(families.subclasses)
    project.alternatives.update((c, set(others)) for c, others in families.alternatives.items())
    return project
