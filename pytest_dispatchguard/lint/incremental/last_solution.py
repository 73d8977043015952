"""The last solved state of the project, stored in the cache beside the briefs. It decides whether another
state has the same hot functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.lint.callgraph.class_hierarchy import mro
from pytest_dispatchguard.lint.facts import FileFacts
from pytest_dispatchguard.lint.incremental.changes import Change, FileSummary, words_in
from pytest_dispatchguard.lint.incremental.solution_store import Index, index_of
from pytest_dispatchguard.lint.incremental.solution_store import keep as keep_hot
from pytest_dispatchguard.lint.pipeline.survey import Survey, facts_of, sha
from pytest_dispatchguard.lint.store.cache import Cache

if TYPE_CHECKING:
    from pytest_dispatchguard.lint.callgraph.project import Project
    from pytest_dispatchguard.lint.hotness.solve import Heat

_MOST_CHANGED = 24
"""Files. If more have changed, the whole project is solved again."""


class Read(NamedTuple):
    """What was read of a project to find the hot functions: what `FileSummary` holds for a file, by path."""

    walked: Mapping[str, Sequence[str]]
    lines: Mapping[str, Mapping[str, Sequence[str]]]
    digest: str = ""
    """Its digest in the cache; empty until it is stored."""


class Found(NamedTuple):
    """How the hot functions were found, as stored; empty for a state that was solved with a profile."""

    families: str = ""
    """The digest of the class families; see `lazy_project`."""
    trails: Mapping[str, str] = {}
    """The digests of the trails of files, by path."""
    loops: Sequence[str] = ()
    """The roots of which only the loops are hot."""
    surely: Sequence[str] = ()
    """The functions that the user named as hot, even if they would be cold by default."""


class Rows(NamedTuple):
    """Parts of a state that the cache may not have yet, by digest."""

    families: Mapping[str, str] = {}
    trails: Mapping[str, str] = {}


class State(NamedTuple):
    """A solved state of a project."""

    key: str
    settings: str
    """What hotness depends on beside files."""
    files: Mapping[str, tuple[str, str, str]]
    """By path: the digest of its text, of its facts, and its module."""
    read: Read
    found: Found = Found()

    def about(self, rel: str) -> FileSummary:
        """What is known about one file."""
        return FileSummary(
            self.files[rel][2],
            frozenset(self.read.walked.get(rel, ())),
            self.read.lines.get(rel, {}),
        )


Facts = Callable[[str], FileFacts]
"""Returns the facts of a file by its path."""


class Step(NamedTuple):
    """A change of files relative to a state."""

    before: State
    old: Mapping[str, FileFacts]
    new: Mapping[str, FileFacts]
    changes: Mapping[str, Change]


class Known(NamedTuple):
    """The last solved state, as stored in the cache."""

    state: State
    words: frozenset[str]
    """All words in the facts of files, and possibly some that were in earlier facts."""
    hot: Index
    rows: Rows = Rows()


def recall(cache: Cache) -> Known | None:
    """The last solved state; None if the cache has none."""
    row = cache.get_many("solved", ["state"]).get("state")
    if row is None:
        return None
    key, settings, files, digest, said, found = json.loads(row)
    read = cache.get_many("read", [digest]).get(digest)
    words = cache.get_many("words", [said]).get(said)
    hot = index_of(cache, key)
    if read is None or words is None or hot is None:
        return None
    tables = Read(*json.loads(read))._replace(digest=digest)
    return Known(
        State(key, settings, files, tables, Found(*found)),
        frozenset(words.split()),
        hot,
    )


def keep(cache: Cache, known: Known, briefs: Mapping[str, str]) -> None:
    """Replace the previous state with this one, and reuse what both have in common. `briefs` are those
    that the cache does not have yet."""
    state = known.state
    keep_hot(cache, state.key, known.hot, briefs)
    *read, digest = state.read
    if not digest or digest not in cache.keys("read"):
        digest = _replace(cache, "read", json.dumps(read, separators=(",", ":")))
    words = _replace(cache, "words", " ".join(sorted(known.words)))
    for namespace, rows, keys in (
        ("families", known.rows.families, {state.found.families}),
        ("trails", known.rows.trails, set(state.found.trails.values())),
    ):
        cache.prune(namespace, keys)
        cache.put_many(namespace, rows)
    row = [state.key, state.settings, state.files, digest, words, state.found]
    cache.put_many("solved", {"state": json.dumps(row, separators=(",", ":"))})


def _replace(cache: Cache, namespace: str, text: str) -> str:
    digest = sha(text.encode())
    cache.put_many(namespace, {digest: text})
    cache.prune(namespace, (digest,))
    return digest


def state_of(
    key: str, settings: str, survey: Survey, project: Project, heat: Heat
) -> tuple[State, Rows]:
    """The state in which a project was solved, and the rows that are new in it."""
    files = {
        rel: (one.digest, one.shape, project.module_of[rel]) for rel, one in survey.scouted.items()
    }
    state = State(key, settings, files, read_for(project, heat))
    if heat.observed.seen or heat.observed.stale:
        return state, Rows()
    from pytest_dispatchguard.lint.hotness.solve import loops_of
    from pytest_dispatchguard.lint.incremental.hot_paths import pack_trails, trails_of
    from pytest_dispatchguard.lint.incremental.lazy_project import families_of, pack_families

    families = pack_families(families_of(project))
    trails = {rel: pack_trails(found) for rel, found in trails_of(project, heat).items()}
    digests = {rel: sha(text.encode()) for rel, text in trails.items()}
    found = Found(
        sha(families.encode()),
        digests,
        sorted(loops_of(heat.origin.roots)),
        sorted(heat.origin.coldness.named),
    )
    rows = Rows({found.families: families}, {digests[rel]: trails[rel] for rel in trails})
    return state._replace(found=found), rows


def read_for(project: Project, heat: Heat) -> Read:
    """What was read of a solved project."""
    walked: dict[str, list[str]] = {}
    for function_id in sorted(heat.edges):
        module, _, name = function_id.partition(":")
        walked.setdefault(project.modules[module], []).append(name)
    hot = {project.modules[function_id.partition(":")[0]] for function_id in heat.hot}
    lines: dict[str, dict[str, list[str]]] = {}
    for class_id in project.classes:
        path = project.modules[class_id.partition(":")[0]]
        if path in hot:
            add_class(lines.setdefault(path, {}), project, class_id)
    lines = {rel: classes for rel, classes in lines.items() if classes}
    return Read(walked, lines)


def add_class(lines: dict[str, list[str]], project: Project, class_id: str) -> None:
    """Add a class to those of its file, if it inherits from classes of the project."""
    above = [base for base in mro(project, class_id)[1:] if base in project.classes]
    if above:
        lines[class_id.partition(":")[2]] = above


def words_after(
    config: Config, survey: Survey, before: Known | None, cache: Cache
) -> frozenset[str]:
    """The words in the facts of all files, or a superset based on the earlier words if most files are
    unchanged."""
    if before is not None:
        changed = _other_facts(before.state, shapes_of(survey))
        if len(changed) <= _MOST_CHANGED:
            return before.words | words_in(facts_of(config, survey, changed, cache).values())
    return frozenset(words_in(survey.facts[rel] for rel in survey.scouted))


def shapes_of(survey: Survey) -> dict[str, str]:
    """The hash of each file's facts without positions, by path."""
    return {rel: one.shape for rel, one in survey.scouted.items()}


def changed_since(state: State, settings: str, shapes: Mapping[str, str]) -> list[str] | None:
    """The files whose facts differ from those of a state; None if there are too many, or if anything else
    differs."""
    if state.settings != settings or state.files.keys() != shapes.keys():
        return None
    changed = _other_facts(state, shapes)
    return changed if len(changed) <= _MOST_CHANGED else None


def _other_facts(state: State, shapes: Mapping[str, str]) -> list[str]:
    """The current files whose facts differ, and those that were removed."""
    nothing = ("", "", "")
    return [rel for rel, shape in shapes.items() if state.files.get(rel, nothing)[1] != shape]
