"""What a change affects: functions that become hot or cold, and subclasses whose methods change. Based on
the last solution; files are loaded on first use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.lint.callgraph.arguments import Given
from pytest_dispatchguard.lint.callgraph.build import replace_facts
from pytest_dispatchguard.lint.callgraph.project import Project
from pytest_dispatchguard.lint.facts import FileFacts, HotFact
from pytest_dispatchguard.lint.hotness.cold import Coldness
from pytest_dispatchguard.lint.hotness.patterns import patterns
from pytest_dispatchguard.lint.hotness.profile import Observed
from pytest_dispatchguard.lint.hotness.reachability import ReachContext
from pytest_dispatchguard.lint.incremental.hot_paths import Known, Trails, pack_trails
from pytest_dispatchguard.lint.incremental.last_solution import (
    Facts,
    Found,
    Read,
    Rows,
    Step,
    add_class,
)
from pytest_dispatchguard.lint.incremental.lazy_project import (
    pack_families,
    project_on_demand,
    unpack_families,
)
from pytest_dispatchguard.lint.incremental.name_meanings import files_using_returns, means_the_same
from pytest_dispatchguard.lint.incremental.name_mentions import Mentions
from pytest_dispatchguard.lint.incremental.resolve import Resolved, resolve_changed
from pytest_dispatchguard.lint.judge.briefs import Briefer
from pytest_dispatchguard.lint.pipeline.survey import sha
from pytest_dispatchguard.lint.store.cache import Cache
from pytest_dispatchguard.lint.store.packing import pack_brief

_MOST_TOLD = 24
"""Files. If more are affected, the whole project is solved again."""


class Affected(NamedTuple):
    """What a change affects."""

    briefs: Mapping[str, str]
    """The new briefs of the affected files, as text, by path."""
    hot: Mapping[str, int]
    """The number of hot functions in these files."""
    read: Read
    found: Found
    rows: Rows


class _Hot(NamedTuple):
    """The hot functions of some files."""

    hot: Mapping[str, HotFact]
    given: Mapping[str, Given]
    on_cpu: Mapping[str, list[str]]
    observed: Observed


class LostRowError(Exception):
    """The cache has lost a row that it had."""


def affected_by(
    step: Step,
    config: Config,
    facts: Facts,
    cache: Cache,
    mentions: Mentions,
    packaged: frozenset[str],
) -> Affected | None:
    """What a step affects; None if that needs a full solve. Raises LostRowError if the cache has lost a
    row."""
    found = step.before.found
    text = _row(cache, "families", found.families)
    families = unpack_families(text)
    modules = {step.before.files[rel][2]: rel for rel in sorted(step.before.files)}

    def as_it_was(rel: str) -> FileFacts:
        return step.old[rel] if rel in step.old else facts(rel)

    project = project_on_demand(modules, families, as_it_was, packaged)
    replace_facts(project, step.new)
    if any(c.bound or c.attrs or c.returns for c in step.changes.values()):
        was = project_on_demand(modules, unpack_families(text), as_it_was, packaged)
        if not all(means_the_same(was, project, r, c) for r, c in step.changes.items()):
            return None
    told = files_using_returns(step.changes, mentions)
    if told is None:
        return None
    classes = _classes_below(project, step)
    digest = found.trails.get
    known = Known(lambda rel: (d := digest(rel)) and _row(cache, "trails", d), modules)
    now = _moved(step, config, project, known)
    if now is None:
        return None
    trails = _trails(known, now, project)
    touched = {project.modules[name.partition(":")[0]] for name in (*now.told, *classes)}
    touched |= told
    touched.update(rel for rel, change in step.changes.items() if change.bodies or change.bound)
    touched = {rel for rel in touched if rel in found.trails or rel in trails}
    if len(touched) > _MOST_TOLD:
        return None
    hot = _hot({rel: trails.get(rel) or known.file(rel) for rel in touched})
    briefer = Briefer(project, hot)
    texts = {rel: pack_trails(of_file) for rel, of_file in trails.items()}
    digests = {rel: sha(row.encode()) for rel, row in texts.items()}
    rows = Rows(trails={digests[rel]: row for rel, row in texts.items()})
    if classes:
        row = pack_families(families)
        rows = rows._replace(families={sha(row.encode()): row})
        found = found._replace(families=sha(row.encode()))
    return Affected(
        {rel: pack_brief(briefer.brief(rel)) for rel in sorted(briefer.hot)},
        {rel: len(briefer.hot.get(rel, ())) for rel in touched},
        _read(step.before.read, trails, project),
        found._replace(trails={**found.trails, **digests}),
        rows,
    )


def _row(cache: Cache, namespace: str, digest: str) -> str:
    row = cache.get_many(namespace, [digest]).get(digest)
    if row is None:
        raise LostRowError
    return row


def _classes_below(project: Project, step: Step) -> set[str]:
    """The classes that define other methods, assign other attributes, or inherit from such a class."""
    found: set[str] = set()
    for rel, change in step.changes.items():
        owners = {f.name.rpartition(".")[0] for f in (*change.came, *change.went)}
        for owner in owners | change.attrs:
            class_id = f"{project.module_of[rel]}:{owner}"
            if class_id in project.classes:
                found.update((class_id, *project.subclasses.get(class_id, ())))
    return found


def _moved(step: Step, config: Config, project: Project, known: Known) -> Resolved | None:
    bodies = {
        f"{project.module_of[rel]}:{name}": was
        for rel, change in step.changes.items()
        for name, was in change.bodies.items()
    }
    found = step.before.found
    coldness = Coldness(project, patterns(config.cold), frozenset(found.surely))
    takes = {
        function_id
        for rel, change in step.changes.items()
        for name in change.takes
        if known.of(function_id := f"{project.module_of[rel]}:{name}") is not None
    }
    return resolve_changed(
        ReachContext(project, coldness, frozenset(found.loops)), known, bodies, takes
    )


def _trails(known: Known, now: Resolved, project: Project) -> dict[str, Trails]:
    """The new trails of the files whose trails change."""
    found: dict[str, Trails] = {}

    def at(function_id: str) -> Trails:
        rel = project.modules[function_id.partition(":")[0]]
        if rel not in found:
            before = known.file(rel)
            found[rel] = Trails(dict(before.trails), dict(before.callers))
        return found[rel]

    for function_id, trail in now.trails.items():
        if trail is None:
            at(function_id).trails.pop(function_id, None)
        else:
            at(function_id).trails[function_id] = trail
    for function_id, callers in now.callers.items():
        if callers:
            at(function_id).callers[function_id] = callers
        else:
            at(function_id).callers.pop(function_id, None)
    return found


def _hot(files: Mapping[str, Trails]) -> _Hot:
    """The hot functions of some files, according to their trails."""
    hot: dict[str, HotFact] = {}
    given: dict[str, Given] = {}
    on_cpu: dict[str, list[str]] = {}
    for trails in files.values():
        for function_id, trail in trails.trails.items():
            if trail.then is not None:
                hot[function_id] = trail.then.fact
                given[function_id] = trail.given
                on_cpu[function_id] = list(trail.on_cpu)
    return _Hot(hot, given, on_cpu, Observed())


def _read(before: Read, trails: Mapping[str, Trails], project: Project) -> Read:
    """What is now read of the project, given the new trails of these files."""
    walked = dict(before.walked)
    lines = dict(before.lines)
    for rel, of_file in trails.items():
        names = sorted(function_id.partition(":")[2] for function_id in of_file.trails)
        walked.pop(rel, None)
        if names:
            walked[rel] = names
        lines.pop(rel, None)
        if any(trail.then is not None for trail in of_file.trails.values()):
            line: dict[str, list[str]] = {}
            for class_ in project.files[rel].classes:
                add_class(line, project, f"{project.module_of[rel]}:{class_.name}")
            if line:
                lines[rel] = line
    if walked == before.walked and lines == before.lines:
        return before
    return Read(walked, lines)
