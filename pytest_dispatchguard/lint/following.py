"""The state of a project that follows one in memory: what a process remembers of it is the beginning of what
its copies find out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from pytest_dispatchguard.config import PROFILE, Config
from pytest_dispatchguard.lint import kept, solved
from pytest_dispatchguard.lint.briefs import Briefer
from pytest_dispatchguard.lint.cache import Cache, cache_path
from pytest_dispatchguard.lint.carried import Carried, Solution, Unnoticed, carry
from pytest_dispatchguard.lint.catalog import fingerprint
from pytest_dispatchguard.lint.facts import FileFacts, FunctionFact
from pytest_dispatchguard.lint.heat import solve
from pytest_dispatchguard.lint.packing import pack_brief, unpack_facts
from pytest_dispatchguard.lint.project import build
from pytest_dispatchguard.lint.remembered import Remembered, projects
from pytest_dispatchguard.lint.survey import Survey, facts_before, facts_of, facts_rows, sha
from pytest_dispatchguard.lint.unmoved import Matters, is_unnoticed, words_in

_MOST_PROJECTS = 2
_MOST_TEXT = 12_000_000
"""Characters of facts: a project with so many takes some 270 MiB."""

Step = Callable[[], object]


class Next(NamedTuple):
    """The state that follows a remembered one, as the cache keeps it."""

    known: solved.Known
    texts: Mapping[str, str]
    """The briefs that the cache may not have."""


# -- in a copy -------------------------------------------------------------------------------------


def following(key: str, settings: str, config: Config, survey: Survey, cache: Cache) -> Next | None:
    """The state of now, if it follows the remembered one by a change that can be `carried`. It is remembered
    in the place of that."""
    remembered = projects[config.root]
    state, words, index = remembered.known
    changed = _changed(state, settings, {r: one.shape for r, one in survey.scouted.items()})
    if changed is None:
        return None
    new = facts_of(config, survey, changed, cache)
    carried = carry(remembered.solution, new, _unnoticed(config.root, remembered.known))
    if carried is None:
        return None
    files = {
        rel: (one.digest, one.shape, state.files[rel][2]) for rel, one in survey.scouted.items()
    }
    briefer = carried.solution.briefer
    texts = {rel: pack_brief(briefer.brief(rel)) for rel in carried.anew & briefer.hot.keys()}
    keys = {rel: index.keys[rel] for rel in briefer.hot if rel not in texts}
    keys |= {rel: sha(text.encode()) for rel, text in texts.items()}
    there = kept.digests(cache)
    texts |= {
        rel: pack_brief(briefer.brief(rel))
        for rel, brief in keys.items()
        if rel not in texts and brief not in there
    }
    hot = {rel: len(functions) for rel, functions in briefer.hot.items()}
    now = solved.Known(
        _state_after(state._replace(key=key, files=files), carried),
        words.plus(words_in(new.values())),
        kept.Index(keys, hot, index.idle),
    )
    projects[config.root] = Remembered(now, carried.solution)
    return Next(now, texts)


def _changed(state: solved.State, settings: str, shapes: Mapping[str, str]) -> list[str] | None:
    """The files that have other facts than in a state; None where these are not all there is to tell."""
    if state.settings != settings or state.files.keys() != shapes.keys():
        return None
    changed = [rel for rel, shape in shapes.items() if state.files[rel][1] != shape]
    return changed if len(changed) <= solved.MOST_CHANGED else None


def _unnoticed(root: Path, known: solved.Known) -> Unnoticed:
    """Whether it makes no difference to what does not change that there is a function."""
    state = known.state

    @functools.cache
    def matters() -> Matters:
        config, library_roots = kept.read_settings(root, state.settings)
        return solved.matters_in(known, config, library_roots, known.words)

    def unnoticed(rel: str, function: FunctionFact, facts: FileFacts) -> bool:
        # Classes that inherit from its class, in whatever files, are told anew.
        about = state.about(rel)._replace(below=frozenset())
        return is_unnoticed(function, facts, about, matters())

    return unnoticed


def _state_after(state: solved.State, carried: Carried) -> solved.State:
    if not carried.moved:
        return state
    project, heat, _ = carried.solution
    return state._replace(read=solved.read_for(project, heat))


# -- in the process that is copied -----------------------------------------------------------------


def learn(root: Path, step: Step) -> None:
    """Takes up the state of a project that the cache has. A `step` is taken every now and then, in which
    copies may be made of the process."""
    learned = _learned(root, projects.pop(root, None), step)
    if learned is not None:
        projects[root] = learned
        for oldest in list(projects)[:-_MOST_PROJECTS]:
            del projects[oldest]


def _learned(root: Path, before: Remembered | None, step: Step) -> Remembered | None:
    cache = Cache.open(cache_path(root), fingerprint())
    try:
        known = solved.recall(cache)
        if known is None or (root / PROFILE).exists():
            return None
        config, library_roots = kept.read_settings(root, known.state.settings)
        digests = {rel: digest for rel, (digest, _, _) in known.state.files.items()}
        if before is not None:
            shapes = {rel: shape for rel, (_, shape, _) in known.state.files.items()}
            changed = _changed(before.known.state, known.state.settings, shapes)
            if changed is not None:
                new = facts_before(config, {rel: digests[rel] for rel in changed}, cache)
                carried = None
                if len(new) == len(changed):
                    carried = carry(before.solution, new, _unnoticed(root, before.known))
                if carried is not None:
                    return Remembered(known, carried.solution)
        rows = facts_rows(config, digests, cache)
    finally:
        cache.close()  # no copy may be made while it is open
    if len(rows) < len(digests) or sum(map(len, rows.values())) > _MOST_TEXT:
        return None
    facts: dict[str, FileFacts] = {}
    for rel in sorted(rows):
        step()
        facts[rel] = unpack_facts(rows[rel])
    project = build(facts, config.src)
    step()
    heat = solve(project, config.hot_roots, config.cold, library_roots, step=step)
    return Remembered(known, Solution(project, heat, Briefer(project, heat)))
