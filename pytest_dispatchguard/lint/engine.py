"""One run of the linter, from files to findings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial

from pytest_dispatchguard.lint.pipeline.judge_files import judge_files, target_of
from pytest_dispatchguard.lint.pipeline.outcome import Outcome, outcome_of
from pytest_dispatchguard.lint.pipeline.progress import Progress, no_progress
from pytest_dispatchguard.lint.pipeline.survey import Texts, scout_files
from pytest_dispatchguard.lint.session import Session
from pytest_dispatchguard.lint.sources.files import Discovery
from pytest_dispatchguard.startup import compiled, left_over

# The solver and the judge are imported where they run: a run over an unchanged project needs neither, and
# would spend most of its time importing them.


def run(
    session: Session,
    discovery: Discovery,
    *,
    texts: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    keep: bool = True,
) -> Outcome:
    """Lint the targets of a discovery; the whole project decides which functions are hot. `texts` stand in
    place of what is on disk. With a cache, `keep` says whether the next run may start from this state of the
    project."""
    if session.cache is None:
        return run_afresh(session, discovery, texts or {}, progress or no_progress)
    return _run_cached(session, discovery, texts or {}, progress or no_progress, keep=keep)


def run_afresh(
    session: Session, discovery: Discovery, texts: Mapping[str, str], progress: Progress
) -> Outcome:
    """Lint with nothing from earlier runs, as `--no-cache` does: the whole linter in a straight line."""
    config, pool = session.config, session.pool
    survey = scout_files(config, discovery, None, pool, texts, progress, _get_ready(session))
    # Not before others read: nobody waits for these then.
    from pytest_dispatchguard.lint.pipeline.briefs import briefs_of
    from pytest_dispatchguard.lint.pipeline.solve import call_graph, hot_functions

    catalog = session.catalog
    targets = [f.rel for f in discovery.targets if f.rel in survey.scouted]
    progress("finding what is hot", 0, 1)
    project = call_graph(config, survey, None)
    hot = hot_functions(config, survey, catalog, project, ran=session.ran)
    briefs = briefs_of(config, project, hot)
    progress("finding what is hot", 1, 1)
    judged = judge_files(config, survey, targets, briefs, catalog, None, pool, progress)
    left_over.leave(project, hot, briefs, survey)
    read = Texts(discovery, survey.texts)
    return outcome_of(config, survey, targets, judged, catalog.infos, briefs, read)


def _run_cached(
    session: Session,
    discovery: Discovery,
    texts: Mapping[str, str],
    progress: Progress,
    *,
    keep: bool,
) -> Outcome:
    """The same, with the facts, briefs and findings of earlier runs where they still hold."""
    from pytest_dispatchguard.lint.incremental.cached_briefs import cached_briefs, solved_briefs

    config, cache, pool = session.config, session.cache, session.pool
    assert cache is not None
    survey = scout_files(config, discovery, cache, pool, texts, progress, _get_ready(session))
    catalog = session.catalog
    targets = [f.rel for f in discovery.targets if f.rel in survey.scouted]
    if session.ran is None:
        briefs = cached_briefs(config, survey, catalog, cache, progress, keep=keep)
    else:
        # The cache keeps one state, which is that of runs without it.
        progress("finding what is hot", 0, 1)
        briefs = solved_briefs(config, survey, catalog, cache, ran=session.ran)
        progress("finding what is hot", 1, 1)
    judged = judge_files(config, survey, targets, briefs, catalog, cache, pool, progress)
    left_over.leave(briefs, survey)
    read = Texts(discovery, survey.texts)
    return outcome_of(config, survey, targets, judged, catalog.infos, briefs, read)


def _get_ready(session: Session) -> Callable[[int], None]:
    """What this process does while others read so many files: it prepares what follows."""

    def prepare(files: int) -> None:
        pool = session.pool
        if files and not pool.works and "pytest_dispatchguard.lint.judge.judge" not in sys.modules:
            pool.get_ready(partial(_get_ready_to_judge, session))
        session.rules()
        if pool.works:
            # Many files are read, so the solver will run, and others will judge, who are born with all that.
            from pytest_dispatchguard.lint.pipeline import briefs, solve  # noqa: F401 - only to have them

            _get_ready_to_judge(session)

    return prepare


def _get_ready_to_judge(session: Session) -> None:
    from pytest_dispatchguard.lint.judge import judge

    judge.bench(target_of(session.config), session.catalog.packs)
    judge.load()
    compiled.keep()
