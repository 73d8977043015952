"""What is hot after a change, told from what was hot before it: where bodies of functions changed, and
nothing else that others can see, only what they lead to is looked at anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import NamedTuple

from pytest_dispatchguard.lint.briefs import Briefer
from pytest_dispatchguard.lint.calls import edges
from pytest_dispatchguard.lint.facts import CallFact, FileFacts, FunctionFact
from pytest_dispatchguard.lint.heat import Heat, solve_again
from pytest_dispatchguard.lint.packing import frame
from pytest_dispatchguard.lint.project import Project, methods_defined, names_bound
from pytest_dispatchguard.lint.unmoved import Change, change_of


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


Unnoticed = Callable[[str, FunctionFact, FileFacts], bool]
"""Whether it makes no difference to what did not change that a file, by its path, has a function or not."""


def carry(before: Solution, new: Mapping[str, FileFacts], unnoticed: Unnoticed) -> Carried | None:
    """The state in which some files have other facts; None where more has changed than bodies of functions,
    and than functions that came or went `unnoticed`. Nothing may have been recorded of the project."""
    project = before.project
    bodies: set[str] = set()
    changes: dict[str, Change] = {}
    for rel, facts in new.items():
        old = project.files[rel]
        change = change_of(old, facts, frozenset())
        if (
            change is None
            or not all(unnoticed(rel, function, facts) for function in change.came)
            or not all(unnoticed(rel, function, old) for function in change.went)
        ):
            return None
        changes[rel] = change
        bodies |= _changed_bodies(old, facts, project.module_of[rel])
    now = _with_facts(project, new, changes)
    heat = before.heat
    walked = bodies & heat.basis.ways.keys()
    if any(not _leads_as_before(before, now, source) for source in walked):
        heat = solve_again(now, heat, walked)
    classes = _classes_below(now, changes)
    solution = Solution(now, heat, before.briefer.after(now, heat, classes))
    touched = {now.modules[class_id.partition(":")[0]] for class_id in classes}
    anew = (new.keys() | touched) & solution.briefer.hot.keys()
    if heat is not before.heat:
        anew |= _told_otherwise(before, solution)
    return Carried(solution, anew, heat is not before.heat)


def _changed_bodies(old: FileFacts, new: FileFacts, module: str) -> set[str]:
    """The functions that a file had, and has, with other bodies."""
    was, now = _whole(old), _whole(new)
    return {f"{module}:{name}" for name in was.keys() & now.keys() if was[name] != now[name]}


def _whole(facts: FileFacts) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for function in facts.functions:
        found.setdefault(function.name, []).append(frame(function, whole=True))
    return found


def _with_facts(
    project: Project, new: Mapping[str, FileFacts], changes: Mapping[str, Change]
) -> Project:
    """The project with other facts of some files, in which what did not change has the name it had."""
    functions = dict(project.functions)
    classes = dict(project.classes)
    bound = dict(project.bound)
    ours = {project.module_of[rel] for rel in new}
    for rel, facts in new.items():
        module = project.module_of[rel]
        for function in changes[rel].went:
            functions.pop(f"{module}:{function.name}", None)
        functions.update((f"{module}:{function.name}", []) for function in facts.functions)
        for function in facts.functions:
            functions[f"{module}:{function.name}"].append(function)
        classes.update((f"{module}:{class_.name}", class_) for class_ in facts.classes)
        bound[module] = names_bound(facts, module)
    calls = {
        key: things
        for key, things in project.memo_calls.items()
        if key[0].partition(":")[0] not in ours
    }
    now = replace(
        project,
        files={**project.files, **new},
        functions=functions,
        classes=classes,
        bound=bound,
        memo_calls=calls,
    )
    if not any(change.came or change.went for change in changes.values()):
        return now
    return replace(now, **methods_defined(now.files, now.modules, now.classes)._asdict())


def _classes_below(project: Project, changes: Mapping[str, Change]) -> set[str]:
    """The classes that define other methods, or inherit others."""
    found: set[str] = set()
    for rel, change in changes.items():
        for function in (*change.came, *change.went):
            owner = f"{project.module_of[rel]}:{function.name.rpartition('.')[0]}"
            if owner in project.classes:
                found.update((owner, *project.subclasses.get(owner, ())))
    return found


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
