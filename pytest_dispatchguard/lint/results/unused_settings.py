"""Settings that match nothing in the whole project, a line for each: most are misspelt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.lint.callgraph.name_resolution import absolute
from pytest_dispatchguard.lint.callgraph.project import Project, dotted_id
from pytest_dispatchguard.lint.hotness.patterns import patterns, picked_by
from pytest_dispatchguard.spelling import nearest

_GLOB = "*?["


def idle_names(config: Config, project: Project) -> Iterator[str]:
    """Patterns that pick no function of the whole project, and classes that it does not have."""
    for key, given in (("hot-roots", config.hot_roots), ("cold", config.cold)):
        for pattern in given:
            one = patterns([pattern])
            if not any(picked_by(project, i, one, f) for i, f in project.functions.items()):
                yield f'{key}: "{pattern}" matches no function{_instead(project, pattern)}'
    for name in config.tensor_types:
        if _is_missing(project, name):
            classes = map(dotted_id, project.classes)
            yield f'tensor-types: "{name}" is not a class{_nearest_of(name, classes)}'


def _instead(project: Project, pattern: str) -> str:
    if pattern.startswith("@"):
        decorators = {
            d for facts in project.functions.values() for f in facts for d in f.decorators
        }
        return _advice(nearest(pattern[1:], decorators), "@")
    if any(char in pattern for char in _GLOB):
        return ""
    return _nearest_of(pattern, map(dotted_id, chain(project.functions, project.classes)))


def _nearest_of(name: str, valid: Iterable[str]) -> str:
    """The end of a line: the nearest of the dotted names that share the last or the first parts with a
    mistaken one. To compare all names of a project would take too long."""
    stem, _, last = name.rpartition(".")
    alike = [
        v for v in valid if v == last or v.endswith("." + last) or v.rpartition(".")[0] == stem
    ]
    return _advice(nearest(name, alike))


def _advice(near: str | None, mark: str = "") -> str:
    return "" if near is None else f'; did you mean "{mark}{near}"?'


def _is_missing(project: Project, name: str) -> bool:
    """Whether it is certain that a dotted name is no class: its module is the project's own and does
    not have it. What compiled modules and libraries hold is not known."""
    module, _, last = name.rpartition(".")
    if not module:
        return any(dotted_id(i).endswith("." + last) for i in project.classes)
    if module not in project.bound or project.stars.get(module):
        return False
    return not absolute(project, name)
