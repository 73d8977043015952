"""What `dispatchguard check` does, without its command line: lint, fix, apply baseline and diff, report."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_dispatchguard import __version__, prices
from pytest_dispatchguard.config.config import UNPARSABLE, Config
from pytest_dispatchguard.config.load import idle_folders, unread_python
from pytest_dispatchguard.config.project_root import is_project
from pytest_dispatchguard.lint.passes import Check, Pass, changed_lines, one_pass
from pytest_dispatchguard.lint.pipeline.outcome import Outcome
from pytest_dispatchguard.lint.pipeline.survey import Texts
from pytest_dispatchguard.lint.request import Request, inputs
from pytest_dispatchguard.lint.results.reported import is_failure, is_shown
from pytest_dispatchguard.lint.results.write_fixes import write_fixes
from pytest_dispatchguard.lint.session import Session, open_session
from pytest_dispatchguard.lint.sources.files import Source, require
from pytest_dispatchguard.lint.store.cache import cache_path, clean
from pytest_dispatchguard.model.errors import UserError, pass_interrupt_on
from pytest_dispatchguard.model.findings import Finding, Safety, tally
from pytest_dispatchguard.model.reports import Report, Summary

if TYPE_CHECKING:
    from pytest_dispatchguard.lint.results import baseline as baselines
    from pytest_dispatchguard.lint.results.fixes import Round
    from pytest_dispatchguard.lint.results.selection import Selected

# Baselines, fixes and git are imported where they are used: most runs need none of them.

MOST_NOTES = 20
"""Notes that a page for people shows of a whole project, unless all are asked for."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check."""

    config: Config
    report: Report
    problems: tuple[str, ...]
    """Failures of the linter itself: exit status 2, each a line."""
    before: Mapping[str, str]
    """Texts of files that fixes change, before and after, by path."""
    after: Mapping[str, str]
    reader: Texts
    """Texts of files as they were judged."""
    rounds: tuple[Round, ...] = ()
    """What fixes changed, fix by fix."""
    stdin_after: bytes | None = None
    """Standard input after its fixes, in its own encoding."""

    @property
    def failing(self) -> bool:
        """Whether anything was found that fails the run."""
        return any(is_failure(self.config, f) for f in self.report.findings)


@dataclass(frozen=True, slots=True)
class _Edited:
    """What fixing, or writing ignore comments, changed, and what the pass after it found."""

    last: Pass
    before: Mapping[str, str]
    after: Mapping[str, str]
    counts: Mapping[str, int]
    """How many findings were fixed or silenced in each file."""
    rounds: tuple[Round, ...] = ()
    unwritten: tuple[str, ...] = ()
    """A line for each file that could not be written."""


@dataclass(frozen=True, slots=True)
class _Results:
    """What is reported, and what was said while it was found."""

    findings: tuple[Finding, ...]
    cheap: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def check(request: Request) -> Checked:
    """Lint, fix, and apply baseline and diff, as requested."""
    if request.stdin is None:
        require(request.paths, request.cwd)
    try:
        return _open_and_check(request)
    except UserError:
        raise
    except Exception as error:
        pass_interrupt_on(error)
        if not request.cache or request.kept is not None:
            raise
        # A corrupt cache may raise anything. If the error comes again without the cache, it is our own.
        checked = _open_and_check(replace(request, cache=False))
        path = cache_path(checked.config.root)
        if clean(checked.config.root):
            notes = (*checked.report.notes, f"{path}: the cache was broken and has been deleted")
            return replace(checked, report=replace(checked.report, notes=notes))
        return checked


def _open_and_check(request: Request) -> Checked:
    with open_session(
        request.paths,
        request.cwd,
        request.config_file,
        request.settings,
        cached=request.cache,
        jobs=request.jobs,
        kept=request.kept,
    ) as session:
        return _check(prepared(request, session))


def prepared(request: Request, session: Session) -> Check:
    """Read all that a check needs beside the files themselves."""
    config = session.config
    discovery, stdin = inputs(request, config)
    changes = None
    if request.diff_base is not None:
        from pytest_dispatchguard.lint.sources import git_diff

        changes = git_diff.changes(config.root, request.diff_base)
    accepted = _baseline(request, config)
    own = prices.load(config.root / prices.NAME)
    check = Check(request, session, discovery, stdin, changes, accepted, own)
    if request.traces is None:
        return check
    files = (file.rel for file in discovery.project)
    traces = request.traces(files, Texts(discovery, check.texts), request.progress)
    return replace(check, session=replace(session, ran=traces.ran), traces=traces)


