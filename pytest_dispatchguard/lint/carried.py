"""What is hot after a change, told from what was hot before it: where bodies of functions changed, and
nothing else that others can see, only what they lead to is looked at anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import NamedTuple

from pytest_dispatchguard.lint.briefs import Briefer
from pytest_dispatchguard.lint.calls import edges
from pytest_dispatchguard.lint.facts import CallFact, FileFacts, FunctionFact
from pytest_dispatchguard.lint.heat import Heat, solve_again
from pytest_dispatchguard.lint.packing import frame
from pytest_dispatchguard.lint.project import Project, with_facts
from pytest_dispatchguard.lint.unmoved import Change, unnoticed_change


class Solution(NamedTuple):
    """A state of a project, what is hot in it, and what makes briefs of that. The next one is made of it."""

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


Unnoticed = Callable[[str, FunctionFact, FileFacts], bool]
"""Whether it makes no difference to what did not change that a file, by its path, has a function or not."""


def carry(before: Solution, new: Mapping[str, FileFacts], unnoticed: Unnoticed) -> Carried | None:
    """The state in which some files have other facts; None where more has changed than bodies of functions,
    and than functions that came or went `unnoticed`. Nothing may have been recorded of the project. Where it
    gives a state it uses up the one of before."""
    project = before.project
    bodies: dict[str, list[FunctionFact]] = {}
    changes: dict[str, Change] = {}
    for rel, facts in new.items():
        old = project.files[rel]
        change = unnoticed_change(old, facts, (), partial(unnoticed, rel))
        if change is None:
            return None
        changes[rel] = change
        bodies |= _changed_bodies(old, facts, project.module_of[rel])
    with_facts(project, new)
    heat = before.heat
    walked = {source: was for source, was in bodies.items() if source in heat.basis.ways}
    if not all(_leads_as_before(before, source, was) for source, was in walked.items()):
        heat = solve_again(project, heat, walked)
    classes = _classes_below(project, changes)
    solution = Solution(project, heat, before.briefer.after(heat, classes))
    touched = {project.modules[class_id.partition(":")[0]] for class_id in classes}
    anew = (new.keys() | touched) & solution.briefer.hot.keys()
    if heat is not before.heat:
        anew |= _told_otherwise(before, solution)
    return Carried(solution, anew, heat is not before.heat)


def _changed_bodies(old: FileFacts, new: FileFacts, module: str) -> dict[str, list[FunctionFact]]:
    """The functions that a file had, and has with other bodies, as they were."""
    was, now = _by_name(old), _by_name(new)
    return {
        f"{module}:{name}": was[name]
        for name in was.keys() & now.keys()
        if [frame(f, whole=True) for f in was[name]] != [frame(f, whole=True) for f in now[name]]
    }


def _by_name(facts: FileFacts) -> dict[str, list[FunctionFact]]:
    found: dict[str, list[FunctionFact]] = {}
    for function in facts.functions:
        found.setdefault(function.name, []).append(function)
    return found


def _classes_below(project: Project, changes: Mapping[str, Change]) -> set[str]:
    """The classes that define other methods, or inherit others."""
    found: set[str] = set()
    for rel, change in changes.items():
        for function in (*change.came, *change.went):
            owner = f"{project.module_of[rel]}:{function.name.rpartition('.')[0]}"
            if owner in project.classes:
                found.update((owner, *project.subclasses.get(owner, ())))
    return found


def _leads_as_before(before: Solution, source: str, was: Sequence[FunctionFact]) -> bool:
    """Whether a function may run the same functions as before, and gives them the same."""
    ways = before.heat.basis.ways[source]
    if set(ways) != set(edges(before.project, source)):
        return False
    names = {edge.target.rpartition(":")[2].rpartition(".")[2] for edge in ways}

    def said(facts: Sequence[FunctionFact]) -> list[tuple[str, str, list[str], list[str]]]:
        return [
            (call.name, call.how, call.given, call.under)
            for fact in facts
            for call in fact.calls
            if _counts(call, names)
        ]

    return said(was) == said(before.project.functions[source])


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
