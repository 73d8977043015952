"""Which functions of a project are hot, for `dispatchguard hot`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_dispatchguard.config import idle_folders, is_project
from pytest_dispatchguard.lint import engine
from pytest_dispatchguard.lint.check import settings
from pytest_dispatchguard.lint.files import discover, require
from pytest_dispatchguard.lint.idle import idle_names
from pytest_dispatchguard.lint.pool import Pool
from pytest_dispatchguard.lint.survey import Progress, scout_files
from pytest_dispatchguard.model import Hot, HotPlace


def hot_functions(
    paths: Sequence[Path],
    *,
    cwd: Path,
    config_file: Path | None,
    jobs: int,
    cached: bool,
    progress: Progress | None,
    note: Callable[[str], None],
) -> list[HotPlace]:
    """The hot functions in the paths, by path and line, each with why it is hot. `note` is told of files
    that cannot be read and of settings that match nothing."""
    require(paths, cwd)
    config, rules, cache = settings(paths, cwd, config_file, {}, cached)
    tell = progress or (lambda what, done, total: None)
    try:
        discovery = discover(paths, config, cwd=cwd)
        with Pool(jobs) as pool:
            survey = scout_files(config, discovery, cache, pool, {}, tell, meanwhile=rules)
        project, solved = engine.solve(config, survey, rules(), cache)
        if solved.observed.note:
            note(solved.observed.note)
    finally:
        if cache is not None:
            cache.close()
    asked = {f.rel for f in discovery.targets}
    for line in discovery.notes:
        note(line)
    for rel in sorted(asked):
        error = survey.scouted[rel].error
        if error is not None:
            at, column, said = error
            note(f"{rel}:{at}:{column}: {said}; nothing in this file is known")
    if is_project(config):
        for line in (*idle_folders(config), *idle_names(config, project)):
            note(line)
    return [
        HotPlace(
            path=place.path,
            line=place.line,
            function=place.function,
            hot=Hot(
                root=place.hot.root,
                path=tuple(place.hot.path),
                reason=place.hot.reason,
                loop=place.hot.loop,
                per="step" if place.hot.per == "step" else "call",
                seen=place.hot.seen,
            ),
            only_loops=place.hot.only_loops,
        )
        for place in solved.functions
        if place.path in asked
    ]
