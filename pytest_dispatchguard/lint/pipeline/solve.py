"""From the facts of all files to the call graph, and to the functions that are hot in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.lint.callgraph.build import build
from pytest_dispatchguard.lint.callgraph.project import Project
from pytest_dispatchguard.lint.hotness import solve as hotness
from pytest_dispatchguard.lint.hotness.profile import Observed, observed
from pytest_dispatchguard.lint.judge.catalog import Catalog
from pytest_dispatchguard.lint.pipeline.survey import Survey, facts_of, packaged, text_of
from pytest_dispatchguard.lint.store.cache import Cache
from pytest_dispatchguard.profile import Profile, load
from pytest_dispatchguard.project_folder import PROFILE


def call_graph(config: Config, survey: Survey, cache: Cache | None) -> Project:
    """Build the call graph of the whole project; the cache saves scanning files again for their facts."""
    facts = facts_of(config, survey, sorted(survey.scouted), cache)
    return build(facts, config.import_roots, packaged(config, survey))


def hot_functions(
    config: Config,
    survey: Survey,
    catalog: Catalog,
    project: Project,
    step: Callable[[], object] | None = None,
    ran: Profile | None = None,
) -> hotness.Heat:
    """Find the hot functions of a call graph; `ran` adds to what was recorded, for `step` see
    `hotness.solve`."""
    return hotness.solve(
        project,
        hot_roots=config.hot_roots,
        cold=config.cold,
        library_roots=catalog.hot_roots,
        observed=_recorded(config, survey, project, ran),
        step=step,
    )


def solve(
    config: Config,
    survey: Survey,
    catalog: Catalog,
    cache: Cache | None,
    step: Callable[[], object] | None = None,
    ran: Profile | None = None,
) -> tuple[Project, hotness.Heat]:
    """Build the call graph and find what is hot in it."""
    project = call_graph(config, survey, cache)
    return project, hot_functions(config, survey, catalog, project, step, ran)


def _recorded(
    config: Config, survey: Survey, project: Project, ran: Profile | None
) -> Observed | None:
    """What the project's profile, and what else ran, say of the functions as they are now."""
    profile = load(config.root / PROFILE) if (config.root / PROFILE).exists() else None
    if ran is not None:
        profile = profile or Profile()
        profile.merge(ran)
    if profile is None:
        return None
    return observed(profile, project.files, project.module_of, partial(text_of, survey))