def _check(check: Check) -> Checked:
    request, session = check.request, check.session
    edited = _edited(check, one_pass(check, check.texts))
    last = edited.last
    results = _with_elsewhere(check, last, {**check.texts, **edited.after})
    results = _with_baseline(check, last, results)
    silenced = (_silenced(edited.counts),) if request.add_ignores else ()
    notes = (
        *(session.cache.notes if session.cache else ()),
        *silenced,
        *results.notes,
        *last.outcome.notes,
        *_idle(request, session.config, last.outcome),
    )
    shown = {**check.texts, **(edited.after if request.write else {})}
    final = request.stdin
    if isinstance(check.stdin, Source):
        final = check.stdin.encode(edited.after.get(check.stdin.rel, check.stdin.text))
    return Checked(
        session.config,
        _report(check, edited, results, notes),
        (*last.outcome.problems, *edited.unwritten, *results.problems),
        edited.before,
        edited.after,
        Texts(check.discovery, shown),
        edited.rounds,
        final,
    )


def _report(check: Check, edited: _Edited, results: _Results, notes: tuple[str, ...]) -> Report:
    request, config, last = check.request, check.session.config, edited.last
    ran = check.speaking()
    return Report(
        findings=tuple(sorted(results.findings, key=lambda f: f.sort_key)),
        summary=Summary(
            files=last.outcome.files,
            functions=last.outcome.functions,
            hot_functions=last.outcome.hot_functions,
            suppressed=sum(is_shown(config, f) for f in last.outcome.suppressed),
            baselined=sum(is_shown(config, f) for f in last.match.matched) if last.match else 0,
            fixed=sum(edited.counts.values()) if request.write and request.fix != "no" else 0,
            unheard=sum(f.certainty == "maybe" for f in last.hidden),
            unnoted=sum(f.certainty == "note" for f in last.hidden),
            cheap=len(results.cheap),
        ),
        rules=tuple(i for i in check.session.catalog.infos if i.code in ran),
        version=__version__,
        notes=notes,
        # All that a change brings is news.
        most_notes=None if config.notes or check.changes is not None else MOST_NOTES,
    )


def _idle(request: Request, config: Config, outcome: Outcome) -> tuple[str, ...]:
    """Settings that cannot be read or match nothing. Standard input and files outside of a project prove
    nothing about them."""
    if request.stdin is not None or not is_project(config):
        return ()
    return (*unread_python(config), *idle_folders(config), *outcome.idle)


# -- fixes -----------------------------------------------------------------------------------------


def _edited(check: Check, first: Pass) -> _Edited:
    """Fix, or write ignore comments, as requested."""
    if check.request.fix != "no":
        edited = _fixed(check, first)
    elif check.request.add_ignores:
        edited = _with_ignores(check, first)
    else:
        return _Edited(first, {}, {}, {})
    if edited.before and check.request.write and check.request.stdin is None:
        return _written(check, edited)
    return edited


class _Passes:
    """Lints the texts that fixes give, and remembers the last pass."""

    def __init__(self, check: Check, first: Pass) -> None:
        self._check = check
        self.last = first

    def findings(self, after: Mapping[str, str]) -> tuple[Finding, ...]:
        """The findings in these texts."""
        self.last = one_pass(self._check, {**self._check.texts, **after})
        return self.last.findings


def _fixed(check: Check, first: Pass) -> _Edited:
    from pytest_dispatchguard.lint.results.fixes import repair

    safeties = safeties_of(check.request)
    passes = _Passes(check, first)
    read = Texts(check.discovery, check.texts)
    wanted = selected(check, read)
    if wanted is not None:
        wanted.require(first.findings, safeties)

    def again(after: Mapping[str, str]) -> Sequence[Finding]:
        found = passes.findings(after)
        return found if wanted is None else wanted.among(found, after)

    begin = first.findings if wanted is None else wanted.among(first.findings, {})
    made = repair(begin, read, again, safeties)
    return _Edited(passes.last, made.before, made.after, made.counts, made.rounds)


def safeties_of(request: Request) -> tuple[Safety, ...]:
    """The kinds of fixes that are asked for."""
    return ("safe", "unsafe") if request.fix == "unsafe" else ("safe",)


def selected(check: Check, read: Texts) -> Selected | None:
    """The fixes that are asked for; None for all."""
    only = check.request.only
    return (
        None if only is None else only.resolved(check.session.config.root, check.request.cwd, read)
    )


def _with_ignores(check: Check, first: Pass) -> _Edited:
    """Write comments that silence what fails the run, and notes if all of them are asked for."""
    from pytest_dispatchguard.lint.results.ignore_comments import add_ignore_comments

    config = check.session.config
    meant = [f for f in first.findings if config.notes or is_failure(config, f)]
    made = add_ignore_comments(meant, Texts(check.discovery, check.texts))
    last = one_pass(check, {**check.texts, **made.after}) if made.after else first
    return _Edited(last, made.before, made.after, made.counts)


