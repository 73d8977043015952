"""What a change makes hot that it does not touch: the functions, and the new calls that lead to them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.edits import split_lines
from pytest_dispatchguard.lint import engine
from pytest_dispatchguard.lint.callgraph.calls import calls_to
from pytest_dispatchguard.lint.callgraph.project import Project, class_of, dotted_id
from pytest_dispatchguard.lint.pipeline.progress import no_progress
from pytest_dispatchguard.lint.pipeline.solve import solve
from pytest_dispatchguard.lint.pipeline.survey import Survey, Texts, facts_of, scout_files
from pytest_dispatchguard.lint.results.reported import is_shown
from pytest_dispatchguard.lint.session import Session
from pytest_dispatchguard.lint.sources.base_revision import before
from pytest_dispatchguard.lint.sources.files import Discovery
from pytest_dispatchguard.lint.sources.git_diff import Changes, touches
from pytest_dispatchguard.lint.sources.module_names import module_name
from pytest_dispatchguard.lint.store.packing import shape
from pytest_dispatchguard.model.findings import Elsewhere, Finding, Span

if TYPE_CHECKING:
    from pytest_dispatchguard.lint.results import baseline as baselines


@dataclass(frozen=True, slots=True)
class Cause:
    """A changed line that makes a function hot."""

    path: str
    span: Span
    function: str
    source: str


class NewlyHot:
    """The functions that were not hot before a change."""

    def __init__(
        self,
        project: Project,
        functions: frozenset[str],
        changes: Changes,
        read: Callable[[str], str | None],
    ) -> None:
        self._project = project
        self._functions = functions
        """Dotted names."""
        self._changes = changes
        self._read = read
        self._ids = {dotted_id(name): name for name in project.functions}

    @property
    def files(self) -> frozenset[str]:
        """Where they are defined."""
        modules = (self._ids[name].partition(":")[0] for name in self._functions)
        return frozenset(self._project.modules[module] for module in modules)

    def told_at_its_cause(self, finding: Finding) -> Finding | None:
        """The finding, told where the change made its function hot; None where it did not, or no changed line
        can be named."""
        cause = self._cause(finding)
        if cause is None:
            return None
        place = f"{finding.path}:{finding.span.line}"
        return replace(
            finding,
            path=cause.path,
            span=cause.span,
            function=cause.function,
            message=f"makes `{finding.function}` hot, where {place} has: {finding.message}",
            fix=None,
            source=cause.source,
            elsewhere=Elsewhere(finding.path, finding.span, finding.function),
        )

    def _cause(self, finding: Finding) -> Cause | None:
        way = () if finding.hot is None else finding.hot.path
        if not way or way[-1] not in self._functions or any(name not in self._ids for name in way):
            return None
        # What was hot before leads on to what was not: by a call that is new, or by one in a function that is
        # itself hot since then.
        for source, target in pairwise(way):
            if target in self._functions:
                cause = self._new_call(self._ids[source], self._ids[target])
                if cause is not None:
                    return cause
        return self._new_root(self._ids[way[0]]) if way[0] in self._functions else None

    def _new_call(self, source: str, target: str) -> Cause | None:
        for call in calls_to(self._project, source, target):
            found = self._changed(source, call.line, call.name.rpartition(".")[2])
            if found is not None:
                return found
        return None

    def _new_root(self, root: str) -> Cause | None:
        """The changed line that makes a function a root: its own definition, or that of its class."""
        owner = class_of(self._project, root)
        places = [
            (fact.line, root.rpartition(".")[2].rpartition(":")[2])
            for fact in self._project.functions[root]
        ]
        if owner:
            places.append((self._project.classes[owner].line, owner.rpartition(":")[2]))
        for line, name in places:
            found = self._changed(root, line, name.rpartition(".")[2])
            if found is not None:
                return found
        return None

    def _changed(self, function_id: str, line: int, word: str) -> Cause | None:
        """A word of a line, if the line is a changed one."""
        module, _, name = function_id.partition(":")
        path = self._project.modules[module]
        if not touches(self._changes.lines, path, line, line):
            return None
        lines = split_lines(self._read(path) or "", keepends=False)
        source = lines[line - 1] if line <= len(lines) else ""
        at = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", source)
        first, last = (at.start(), at.end()) if at else (0, len(source))
        return Cause(path, Span(line, first + 1, line, last + 1), name, source)


def findings_elsewhere(
    session: Session,
    discovery: Discovery,
    changes: Changes,
    untouched: Sequence[Finding],
    accepted: baselines.Baseline | None,
    texts: Mapping[str, str],
) -> tuple[list[Finding], tuple[str, ...]]:
    """Findings in functions that the changes make hot without touching them, each reported at the call in the
    targets that makes it hot. `untouched` are those in the targets; other files are linted for it. The second
    value has the failures of the linter in those."""
    newly = newly_hot(session, discovery, changes, texts)
    if newly is None:
        return [], ()
    asked = {f.rel for f in discovery.targets}
    others = tuple(f for f in discovery.project if f.rel in newly.files - asked)
    found = list(untouched)
    problems: tuple[str, ...] = ()
    if others:
        outcome = engine.run(session, Discovery(others, discovery.project), texts=texts)
        problems = outcome.problems
        more = outcome.findings
        if accepted is not None:
            from pytest_dispatchguard.lint.results import baseline as baselines

            more = baselines.match(more, accepted, checked=()).new
        found += [
            f for f in more if not touches(changes.lines, f.path, f.span.line, f.span.end_line)
        ]
    at_cause = (newly.told_at_its_cause(f) for f in found if is_shown(session.config, f))
    return [f for f in at_cause if f is not None and f.path in asked], problems


def newly_hot(
    session: Session, discovery: Discovery, changes: Changes, texts: Mapping[str, str]
) -> NewlyHot | None:
    """What the changes of a project make hot; None if they cannot change hotness."""
    config, cache = session.config, session.cache

    def scouted(files: Discovery, texts: Mapping[str, str]) -> Survey:
        return scout_files(
            config, files, cache, session.pool, texts, no_progress, lambda _: session.rules()
        )

    old_files, old_texts = before(config, discovery, changes)
    now, then = scouted(discovery, texts), scouted(old_files, old_texts)
    if _alike(config, now, then, changes):
        return None
    project, heat = solve(config, now, session.catalog, cache)
    old_project, was = solve(config, then, session.catalog, cache)
    moved = _moved_modules(config, changes)
    known = {_now_called(function_id, moved): function_id for function_id in was.hot}
    functions = {dotted_id(name): name for name in heat.hot}
    new = functions.keys() - known.keys()
    there = {dotted_id(name) for name in project.functions}
    gone = [known[name] for name in known.keys() - there]
    renamed = _renamed(project, {functions[name] for name in new}, old_project, gone, moved)
    return NewlyHot(project, frozenset(new) - renamed, changes, Texts(discovery, texts))


def _alike(config: Config, now: Survey, then: Survey, changes: Changes) -> bool:
    """Whether the files that differ hold the same but for what no hotness depends on."""
    if changes.new & now.files.keys() or changes.gone & then.files.keys():
        return False
    pairs = [(new, old) for new, old in changes.before.items() if new in now.files]
    facts_now = facts_of(config, now, [new for new, _ in pairs], None)
    facts_then = facts_of(config, then, [old for _, old in pairs if old in then.files], None)
    return all(
        old in facts_then and shape(facts_now[new]) == shape(facts_then[old]) for new, old in pairs
    )


def _moved_modules(config: Config, changes: Changes) -> dict[str, str]:
    """Modules whose file has moved: the names they have now, by those they had."""
    return {
        module_name(old, config.import_roots): module_name(new, config.import_roots)
        for new, old in changes.before.items()
        if new != old
    }


def _now_called(function_id: str, moved: Mapping[str, str]) -> str:
    """The dotted name that a function has now if its file has moved."""
    module, _, name = function_id.partition(":")
    return f"{moved.get(module, module)}.{name}"


def _renamed(
    project: Project,
    new: Iterable[str],
    old_project: Project,
    gone: Iterable[str],
    moved: Mapping[str, str],
) -> frozenset[str]:
    """Of functions that are hot by a new name, the dotted names of those that were hot by one that is gone:
    in the same module, the same but for what they, or their class, are called."""
    left: Counter[tuple[object, ...]] = Counter()
    classes: dict[tuple[str, str], set[str]] = {}
    there = {dotted_id(owner) for owner in project.classes}
    were = {_now_called(owner, moved) for owner in old_project.classes}
    for function_id in gone:
        module = function_id.partition(":")[0]
        module = moved.get(module, module)
        left[module, _likeness(old_project, function_id)] += 1
        owner, name = function_id.rpartition(".")[::2]
        if owner in old_project.classes and _now_called(owner, moved) not in there:
            classes.setdefault((module, name), set()).add(owner)
    found = set()
    for function_id in sorted(new):
        module = function_id.partition(":")[0]
        key = (module, _likeness(project, function_id))
        owner, name = function_id.rpartition(".")[::2]
        if left[key] > 0:
            left[key] -= 1
            found.add(dotted_id(function_id))
        elif (
            owner in project.classes
            and dotted_id(owner) not in were
            and len(classes.get((module, name), ())) == 1
        ):
            # Of one class the file has lost, and this one it has won, which is the same with changes.
            found.add(dotted_id(function_id))
    return frozenset(found)


def _likeness(project: Project, function_id: str) -> tuple[object, ...]:
    """What a function is like, its name aside, and the names of what it calls, which may be new too."""
    return tuple(
        (
            tuple(fact.params),
            tuple(fact.decorators),
            tuple((call.how, call.loop, len(call.given)) for call in fact.calls),
            tuple(sorted(look.partition(":")[0] for look in fact.looks)),
            fact.end_line - fact.line,
        )
        for fact in project.functions[function_id]
    )
