"""The state of a project that follows one in memory: what a process remembers of it is the beginning of what
its copies find out."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pytest_dispatchguard.config import Config
from pytest_dispatchguard.lint import kept, solved
from pytest_dispatchguard.lint.cache import Cache
from pytest_dispatchguard.lint.carried import Carried, Unnoticed, carry
from pytest_dispatchguard.lint.facts import FileFacts, FunctionFact
from pytest_dispatchguard.lint.packing import pack_brief
from pytest_dispatchguard.lint.remembered import Remembered, projects
from pytest_dispatchguard.lint.survey import Survey, facts_of, sha
from pytest_dispatchguard.lint.unmoved import Matters, is_unnoticed, words_in


class Next(NamedTuple):
    """The state that follows a remembered one, as the cache keeps it."""

    known: solved.Known
    texts: Mapping[str, str]
    """The briefs that the cache may not have."""


def following(key: str, settings: str, config: Config, survey: Survey, cache: Cache) -> Next | None:
    """The state of now, if it follows the remembered one by a change that can be `carried`. It is remembered
    in the place of that."""
    remembered = projects[config.root]
    state, words, index = remembered.known
    changed = solved.changed_since(state, settings, solved.shapes_of(survey))
    if changed is None:
        return None
    new = facts_of(config, survey, changed, cache)
    carried = carry(remembered.solution, new, unnoticed_by(config.root, remembered.known))
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


def unnoticed_by(root: Path, known: solved.Known) -> Unnoticed:
    """What tells whether it makes no difference to what does not change that there is a function."""
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
