"""Whether changes outside function bodies leave the meaning of all other code as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_dispatchguard.lint.callgraph.name_resolution import assigned, returned_instances
from pytest_dispatchguard.lint.callgraph.project import Project, imports_torch
from pytest_dispatchguard.lint.facts import Value
from pytest_dispatchguard.lint.incremental.changes import Change
from pytest_dispatchguard.lint.incremental.name_mentions import Mentions
from pytest_dispatchguard.lint.judge.briefs import holds_tensors


def means_the_same(was: Project, now: Project, rel: str, change: Change) -> bool:
    """Whether names resolve as before in the whole project except for the changed bodies, as far as that
    depends on a file's imports, the attributes its classes assign, and the return values of its
    functions."""
    module = now.module_of[rel]
    return (
        imports_torch(was.files[rel]) == imports_torch(now.files[rel])
        and all(_assigns_alike(was, now, f"{module}:{name}") for name in change.attrs)
        and all(
            returned_instances(was, function_id) == returned_instances(now, function_id)
            for function_id in (f"{module}:{name}" for name in change.returns)
        )
    )


def files_using_returns(changes: Mapping[str, Change], mentions: Mentions) -> set[str] | None:
    """The files that may call functions whose return values changed; None if that is unknown."""
    found: set[str] = set()
    for rel, change in changes.items():
        for name in {name.rpartition(".")[2] for name in change.returns}:
            # What a `forward` returns, those are told that call its module, by whatever name.
            if not name.isascii() or mentions.renamed(name) or name == "forward":
                return None
            found |= {rel} | mentions.member(name) | mentions.starred(name)
    return found


def _tensors_in(attrs: Mapping[str, Sequence[Value]]) -> dict[str, Sequence[Value]]:
    return {name: values for name, values in attrs.items() if holds_tensors(values)}


def _assigns_alike(was: Project, now: Project, class_id: str) -> bool:
    """Whether the attributes of a class resolve as before."""
    before, after = was.classes[class_id].attrs, now.classes[class_id].attrs
    if _tensors_in(before) != _tensors_in(after):
        return False  # visible to everyone who has an instance
    return all(
        assigned(was, class_id, before.get(name, ()))
        == assigned(now, class_id, after.get(name, ()))
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name)
    )
