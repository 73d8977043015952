"""The class hierarchy: ancestors in method resolution order, and which classes define a method."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_dispatchguard.lint.callgraph.project import Project, imports_torch

_MOST_ANCESTORS = 60
"""Of the project's own classes. No hand-written class has more."""
_MOST_OVERRIDES = 3
"""With more, a receiver that is declared as the base class may have any of them."""
_MOST_OF_ABSTRACT = 25
"""The same, where the base class has none itself."""
OwnMethods = tuple[dict[str, str], frozenset[str]]
"""The ids of the methods that a class defines, by name, and the names of those that are properties."""


def mro(project: Project, class_id: str) -> tuple[str, ...]:
    """The class and its ancestors in method resolution order: ids of the project's classes, dotted names of
    others."""
    known = project.memo_mro.get(class_id)
    if known is not None:
        return known
    stack = [(class_id, iter(_start(project, class_id)))]
    while stack:
        current, bases = stack[-1]
        base = next((b for b in bases if ":" in b and b not in project.memo_mro), None)
        if base is not None:
            stack.append((base, iter(_start(project, base))))
            continue
        stack.pop()
        line = _linearize(project, project.memo_bases[current])
        project.memo_mro[current] = (current, *_without_far(line))
    return project.memo_mro[class_id]


def _start(project: Project, class_id: str) -> Sequence[str]:
    """The bases of a class. Until its ancestors are known it has only itself, since it may inherit from
    itself."""
    project.memo_mro[class_id] = (class_id,)
    project.memo_bases[class_id] = bases = project.find_bases(project, class_id)
    return bases


def _linearize(project: Project, bases: Sequence[str]) -> Sequence[str]:
    lines = [project.memo_mro[base] if ":" in base else (base,) for base in bases]
    if len(lines) == 1:
        return tuple(dict.fromkeys(lines[0]))
    return _merge([*map(list, lines), list(bases)])


def _merge(lines: list[list[str]]) -> list[str]:
    """C3 linearization; where the bases are inconsistent, takes the first class left."""
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


def _without_far(line: Sequence[str]) -> Sequence[str]:
    """Leave out the project's own classes after the nearest ones: generated classes can have hundreds of
    ancestors. Those of libraries stay."""
    if len(line) <= _MOST_ANCESTORS:
        return line
    far = [one for one in line[_MOST_ANCESTORS:] if ":" not in one]
    return (*line[:_MOST_ANCESTORS], *far)


def inherited(line: Iterable[OwnMethods]) -> tuple[dict[str, str], list[str]]:
    """The methods and properties of a class, given what it and its ancestors define, nearest first."""
    methods: dict[str, str] = {}
    properties: set[str] = set()
    for own_methods, own_properties in line:
        properties |= own_properties - methods.keys()
        methods = {**own_methods, **methods}
    return methods, sorted(properties)


def method_owner(project: Project, class_id: str, name: str) -> str:
    """The id of the nearest class that defines the method; empty if no class of the project does."""
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


def method_owners(project: Project, class_id: str, name: str, virtual: bool) -> list[str]:
    """The classes whose definition of a method an instance may run: the nearest one, and for a `virtual`
    instance those that subclasses add."""
    nearest = method_owner(project, class_id, name)
    found = [nearest] if nearest else []
    for other in sorted(project.alternatives.get(nearest, ())):
        owner = method_owner(project, other, name)
        if owner and owner not in found:
            found.append(owner)
    if virtual and name in project.definers:
        below, beside = relatives(project, class_id)
        for owner in project.definers[name]:
            if owner in found:
                continue
            if owner in below or (
                owner in beside and (not nearest or _overrides(project, owner, below, name))
            ):
                found.append(owner)
    return found


def _overrides(project: Project, mixin: str, below: Iterable[str], name: str) -> bool:
    """Whether a subclass takes a method from a mixin, in place of the class that it inherits from as well."""
    return any(method_owner(project, one, name) == mixin for one in below)


def relatives(project: Project, class_id: str) -> tuple[frozenset[str], frozenset[str]]:
    """The subclasses of a class, and those of their ancestors that are neither subclasses nor ancestors of
    the class: mixins."""
    known = project.memo_relatives.get(class_id)
    if known is None:
        below = frozenset(project.subclasses.get(class_id, ()))
        beside = frozenset(base for sub in below for base in mro(project, sub))
        known = (below, beside - below - frozenset(mro(project, class_id)))
        project.memo_relatives[class_id] = known
    return known


def many_overrides(project: Project, class_id: str, name: str, owners: Sequence[str]) -> bool:
    """Whether subclasses define a method too often to tell which definition runs. Definitions for other
    frameworks do not compete with those for torch. Where the class itself has none but an abstract one, it is
    always one of theirs."""
    if len(owners) <= _MOST_OVERRIDES:
        return False
    if len(owners) <= _MOST_OF_ABSTRACT and _is_abstract(project, class_id, name):
        return False
    ancestors = mro(project, class_id)
    below = [owner for owner in owners if owner not in ancestors]
    return len([owner for owner in below if _imports_torch(project, owner)] or below) > (
        _MOST_OVERRIDES
    )


def _is_abstract(project: Project, class_id: str, name: str) -> bool:
    facts = project.functions.get(f"{method_owner(project, class_id, name)}.{name}", ())
    return any(d.rpartition(".")[2] == "abstractmethod" for fact in facts for d in fact.decorators)


def _imports_torch(project: Project, class_id: str) -> bool:
    return imports_torch(project.files[project.modules[class_id.partition(":")[0]]])


def related(project: Project, one: str, other: str) -> bool:
    """Whether two classes are the same, or one inherits from the other."""
    return one in mro(project, other) or other in mro(project, one)
