"""Files of an application that stand alone: nothing imports them, they import nothing of the project, and
they run nothing themselves. What other versions, or other projects, have left there is not run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from pytest_dispatchguard.lint.callgraph.project import Project

_BY_NAME = frozenset("hydra imp importlib jsonargparse pkgutil pydoc runpy".split())
"""Packages that import what a text names, so that no import tells of it."""
_LOADED_BY_NAME = re.compile(
    r"(?:^|/)(?:__init__|conftest|hubconf|setup|(?:config|configuration|modeling)_\w+)\.py$|\.ipynb$"
)
"""Files that tools, or other libraries, load by their names."""


def stray_files(project: Project) -> frozenset[str]:
    """The paths of such files, of those that stand beside others that are imported."""
    if any(map(imports_by_name, _targets(project))):
        return frozenset()
    ends, parts = _by_end(project), parts_of(project.modules)
    imports = {
        path: set(_imported_by(project, path, ends, parts)) - {path} for path in project.files
    }
    imported = set[str]().union(*imports.values())
    beside = {path.rpartition("/")[0] for path in imported}
    return frozenset(
        path
        for path, facts in project.files.items()
        if path not in imported
        and path.rpartition("/")[0] in beside
        and not (facts.runs or imports[path])
        and _LOADED_BY_NAME.search(path) is None
        and not any(path.startswith(f"{folder}/") for folder in project.packaged)
    )


def _targets(project: Project) -> Iterator[str]:
    return (target for facts in project.files.values() for _, target in facts.imports)


def parts_of(modules: Iterable[str]) -> frozenset[str]:
    """The parts of the names of modules: by these, and no others, an import may begin that leads to one."""
    return frozenset(part for module in modules for part in module.split("."))


def may_reach(target: str, parts: frozenset[str]) -> bool:
    """Whether an import may lead to files of the project, or to all of them by their names."""
    return target.partition(".")[0] in parts or imports_by_name(target)


def imports_by_name(target: str) -> bool:
    """Whether what is imported imports what a text names."""
    return target.partition(".")[0] in _BY_NAME or target.endswith(".LightningCLI")


def _by_end(project: Project) -> Mapping[str, list[str]]:
    """The files by the ends of their modules' names: those of `pkg.nets.unet` are itself, `nets.unet` and
    `unet`, by which scripts import it that extend the path."""
    found: dict[str, list[str]] = {}
    for module, path in project.modules.items():
        end = module
        while end:
            found.setdefault(end, []).append(path)
            end = end.partition(".")[2]
    return found


def _imported_by(
    project: Project, path: str, ends: Mapping[str, list[str]], parts: frozenset[str]
) -> Iterator[str]:
    """The files that the imports of one may run; all of them, where it may be either of several."""
    folder = path.rpartition("/")[0]
    for bound, target in project.files[path].imports:
        name = target if target.partition(".")[0] in parts else ""
        if bound in ("*", target) and target in project.packages:
            # `import nets.unet` binds `nets`, and a star import may name modules.
            yield from (p for m, p in project.modules.items() if m.startswith(f"{target}."))
        while name:
            beside = f"{folder}/{name.replace('.', '/')}.py".removeprefix("/")
            if beside in project.files:
                yield beside
            if name in project.packages:
                yield from [project.modules[name]] if name in project.modules else ()
            else:
                yield from ends.get(name, ())
            name = name.rpartition(".")[0]
