"""Updates the last solution after some files changed, if names still mean the same in all code that did
not change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.lint.callgraph.class_hierarchy import OwnMethods
from pytest_dispatchguard.lint.facts import FileFacts, FunctionFact
from pytest_dispatchguard.lint.incremental import last_solution
from pytest_dispatchguard.lint.incremental.changes import (
    Change,
    Relevance,
    asked_methods,
    change_of,
    is_unnoticed,
    own_methods,
    updated_brief,
    words_in,
    words_of,
)
from pytest_dispatchguard.lint.incremental.name_mentions import Mentions
from pytest_dispatchguard.lint.incremental.solution_store import Index
from pytest_dispatchguard.lint.judge.catalog import Catalog
from pytest_dispatchguard.lint.knowledge.cold_names import TESTING
from pytest_dispatchguard.lint.pipeline.survey import (
    Survey,
    facts_before,
    facts_of,
    facts_rows,
    packaged,
    sha,
)
from pytest_dispatchguard.lint.store.cache import Cache
from pytest_dispatchguard.lint.store.packing import pack_brief, pack_facts, unpack_brief
from pytest_dispatchguard.project_folder import PROFILE

if TYPE_CHECKING:
    from pytest_dispatchguard.lint.incremental.affected import Affected


class Next(NamedTuple):
    """The updated solution, as stored."""

    known: last_solution.Known
    briefs: Mapping[str, str]
    """The briefs that differ from before, as text, by path."""


def next_solution_of(
    key: str,
    settings: str,
    config: Config,
    survey: Survey,
    catalog: Catalog,
    cache: Cache,
    before: last_solution.Known,
) -> Next | None:
    """The current state; None if it needs a full solve."""
    state = before.state
    if (config.root / PROFILE).exists():
        return None  # a profile identifies functions by their text
    changed = last_solution.changed_since(state, settings, last_solution.shapes_of(survey))
    if changed is None:
        return None
    old = facts_before(config, {rel: state.files[rel][0] for rel in changed}, cache)
    if len(old) < len(changed):
        return None
    new = facts_of(config, survey, changed, cache)

    def facts(rel: str) -> FileFacts:
        return facts_of(config, survey, [rel], cache)[rel]

    def written() -> dict[str, str]:
        digests = {rel: digest for rel, (digest, _, _) in state.files.items()}
        rows = facts_rows(config, digests, cache)
        return {rel: rows[rel] if rel in rows else pack_facts(facts(rel)) for rel in digests}

    mentions = Mentions(written, [module for _, _, module in state.files.values()])
    matters = matters_in(before, config, catalog.hot_roots, packaged(config, survey))
    changes = _changes(state, old, new, matters, mentions)
    if changes is None:
        return None
    step = last_solution.Step(state, old, new, changes)
    after: Affected | None = None
    if _reaches_others(step):
        from pytest_dispatchguard.lint.incremental.affected import LostRowError, affected_by

        with suppress(LostRowError):
            after = affected_by(step, config, facts, cache, mentions, packaged(config, survey))
        if after is None:
            return None
    briefs = _briefs(step, before.hot, facts, cache, () if after is None else after.briefs)
    if briefs is None:
        return None
    return _updated(key, survey, before, step, after, briefs)


def _updated(
    key: str,
    survey: Survey,
    before: last_solution.Known,
    step: last_solution.Step,
    after: Affected | None,
    briefs: dict[str, str],
) -> Next:
    """The last solution with the changed files, what they affect, and the new briefs."""
    state = before.state
    files = dict(state.files)
    for rel in step.new:
        one = survey.scouted[rel]
        files[rel] = (one.digest, one.shape, state.files[rel][2])
    now = state._replace(key=key, files=files)
    hot, rows = before.hot.hot, last_solution.Rows()
    if after is not None:
        briefs |= after.briefs
        hot = {rel: number for rel, number in {**hot, **after.hot}.items() if number}
        now, rows = now._replace(read=after.read, found=after.found), after.rows
        briefs = {rel: text for rel, text in briefs.items() if rel in hot}
    keys = {**before.hot.keys, **{rel: sha(text.encode()) for rel, text in briefs.items()}}
    index = Index({rel: keys[rel] for rel in hot}, hot, before.hot.idle)
    words = before.words | words_in(step.new.values())
    return Next(last_solution.Known(now, words, index, rows), briefs)


def matters_in(
    known: last_solution.Known,
    config: Config,
    library_roots: Mapping[str, Iterable[str]],
    packaged: Iterable[str] = (),
) -> Relevance:
    """When it makes a difference, in this project, that a function of some name exists."""
    words = known.words
    modules = (module for _, _, module in known.state.files.values())
    named = words_of([*modules, *config.tensor_types])
    return Relevance(
        lambda word: word in words or word in named,
        asked_methods(library_roots),
        [p for p in (*config.hot_roots, *config.cold) if not p.startswith("@")],
        bool(known.hot.idle),
        frozenset(
            module
            for rel, (_, _, module) in known.state.files.items()
            if any(rel.startswith(f"{folder}/") for folder in packaged)
        ),
    )


def _changes(
    state: last_solution.State,
    old: Mapping[str, FileFacts],
    new: Mapping[str, FileFacts],
    matters: Relevance,
    mentions: Mentions,
) -> dict[str, Change] | None:
    """What changed in each file; None if it is more than an update can handle."""
    changes: dict[str, Change] = {}
    for rel, facts in new.items():
        about = state.about(rel)
        change = change_of(old[rel], facts, about.walked)
        if change is None:
            return None
        if change.offers and about.module in matters.library:
            return None  # the public API changed
        came = [(function, facts) for function in change.came]
        went = [(function, old[rel]) for function in change.went]
        if not all(is_unnoticed(function, of, about, matters) for function, of in (*came, *went)):
            return None
        asked = partial(mentions.is_asked_for, rel, old[rel], about.module)
        if any(matters.mentioned(_last(function)) for function, _ in went):
            return None
        for function, _ in came:
            if matters.mentioned(_last(function)) and _is_asked_for(
                function, facts, asked, mentions
            ):
                return None
        if any(matters.mentioned(name) and asked(name) for name in change.bound):
            return None
        if not TESTING.isdisjoint(change.bound):
            return None  # it may have become a file of tests
        changes[rel] = change
    return changes


def _last(function: FunctionFact) -> str:
    return function.name.rpartition(".")[2]


def _is_asked_for(
    function: FunctionFact, facts: FileFacts, asked: Callable[[str], bool], mentions: Mentions
) -> bool:
    """Whether existing code may already refer to an added function."""
    owner, dot, last = function.name.rpartition(".")
    if not dot:
        return asked(last)
    is_method = any(class_.name == owner for class_ in facts.classes)
    return not is_method or bool(mentions.member(last))


def _reaches_others(step: last_solution.Step) -> bool:
    """Whether the change affects more than unnoticed functions and the use of tensors."""
    for rel, change in step.changes.items():
        classes = {class_.name for class_ in step.new[rel].classes}
        other = (*change.came, *change.went)
        if change.bodies or change.bound or change.attrs or change.takes or change.returns:
            return True
        if any(f.name.rpartition(".")[0] in classes for f in other):
            return True
    return False


def _briefs(
    step: last_solution.Step,
    index: Index,
    facts: last_solution.Facts,
    cache: Cache,
    but: Iterable[str],
) -> dict[str, str] | None:
    """The new briefs of files in which functions were added or removed, or use other tensors, except
    those in `but`; None if the cache has lost one."""
    told = {
        rel: change
        for rel, change in step.changes.items()
        if rel in index.keys and rel not in but and (change.came or change.went or change.tensors)
    }
    rows = cache.get_many("brief", [index.keys[rel] for rel in told])
    if len(rows) < len(told):
        return None
    home = {module: rel for rel, (_, _, module) in step.before.files.items()}

    def own(class_id: str) -> OwnMethods:
        return own_methods(facts(home[class_id.partition(":")[0]]), class_id)

    return {
        rel: pack_brief(
            updated_brief(
                unpack_brief(rows[index.keys[rel]]),
                change,
                step.new[rel],
                step.before.about(rel),
                own,
            )
        )
        for rel, change in told.items()
    }
