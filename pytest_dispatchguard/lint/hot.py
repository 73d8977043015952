"""Which functions of a project are hot, for `dispatchguard hot`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_dispatchguard.config.load import idle_folders
from pytest_dispatchguard.config.project_root import is_project
from pytest_dispatchguard.lint.callgraph.project import Project
from pytest_dispatchguard.lint.facts import HotFact
from pytest_dispatchguard.lint.hotness.solve import Heat, listed
from pytest_dispatchguard.lint.pipeline.progress import Progress, no_progress
from pytest_dispatchguard.lint.pipeline.solve import solve
from pytest_dispatchguard.lint.pipeline.survey import Survey, scout_files
from pytest_dispatchguard.lint.results.unused_settings import idle_names
from pytest_dispatchguard.lint.session import Caches, Session, open_session
from pytest_dispatchguard.lint.sources.files import Discovery, discover, require
from pytest_dispatchguard.model.findings import Finding, Hot, HotPlace


class HotLines:
    """Which lines of a project are hot, and why."""

    def __init__(self, project: Project, heat: Heat) -> None:
        self._spans: dict[str, list[tuple[int, int, str, Hot]]] = {}
        for function_id, fact in heat.hot.items():
            module, _, name = function_id.partition(":")
            spans = self._spans.setdefault(project.modules[module], [])
            for definition in project.functions[function_id]:
                spans.append((definition.line, definition.end_line, name, _hot(fact)))

    def at(self, rel: str, line: int) -> tuple[str, Hot] | None:
        """The innermost hot function that a line stands in, and why it is hot."""
        around = [s for s in self._spans.get(rel, ()) if s[0] <= line <= s[1]]
        if not around:
            return None
        _, _, name, hot = min(around, key=lambda span: span[1] - span[0])
        return name, hot

    def only(
        self, findings: Iterable[Finding], anywhere: Collection[str] = ()
    ) -> tuple[list[Finding], int]:
        """The findings that are in hot functions, which they say, and how many are not. Those with codes that
        are told `anywhere` stay as they are."""
        kept, others = [], 0
        for finding in findings:
            place = self.at(finding.path, finding.span.line)
            if place is None and finding.code in anywhere:
                kept.append(finding)
            elif place is None:
                others += 1
            else:
                kept.append(replace(finding, function=place[0], hot=place[1]))
        return kept, others


def hot_lines(
    place: Path, cwd: Path, config_file: Path | None = None, kept: Caches | None = None
) -> HotLines:
    """The hot lines of the project around a place."""
    # One process: torch may run here by now, with threads that do not survive a fork.
    with open_session((place,), cwd, config_file, {}, cached=True, jobs=1, kept=kept) as session:
        discovery = discover((), session.config, cwd=session.config.root)
        _, project, heat = _solved(session, discovery, no_progress)
        return HotLines(project, heat)


def _solved(
    session: Session, discovery: Discovery, progress: Progress
) -> tuple[Survey, Project, Heat]:
    survey = scout_files(
        session.config,
        discovery,
        session.cache,
        session.pool,
        {},
        progress,
        meanwhile=lambda _: session.rules(),
    )
    return survey, *solve(session.config, survey, session.catalog, session.cache)


def hot_functions(
    paths: Sequence[Path],
    *,
    cwd: Path,
    config_file: Path | None,
    jobs: int,
    cached: bool,
    progress: Progress | None,
    note: Callable[[str], None],
    shown: Callable[[str], str] = str,
) -> list[HotPlace]:
    """The hot functions in the paths, by path and line, each with why it is hot. `note` is told of files
    that cannot be read, named as they are `shown`, and of settings that match nothing."""
    require(paths, cwd)
    with open_session(paths, cwd, config_file, {}, cached=cached, jobs=jobs) as session:
        config = session.config
        discovery = discover(paths, config, cwd=cwd)
        survey, project, heat = _solved(session, discovery, progress or no_progress)
        if heat.observed.note:
            note(heat.observed.note)
    asked = {f.rel for f in discovery.targets}
    for line in discovery.notes:
        note(line)
    for rel in sorted(asked):
        error = survey.scouted[rel].error
        if error is not None:
            at, column, said = error
            note(f"{shown(rel)}:{at}:{column}: {said}; nothing in this file was analyzed")
    if is_project(config):
        for line in (*idle_folders(config), *idle_names(config, project)):
            note(line)
    return [
        HotPlace(
            path=place.path,
            line=place.line,
            function=place.function,
            hot=_hot(place.hot),
            only_loops=place.hot.only_loops,
        )
        for place in listed(project, heat)
        if place.path in asked
    ]


def _hot(fact: HotFact) -> Hot:
    return Hot(
        root=fact.root,
        path=tuple(fact.path),
        reason=fact.reason,
        loop=fact.loop,
        per="step" if fact.per == "step" else "call",
        seen=fact.seen,
        users=fact.users,
    )
