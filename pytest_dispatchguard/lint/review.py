"""What a change adds to the findings of a project, and what it takes from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_dispatchguard import prices
from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.lint import engine
from pytest_dispatchguard.lint.newly_hot import newly_hot
from pytest_dispatchguard.lint.pipeline.progress import Progress
from pytest_dispatchguard.lint.pipeline.survey import Texts
from pytest_dispatchguard.lint.results import baseline as baselines
from pytest_dispatchguard.lint.results.reported import is_shown
from pytest_dispatchguard.lint.session import Caches, Session, open_session
from pytest_dispatchguard.lint.sources import git_diff
from pytest_dispatchguard.lint.sources.base_revision import before
from pytest_dispatchguard.lint.sources.files import discover
from pytest_dispatchguard.model.errors import UserError, pass_interrupt_on
from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.model.reviews import Remark, Review, Stretch


@dataclass(frozen=True, slots=True)
class Asked:
    """What a user asked for."""

    base: str
    cwd: Path
    config_file: Path | None
    settings: Mapping[str, Any]
    """Fields of Config that the command line gives."""
    jobs: int
    cache: bool
    kept: Caches | None = None
    """Gives the cache to use in place of the project's."""
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class Reviewed:
    """What came of it."""

    config: Config
    review: Review
    problems: tuple[str, ...]
    """Failures of the linter itself, each a line."""
    sources: Texts
    """Texts of files as they are now."""


def reviewed(asked: Asked) -> Reviewed:
    """Lints the project as it is and as it was at the merge base, and tells the two apart."""
    try:
        return _open_and_review(asked)
    except UserError:
        raise
    except Exception as error:
        pass_interrupt_on(error)
        if not asked.cache or asked.kept is not None:
            raise
        # Rows of the cache that nobody wrote like this can do anything; `check` drops them.
        return _open_and_review(replace(asked, cache=False))


def _open_and_review(asked: Asked) -> Reviewed:
    with open_session(
        (),
        asked.cwd,
        asked.config_file,
        asked.settings,
        cached=asked.cache,
        jobs=asked.jobs,
        kept=asked.kept,
    ) as session:
        return _reviewed(asked, session)


def _reviewed(asked: Asked, session: Session) -> Reviewed:
    config, cache = session.config, session.cache
    changes = git_diff.changes(config.root, asked.base, "--base")
    discovery = discover((), config, cwd=config.root)
    now = engine.run(session, discovery, progress=asked.progress)
    old_files, old_texts = before(config, discovery, changes)
    then = engine.run(session, old_files, texts=old_texts, progress=asked.progress, keep=False)
    found = [f for f in now.findings if is_shown(config, f)]
    was = [f for f in then.findings if is_shown(config, f)]
    accepted = _accepted(config)
    found, was = _unaccepted(found, accepted), _unaccepted(was, accepted)
    new, gone = told_apart(found, was, changes.before)
    newly = (
        newly_hot(session, discovery, changes, {})
        if any(not _changed(changes, f) for f in new)
        else None
    )
    table, own = session.catalog.prices, prices.load(config.root / prices.NAME)
    remarks: list[Remark] = []
    others: list[Finding] = []
    for finding in prices.priced(new, table, own):
        at = finding
        if newly is not None and not _changed(changes, finding):
            at = newly.told_at_its_cause(finding) or finding
        remark = _remark(changes, at)
        if remark is None:
            others.append(at)
        else:
            remarks.append(remark)
    review = Review(
        base=asked.base,
        remarks=tuple(sorted(remarks, key=lambda remark: remark.finding.sort_key)),
        others=tuple(sorted(others, key=lambda finding: finding.sort_key)),
        fixed=tuple(prices.priced(gone, table, own)),
        notes=tuple(dict.fromkeys((*now.notes, *(cache.notes if cache else ())))),
        prefix=changes.prefix,
        strict=config.strict,
        rules=tuple(i for i in session.catalog.infos if i.code in {f.code for f in new}),
    )
    problems = tuple(dict.fromkeys((*now.problems, *then.problems)))
    return Reviewed(config, review, problems, Texts(discovery, {}))


def told_apart(
    now: Sequence[Finding], then: Sequence[Finding], moved: Mapping[str, str]
) -> tuple[list[Finding], list[Finding]]:
    """The findings that are new, and those that are gone. `moved` has the path before by the path now: a
    finding that only moved, with its file or to another function or file, is neither."""
    after = {old: new for new, old in moved.items()}
    same_file = [replace(f, path=after.get(f.path, f.path)) for f in then]
    new = list(baselines.match(now, baselines.from_findings(same_file), checked=()).new)
    left = baselines.match(same_file, baselines.from_findings(now), checked=()).new
    gone = [replace(f, path=moved.get(f.path, f.path)) for f in left]
    texts = Counter(_text(f) for f in new) & Counter(_text(f) for f in gone)
    return _without(new, texts), _without(gone, texts)


def _text(finding: Finding) -> tuple[str, str]:
    return finding.code, " ".join(finding.source.split())


def _without(findings: Iterable[Finding], texts: Counter[tuple[str, str]]) -> list[Finding]:
    left = Counter(texts)
    kept = []
    for finding in findings:
        if left[_text(finding)] > 0:
            left[_text(finding)] -= 1
        else:
            kept.append(finding)
    return kept


def _accepted(config: Config) -> baselines.Baseline:
    return baselines.Baseline() if config.baseline is None else baselines.load(config.baseline)


def _unaccepted(findings: Iterable[Finding], accepted: baselines.Baseline) -> list[Finding]:
    return list(baselines.match(findings, accepted, checked=()).new)


def _changed(changes: git_diff.Changes, finding: Finding) -> bool:
    span = finding.span
    return git_diff.touches(changes.lines, finding.path, span.line, span.end_line)


def _remark(changes: git_diff.Changes, finding: Finding) -> Remark | None:
    """A finding at those of its lines that the change shows; None where it shows none."""
    path, span = finding.path, finding.span
    first, last = span.line, span.end_line
    if span.end_column == 1 and last > first:
        last -= 1
    for start, end in changes.shown.get(path, ()):
        if start <= last and first <= end:
            shown = Stretch(start, end, changes.before.get(path, ""), changes.same.get(path, {}))
            return Remark(finding, max(first, start), min(last, end), shown)
    return None
