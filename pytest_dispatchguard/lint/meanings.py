"""Whether what changed in a file, beside bodies of functions, means the same to all that others write."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_dispatchguard.lint.calls import is_telling
from pytest_dispatchguard.lint.mentions import Mentions
from pytest_dispatchguard.lint.project import (
    Project,
    assigned,
    direct_imports,
    imported_modules,
    imports_torch,
    returned_instances,
)
from pytest_dispatchguard.lint.unnoticed import Change


def means_the_same(
    was: Project, now: Project, rel: str, change: Change, mentions: Mentions
) -> bool:
    """Whether names lead where they led in all of the project but the bodies that changed, as far as that is
    for what a file imports, what its classes assign to themselves, and what its functions return."""
    module = now.module_of[rel]
    return (
        _is_imported_alike(was, now, rel, module, mentions)
        and all(_assigns_alike(was, now, f"{module}:{name}") for name in change.attrs)
        and all(
            returned_instances(was, function_id) == returned_instances(now, function_id)
            for function_id in (f"{module}:{name}" for name in change.returns)
        )
    )


def told_of_returns(changes: Mapping[str, Change], mentions: Mentions) -> set[str] | None:
    """The files that may call functions that return something else; None where nobody knows which."""
    found: set[str] = set()
    for rel, change in changes.items():
        for name in {name.rpartition(".")[2] for name in change.returns}:
            if not name.isascii() or mentions.renamed(name):
                return None
            found |= {rel} | mentions.member(name) | mentions.starred(name)
    return found


def _is_imported_alike(
    was: Project, now: Project, rel: str, module: str, mentions: Mentions
) -> bool:
    """Whether methods that a file may mean by their rare names are the same, and it counts as one for torch
    as before."""
    if was.files[rel].imports == now.files[rel].imports:
        return True
    if imports_torch(was.files[rel]) != imports_torch(now.files[rel]):
        return False
    near = direct_imports(now, module) ^ direct_imports(was, module)
    far = imported_modules(now, module) ^ imported_modules(was, module)
    for name, owners in now.definers.items():
        if len(owners) != 1 or not is_telling(f"x.{name}"):
            continue
        home = owners[0].partition(":")[0]
        if home in near and mentions.member(name) & {rel, *mentions.importers(module)}:
            return False
        if home in far and rel in mentions.member(name):
            return False
    return True


def _assigns_alike(was: Project, now: Project, class_id: str) -> bool:
    """Whether the attributes of a class stand for what they stood for."""
    before, after = was.classes[class_id].attrs, now.classes[class_id].attrs
    return all(
        assigned(was, class_id, before.get(name, ()))
        == assigned(now, class_id, after.get(name, ()))
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name)
    )
