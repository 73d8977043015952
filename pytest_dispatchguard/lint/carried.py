"""What is hot after a change, told from what was hot before it: where the bodies of functions changed, and
nothing else of the project, only what they lead to is looked at anew."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import NamedTuple

from pytest_dispatchguard.lint.briefs import Briefer
from pytest_dispatchguard.lint.calls import edges
from pytest_dispatchguard.lint.facts import CallFact, FileFacts
from pytest_dispatchguard.lint.heat import Heat, solve_again
from pytest_dispatchguard.lint.packing import frame, frame_around
from pytest_dispatchguard.lint.project import Project


class Solution(NamedTuple):
    """A state of a project, what is hot in it, and what makes briefs of that."""

    project: Project
    heat: Heat
    briefer: Briefer


class Carried(NamedTuple):
    """The next state, and what it has other than the one before."""

    solution: Solution
    anew: AbstractSet[str]
    """Files that have other briefs, or perhaps the same."""
    moved: bool
    """Whether something else is hot, or in another way."""


def carry(before: Solution, new: Mapping[str, FileFacts]) -> Carried | None:
    """The state in which some files have other facts; None where more has changed than bodies of functions.
    Nothing may have been recorded of the project."""
    project = before.project
    changed: set[str] = set()
    for rel, facts in new.items():
        found = _changed_bodies(project.files[rel], facts, project.module_of[rel])
        if found is None:
            return None
        changed |= found
    now = _with_facts(project, new)
    heat = before.heat
    known = heat.basis.ways
    walked = changed & known.keys()
    if any(not _leads_as_before(before, now, source) for source in walked):
        heat = solve_again(now, heat, walked)
    solution = Solution(now, heat, before.briefer.after(now, heat))
    anew = {rel for rel in new if rel in solution.briefer.hot}
    if heat is not before.heat:
        anew |= _told_otherwise(before, solution)
    return Carried(solution, anew, heat is not before.heat)


def _changed_bodies(old: FileFacts, new: FileFacts, module: str) -> set[str] | None:
    """The functions of a file whose bodies changed; None where something else did."""
    if old.error or new.error or len(old.functions) != len(new.functions):
        return None
    if frame_around(old) != frame_around(new):
        return None
    changed = set()
    for was, now in zip(old.functions, new.functions, strict=True):
        if frame(was, whole=False) != frame(now, whole=False):
            return None
        if frame(was, whole=True) != frame(now, whole=True):
            changed.add(f"{module}:{now.name}")
    return changed


def _with_facts(project: Project, new: Mapping[str, FileFacts]) -> Project:
    """The project with other facts of some files, in which everything has the name it had."""
    functions = dict(project.functions)
    classes = dict(project.classes)
    for rel, facts in new.items():
        module = project.module_of[rel]
        functions.update((f"{module}:{function.name}", []) for function in facts.functions)
        for function in facts.functions:
            functions[f"{module}:{function.name}"].append(function)
        classes.update((f"{module}:{class_.name}", class_) for class_ in facts.classes)
    ours = {project.module_of[rel] for rel in new}
    calls = {
        key: things
        for key, things in project.memo_calls.items()
        if key[0].partition(":")[0] not in ours
    }
    files = {**project.files, **new}
    return replace(project, files=files, functions=functions, classes=classes, memo_calls=calls)


def _leads_as_before(before: Solution, now: Project, source: str) -> bool:
    """Whether a function may run the same functions as before, and gives them the same."""
    ways = before.heat.basis.ways[source]
    if set(ways) != set(edges(now, source)):
        return False
    names = {edge.target.rpartition(":")[2].rpartition(".")[2] for edge in ways}

    def said(project: Project) -> list[tuple[str, str, list[str], list[str]]]:
        return [
            (call.name, call.how, call.given, call.under)
            for fact in project.functions[source]
            for call in fact.calls
            if _counts(call, names)
        ]

    return said(before.project) == said(now)


def _counts(call: CallFact, names: AbstractSet[str]) -> bool:
    return bool(call.under) or call.name.rpartition(".")[2] in names


def _told_otherwise(before: Solution, now: Solution) -> set[str]:
    """Files of which other things are hot, in other ways, or with other arguments."""
    was, heat = before.heat, now.heat
    found = {
        rel
        for rel, functions in now.briefer.hot.items()
        if len(before.briefer.hot.get(rel, ())) != len(functions)
    }
    tables = ((was.hot, heat.hot), (was.given, heat.given), (was.on_cpu, heat.on_cpu))
    for old, new in tables:
        found.update(
            now.project.modules[function_id.partition(":")[0]]
            for function_id in heat.hot
            if old.get(function_id) != new.get(function_id)
        )
    return found
