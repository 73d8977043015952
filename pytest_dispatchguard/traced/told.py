"""Traces, read and joined with what the linter says of the code that was traced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_dispatchguard.model.traces import Line, Told, Trace
from pytest_dispatchguard.traced.ran import profile_of
from pytest_dispatchguard.traces.analysis import analyzed
from pytest_dispatchguard.traces.frames import Files
from pytest_dispatchguard.traces.joining import joined

if TYPE_CHECKING:
    from pytest_dispatchguard.lint.pipeline.progress import Progress
    from pytest_dispatchguard.lint.session import Session
    from pytest_dispatchguard.lint.sources.files import Discovery
    from pytest_dispatchguard.model.findings import Finding
    from pytest_dispatchguard.traces.replay import Watch


def told(
    files: Sequence[Path],
    project: Path | None,
    moved: Sequence[tuple[str, str]],
    *,
    config: Path | None = None,
    jobs: int = 1,
    cache: bool = True,
    tell: Progress | None = None,
    watch: Watch | None = None,
) -> tuple[Told, ...]:
    """What traces tell, each joined with the project around a place; None joins with nothing. `watch` is told
    of single events."""
    if project is None:
        return tuple(Told(trace) for trace in read(files, Files.of((), moved), tell, watch))
    from pytest_dispatchguard.lint.session import open_session
    from pytest_dispatchguard.lint.sources.files import discover

    place, cwd = (project,), Path.cwd()
    with open_session(place, cwd, config, {}, cached=cache, jobs=jobs) as session:
        discovery = discover(place, session.config, cwd=cwd)
        known = Files.of((file.rel for file in discovery.project), moved)
        return joined_all(session, discovery, read(files, known, tell, watch), tell)


def read(
    files: Sequence[Path], known: Files, tell: Progress | None, watch: Watch | None = None
) -> tuple[Trace, ...]:
    """The traces of files."""
    return tuple(analyzed(path, known, _bytes(path, tell), watch) for path in files)


def _bytes(path: Path, tell: Progress | None) -> Callable[[int, int], None] | None:
    if tell is None:
        return None
    return lambda done, size: tell(f"reading {path.name}, MB", done // 10**6, size // 10**6)


def joined_all(
    session: Session, discovery: Discovery, traces: Sequence[Trace], tell: Progress | None
) -> tuple[Told, ...]:
    """Joins traces with what the linter finds in the files that they name."""
    from pytest_dispatchguard.lint.pipeline.survey import Texts

    text_of = Texts(discovery, {})
    named = {line.file for trace in traces for line in _lines(trace)}
    session = replace(session, ran=profile_of(traces, text_of))
    findings = _findings(session, discovery, named, tell) if named else ()
    return tuple(Told(trace, joined(trace, findings, text_of)) for trace in traces)


def _lines(trace: Trace) -> list[Line]:
    lines = [*(wait.line for wait in trace.waits), *(one.line for one in trace.overheads)]
    return [line for line in lines if line.ours]


def _findings(
    session: Session, discovery: Discovery, named: set[str], tell: Progress | None
) -> tuple[Finding, ...]:
    """All that the linter has for the files, whatever comments and baselines hide elsewhere."""
    from pytest_dispatchguard import prices
    from pytest_dispatchguard.lint import engine

    targets = tuple(file for file in discovery.project if file.rel in named)
    asked = replace(discovery, targets=targets)
    outcome = engine.run(session, asked, progress=tell)
    own = prices.load(session.config.root / prices.NAME)
    silenced = (
        replace(finding, message=f"{finding.message} (silenced by a comment)")
        for finding in outcome.suppressed
    )
    found = (*outcome.findings, *silenced)
    return tuple(prices.priced(found, session.catalog.prices, own))
