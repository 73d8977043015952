"""What a run found in the files asked for, after suppressions, per-file ignores and selection of rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_dispatchguard.config.config import UNPARSABLE, Config, ignored_in_file, selected
from pytest_dispatchguard.lint.pipeline.briefs import Briefs
from pytest_dispatchguard.lint.pipeline.judge_files import Judged
from pytest_dispatchguard.lint.pipeline.survey import Survey
from pytest_dispatchguard.lint.sources.files import Unreadable
from pytest_dispatchguard.model.findings import Finding, RuleInfo, Span


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run found, "maybe" findings included, before baseline and diff are applied."""

    findings: tuple[Finding, ...]
    suppressed: tuple[Finding, ...]
    problems: tuple[str, ...]
    files: int
    functions: int
    hot_functions: int
    notes: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    """A line for each setting that matches nothing and for an outdated profile; valid only if the whole
    project was read."""
    unread: frozenset[str] = frozenset()
    """Files that could not be read, or in which a function could not be judged."""


@dataclass(frozen=True, slots=True)
class _Settled:
    """The findings of one file after its suppressions."""

    kept: tuple[Finding, ...]
    suppressed: tuple[Finding, ...] = ()
    unread: bool = False


def outcome_of(
    config: Config,
    survey: Survey,
    targets: Sequence[str],
    judged: Judged,
    infos: Sequence[RuleInfo],
    briefs: Briefs,
    read: Callable[[str], str | None],
) -> Outcome:
    """Apply suppressions, per-file ignores and the selection of rules to what was found in the targets."""
    ran = {i.code for i in infos if selected(config, i.code, i.default) and not i.running}
    known = {i.code: i.default for i in infos}
    settled = {
        rel: _settle(config, survey, rel, judged.findings.get(rel, ()), ran, known, read)
        for rel in targets
    }
    kept = [finding for one in settled.values() for finding in one.kept]
    return Outcome(
        findings=tuple(_distinct(_in_cells(kept, read))),
        suppressed=tuple(finding for one in settled.values() for finding in one.suppressed),
        problems=tuple(judged.problems),
        files=len(targets),
        functions=sum(survey.scouted[r].functions for r in targets),
        hot_functions=sum(briefs.hot.get(r, 0) for r in targets),
        notes=tuple(survey.notes),
        idle=tuple(briefs.idle),
        unread=frozenset(rel for rel, one in settled.items() if one.unread),
    )


def _settle(
    config: Config,
    survey: Survey,
    rel: str,
    found: Sequence[Finding],
    ran: Collection[str],
    known: Mapping[str, bool],
    read: Callable[[str], str | None],
) -> _Settled:
    scouted = survey.scouted[rel]
    if scouted.error is not None:
        found = [_unparsable(rel, scouted.error)]
    if not found and not scouted.directives:
        return _Settled(())
    unread = any(f.code == UNPARSABLE for f in found)
    here = {code for code in ran if not ignored_in_file(config, rel, code)}
    found = [f for f in found if f.code in here]
    text = read(rel) if scouted.error is None and scouted.directives else None
    if text is None:
        return _Settled(tuple(found), unread=unread)
    from pytest_dispatchguard.lint.results import suppressions

    applied = suppressions.read(text).apply(found, path=rel, ran=here, known=known)
    unused = [f for f in applied.unused if f.code in here]
    return _Settled((*applied.kept, *unused), tuple(applied.suppressed), unread)


def _in_cells(findings: Iterable[Finding], read: Callable[[str], str | None]) -> Iterator[Finding]:
    """Add to the findings in notebooks the cells that they are in, and drop their fixes, which would edit
    Python in a file of JSON."""
    for finding in findings:
        if not finding.path.endswith(".ipynb"):
            yield finding
            continue
        from pytest_dispatchguard.lint.sources.notebooks import cell_of

        cell = cell_of(read(finding.path) or "", finding.span.line)
        yield replace(finding, fix=None, cell=cell)


def _distinct(findings: Iterable[Finding]) -> list[Finding]:
    """Sort the findings and drop duplicates: a rule may reach one place in two ways."""
    seen: set[tuple[str, int, int, str, str]] = set()
    out = []
    for finding in sorted(findings, key=lambda f: f.sort_key):
        if finding.sort_key not in seen:
            seen.add(finding.sort_key)
            out.append(finding)
    return out


def unreadable_input(config: Config, infos: Sequence[RuleInfo], what: Unreadable) -> Outcome:
    """The outcome for standard input that cannot be read."""
    finding = _unparsable(what.rel, (what.line, what.column, what.message))
    shown = any(i.code == finding.code and selected(config, i.code, i.default) for i in infos)
    shown = shown and not ignored_in_file(config, what.rel, finding.code)
    return Outcome(
        findings=(finding,) if shown else (),
        suppressed=(),
        problems=(),
        files=1,
        functions=0,
        hot_functions=0,
        unread=frozenset({what.rel}),
    )


def _unparsable(rel: str, error: tuple[int, int, str]) -> Finding:
    line, column, message = error
    return Finding(
        UNPARSABLE, "unparsable-file", rel, Span(line, column, line, column), "", message
    )