def _silenced(counts: Mapping[str, int]) -> str:
    number = sum(counts.values())
    files = f"{len(counts)} file{'' if len(counts) == 1 else 's'}"
    return f"comments suppress {number} more finding{'' if number == 1 else 's'} in {files}"


def _written(check: Check, edited: _Edited) -> _Edited:
    """Write the edits to disk. A file that cannot be written stays, and is reported, as it was."""
    root = check.session.config.root
    failed = write_fixes(root, check.discovery, edited.before, edited.after)
    if not failed:
        return edited
    before, after = _without(edited.before, failed), _without(edited.after, failed)
    last = one_pass(check, {**check.texts, **after})
    counts = {rel: count for rel, count in edited.counts.items() if rel not in failed}
    rounds = tuple(one for one in edited.rounds if one.path not in failed)
    return _Edited(last, before, after, counts, rounds, tuple(failed.values()))


def _without(texts: Mapping[str, str], failed: Collection[str]) -> dict[str, str]:
    return {rel: text for rel, text in texts.items() if rel not in failed}


# -- what a change makes hot elsewhere -------------------------------------------------------------


def _with_elsewhere(check: Check, last: Pass, texts: Mapping[str, str]) -> _Results:
    """The findings of the last pass, and those in functions that the change makes hot but does not touch."""
    if check.changes is None or check.request.stdin is not None:
        return _Results(last.findings, last.cheap)
    from pytest_dispatchguard.lint.newly_hot import findings_elsewhere

    changes = replace(check.changes, lines=changed_lines(check.discovery, check.changes, texts))
    found, problems = findings_elsewhere(
        check.session, check.discovery, changes, last.untouched, check.accepted, texts
    )
    caused = prices.priced(found, check.session.catalog.prices, check.prices)
    return _Results(
        (*last.findings, *(f for f in caused if not check.is_cheap(f))),
        (*last.cheap, *(f for f in caused if check.is_cheap(f))),
        problems=problems,
    )


# -- baseline --------------------------------------------------------------------------------------


def _baseline(request: Request, config: Config) -> baselines.Baseline | None:
    if config.baseline is None:
        if request.write_baseline or request.prune_baseline:
            raise UserError(
                "no baseline given: pass --baseline FILE, or set `baseline` in the configuration"
            )
        return None
    from pytest_dispatchguard.lint.results import baseline as baselines

    return (baselines.standing if request.write_baseline else baselines.load)(config.baseline)


def _with_baseline(check: Check, last: Pass, results: _Results) -> _Results:
    """Write or prune the baseline as requested, or list its stale entries."""
    path, request = check.session.config.baseline, check.request
    if path is None or check.accepted is None:
        return results
    root = check.session.config.root
    name = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
    if last.outcome.problems:
        # Entries of what was not judged match nothing now, but may still be right.
        if not (request.write_baseline or request.prune_baseline):
            return results
        problem = f"{name}: left unchanged, because not everything could be checked"
        return replace(results, problems=(*results.problems, problem))
    from pytest_dispatchguard.lint.results import baseline as baselines

    if request.write_baseline:
        renewed = baselines.renewed(
            check.accepted,
            results.findings,
            [*last.hidden, *results.cheap],
            checked=check.checked_files(last.outcome),
            ran=check.speaking(),
            root=root,
        )
        baselines.write(path, renewed)
        note = f"{tally(f for f in results.findings if f.code != UNPARSABLE)} accepted into {name}"
        unparsable = tuple(f for f in results.findings if f.code == UNPARSABLE)
        return replace(results, findings=unparsable, notes=(note,))
    if last.match is None or not last.match.stale:
        return results
    stale = last.match.stale
    if not request.prune_baseline:
        return replace(results, notes=_stale(name, stale))
    baselines.write(path, baselines.pruned(check.accepted, stale))
    count = sum(e.count for e in stale)
    note = f"{count} {'entry' if count == 1 else 'entries'} pruned from {name}"
    return replace(results, notes=(note,))


def _stale(name: str, stale: Collection[baselines.Entry]) -> tuple[str, ...]:
    entries = list(stale)
    lines = [
        f"{name}: {e.code} in {e.path} ({e.function or 'module'}) no longer matches anything"
        for e in entries[:10]
    ]
    if len(entries) > 10:
        lines.append(f"{name}: … and {len(entries) - 10} more")
    count = sum(e.count for e in entries)
    return (*lines, f"remove stale entries with --prune-baseline ({count})")
