"""The interface of this folder: briefs from what earlier runs left in the cache, or from a full solve."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_dispatchguard import project_folder
from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.lint.incremental import solution_store
from pytest_dispatchguard.lint.incremental.solution_store import Index
from pytest_dispatchguard.lint.judge.catalog import Catalog
from pytest_dispatchguard.lint.pipeline.briefs import Briefs, briefs_of
from pytest_dispatchguard.lint.pipeline.progress import Progress
from pytest_dispatchguard.lint.pipeline.survey import Survey, packaged, sha
from pytest_dispatchguard.lint.store.cache import Cache
from pytest_dispatchguard.project_folder import PROFILE

if TYPE_CHECKING:
    from pytest_dispatchguard.lint.incremental.last_solution import Known
    from pytest_dispatchguard.profile import Profile

# The solver and `next_solution` are imported where they run: a run over an unchanged project needs neither,
# and would spend most of its time importing them.


def cached_briefs(
    config: Config,
    survey: Survey,
    catalog: Catalog,
    cache: Cache,
    progress: Progress,
    *,
    keep: bool = True,
) -> Briefs:
    """The same briefs as `solved_briefs`, from the cache if possible: those of exactly this state of the
    project, or of the last solution if it can be updated, otherwise from a full solve.

    The result is stored for the next run, unless `keep` is False, which is for states that are checked
    only in passing: the cache holds one state.
    """
    key = project_key(config, survey, catalog)
    solve_again = functools.cache(lambda: solved_briefs(config, survey, catalog, cache))
    index = solution_store.index_of(cache, key)
    if index is not None:
        return _stored_briefs(cache, index, {}, solve_again)
    from pytest_dispatchguard.lint.incremental import last_solution
    from pytest_dispatchguard.lint.incremental.next_solution import next_solution_of

    settings = solution_store.settings_of(config, catalog, packaged(config, survey))
    before = last_solution.recall(cache)
    after = before and next_solution_of(key, settings, config, survey, catalog, cache, before)
    if after:
        if keep:
            last_solution.keep(cache, after.known, after.briefs)
        return _stored_briefs(cache, after.known.hot, after.briefs, solve_again)
    if not keep:
        return solve_again()
    progress("finding what is hot", 0, 1)
    briefs = _solve_and_keep(key, settings, config, survey, catalog, cache, before)
    progress("finding what is hot", 1, 1)
    return briefs


def solved_briefs(
    config: Config,
    survey: Survey,
    catalog: Catalog,
    cache: Cache | None,
    step: Callable[[], object] | None = None,
    ran: Profile | None = None,
) -> Briefs:
    """The briefs from a full solve; `ran` adds to what was recorded, for `step` see `hotness.solve`."""
    from pytest_dispatchguard.lint.pipeline.solve import solve

    return briefs_of(config, *solve(config, survey, catalog, cache, step, ran))


def project_key(config: Config, survey: Survey, catalog: Catalog) -> str:
    """A hash of everything that briefs depend on: settings, and the facts of all files without positions."""
    words = [solution_store.settings_of(config, catalog, packaged(config, survey))]
    words.extend(f"{rel}={survey.scouted[rel].shape}" for rel in sorted(survey.scouted))
    profile = None
    with suppress(OSError):
        profile = project_folder.read(config.root / PROFILE)
    if profile is not None:
        # A profile identifies functions by their text, so with a profile every change counts.
        words.append(sha(profile))
        words.extend(survey.scouted[rel].digest for rel in sorted(survey.scouted))
    return sha("\n".join(words).encode("utf-8", "surrogatepass"))


def _solve_and_keep(
    key: str,
    settings: str,
    config: Config,
    survey: Survey,
    catalog: Catalog,
    cache: Cache,
    before: Known | None,
) -> Briefs:
    """Solve the project, and store what the next run needs to update the solution. With a profile, which
    identifies functions by their text, only the solution itself is stored."""
    from pytest_dispatchguard.lint.incremental import last_solution
    from pytest_dispatchguard.lint.pipeline.solve import solve

    project, heat = solve(config, survey, catalog, cache)
    briefs = briefs_of(config, project, heat)
    texts = {rel: briefs.text(rel) for rel in briefs.hot}
    digests = {rel: sha(text.encode()) for rel, text in texts.items()}
    index = Index(digests, briefs.hot, briefs.idle)
    if (config.root / PROFILE).exists():
        solution_store.keep(cache, key, index, texts)
    else:
        state, rows = last_solution.state_of(key, settings, survey, project, heat)
        words = last_solution.words_after(config, survey, before, cache)
        last_solution.keep(cache, last_solution.Known(state, words, index, rows), texts)
    return Briefs(briefs.hot, briefs.idle, texts.__getitem__, digests)


def _stored_briefs(
    cache: Cache, index: Index, others: Mapping[str, str], solve_again: Callable[[], Briefs]
) -> Briefs:
    """The briefs of an index: `others` are given, the rest is in the cache. If the cache has lost one,
    the project is solved again."""

    def text(rel: str) -> str:
        if rel in others:
            return others[rel]
        brief = solution_store.brief_of(cache, index.keys[rel])
        if brief is None:
            brief = solve_again().text(rel)
            solution_store.restore_brief(cache, index.keys[rel], brief)
        return brief

    return Briefs(index.hot, index.idle, text, index.keys)
