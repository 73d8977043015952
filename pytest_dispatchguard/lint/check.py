"""What `dispatchguard check` does, without its command line: settings, a run, fixes, baseline, diff."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pytest_dispatchguard import __version__, prices
from pytest_dispatchguard.config.config import UNPARSABLE, Config, selected
from pytest_dispatchguard.config.load import idle_folders, load_config, unread_python
from pytest_dispatchguard.config.project_root import find_root, is_project
from pytest_dispatchguard.lint import engine
from pytest_dispatchguard.lint.incremental.survey import Progress, Texts
from pytest_dispatchguard.lint.judge.catalog import Catalog, Codes, fingerprint
from pytest_dispatchguard.lint.judge.catalog import catalog as catalog_of
from pytest_dispatchguard.lint.sources.files import (
    Discovery,
    File,
    Source,
    Unreadable,
    decode_source,
    discover,
    is_excluded,
    leads_out,
    read_source,
    rel_in,
    require,
    require_python,
    write_source,
)
from pytest_dispatchguard.lint.store.cache import Cache, cache_path, clean
from pytest_dispatchguard.lint.workers import Pool
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.findings import Finding, Safety
from pytest_dispatchguard.model.reports import Report, Summary
from pytest_dispatchguard.paths import absolute, exists, is_folder

if TYPE_CHECKING:
    from pytest_dispatchguard.lint.results import baseline as baselines
    from pytest_dispatchguard.lint.sources import git_diff

# Baselines and git are imported where they are asked for: most runs need neither.

FixMode = Literal["no", "safe", "unsafe"]

MOST_NOTES = 20
"""Notes that a page for people shows of a whole project, unless all are asked for."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a user asked for."""

    paths: tuple[Path, ...]
    cwd: Path
    config_file: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields of Config that the command line gives."""
    fix: FixMode = "no"
    write: bool = True
    """Whether fixes go to disk (`--fix`) or are only shown (`--diff`)."""
    diff_base: str | None = None
    add_ignores: bool = False
    """Whether comments are written that silence what fails the run."""
    write_baseline: bool = False
    prune_baseline: bool = False
    jobs: int = 1
    cache: bool = True
    min_cost: float = 0.0
    """Microseconds: findings that cost less are not told."""
    stdin: bytes | None = None
    """Text in place of the one file named in `paths`."""
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of it."""

    config: Config
    report: Report
    problems: tuple[str, ...]
    """Failures of the linter itself: exit status 2, each a line."""
    before: Mapping[str, str]
    """Texts of files that fixes change, before and after, by path."""
    after: Mapping[str, str]
    reader: Texts
    """Texts of files as they were judged."""
    stdin_after: bytes | None = None
    """Standard input after its fixes, in its own encoding."""

    @property
    def failing(self) -> bool:
        """Whether something was found that fails a run."""
        return any(fails(self.config, f) for f in self.report.findings)


def fails(config: Config, finding: Finding) -> bool:
    """Whether a finding fails a run: notes do where the configuration is strict."""
    return config.strict or finding.certainty != "note"


def settings(
    paths: Sequence[Path],
    cwd: Path,
    config_file: Path | None,
    given: Mapping[str, Any],
    cached: bool,
) -> tuple[Config, Callable[[], Catalog], Cache | None]:
    """The configuration, what gives the rules there are (slowly, the first time), and the open cache."""
    asked = [absolute(cwd / p) for p in paths] or [cwd]
    root = find_root(asked, None if config_file is None else absolute(cwd / config_file))
    cache = Cache.open(cache_path(root), fingerprint()) if cached and is_folder(root) else None
    rules = functools.cache(functools.partial(catalog_of, cache))
    try:
        config = load_config(
            paths, cwd=cwd, config_file=config_file, known_codes=Codes(rules), **given
        )
    except BaseException:
        if cache is not None:
            cache.close()
        raise
    return config, rules, cache


def check(request: Request) -> Checked:
    """Lints, fixes, and holds against baseline and diff, as asked."""
    if request.stdin is None:
        require(request.paths, request.cwd)
    try:
        return _open_and_check(request)
    except UserError:
        raise
    except Exception:
        if not request.cache:
            raise
        # Rows that nobody wrote like this can do anything; without them the same error is ours.
        checked = _open_and_check(replace(request, cache=False))
        path = cache_path(checked.config.root)
        if clean(checked.config.root):
            notes = (*checked.report.notes, f"{path}: the cache was broken and has been dropped")
            return replace(checked, report=replace(checked.report, notes=notes))
        return checked


def _open_and_check(request: Request) -> Checked:
    config, rules, cache = settings(
        request.paths, request.cwd, request.config_file, request.settings, request.cache
    )
    try:
        with Pool(request.jobs) as pool:
            return _check(request, config, rules, cache, pool)
    finally:
        if cache is not None:
            cache.close()


def _check(
    request: Request,
    config: Config,
    rules: Callable[[], Catalog],
    cache: Cache | None,
    pool: Pool,
) -> Checked:
    discovery, given = inputs(request, config)
    texts = {given.rel: given.text} if isinstance(given, Source) else {}
    notes = [*(cache.notes if cache else ())]
    changes = None
    if request.diff_base is not None:
        from pytest_dispatchguard.lint.sources import git_diff

        changes = git_diff.changes(config.root, request.diff_base)
    accepted = _baseline(request, config)

    own = prices.load(config.root / prices.NAME)
    unheard: list[Finding] = []  # in the last of the passes
    cheap: list[Finding] = []
    untouched: list[Finding] = []

    def once(
        texts: Mapping[str, str],
    ) -> tuple[engine.Outcome, list[Finding], baselines.Match | None]:
        outcome = (
            engine.refused(config, rules().infos, given)
            if isinstance(given, Unreadable)
            else engine.run(
                config, discovery, rules, cache, pool, texts=texts, progress=request.progress
            )
        )
        findings = list(outcome.findings)
        match = None
        anew = request.write_baseline and not outcome.problems
        if accepted is not None and not anew:
            # Held against all there is: what is not shown this time keeps its entry.
            from pytest_dispatchguard.lint.results import baseline as baselines

            match = baselines.match(
                findings,
                accepted,
                checked={f.rel for f in discovery.targets} - outcome.unread,
                ran=_speaking(config, rules()),
                root=config.root,
            )
            findings = list(match.new)
        untouched.clear()
        if changes is not None:
            now = {**changes.lines, **_carried(discovery, changes.lines, texts)}
            hit = [git_diff.touches(now, f.path, f.span.line, f.span.end_line) for f in findings]
            untouched.extend(f for f, told in zip(findings, hit, strict=True) if not told)
            findings = [f for f, told in zip(findings, hit, strict=True) if told]
        unheard[:] = [f for f in findings if not heard(config, f)]
        told = prices.priced((f for f in findings if heard(config, f)), rules().prices, own)
        cheap[:] = [f for f in told if _is_cheap(request, f)]
        return outcome, [f for f in told if not _is_cheap(request, f)], match

    outcome, findings, match = once(texts)
    ran = _speaking(config, rules())
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    fixed: dict[str, int] = {}
    unwritten: list[str] = []
    if request.fix != "no":
        fixed, before, after, (outcome, findings, match) = _fix(
            request, discovery, texts, (outcome, findings, match), once
        )
    elif request.add_ignores:
        fixed, before, after = _silence(config, discovery, texts, findings)
        if after:
            outcome, findings, match = once({**texts, **after})
    if before and request.write and request.stdin is None:
        failed = _write(config.root, discovery, before, after)
        if failed:
            # What could not be written stays as it was, and is reported so.
            for rel in failed:
                del before[rel], after[rel], fixed[rel]
            unwritten = list(failed.values())
            outcome, findings, match = once({**texts, **after})
    if request.add_ignores:
        notes.append(_silenced(fixed))
    caused = []
    if changes is not None and request.stdin is None:
        shown = {**texts, **after}
        now = replace(changes, lines={**changes.lines, **_carried(discovery, changes.lines, shown)})
        told, wrong = _caused(
            config, discovery, rules, cache, pool, now, untouched, accepted, shown
        )
        unwritten += wrong
        caused = list(prices.priced(told, rules().prices, own))
        findings += [f for f in caused if not _is_cheap(request, f)]
        cheap += [f for f in caused if _is_cheap(request, f)]
    if outcome.problems:
        # Entries of what was not judged match nothing now, and are right all the same.
        if config.baseline is not None and (request.write_baseline or request.prune_baseline):
            name = _shown(config.baseline, config.root)
            unwritten.append(f"{name}: left as it was, because not everything could be judged")
    elif request.write_baseline and accepted is not None:
        checked = {f.rel for f in discovery.targets} - outcome.unread
        untold = [*unheard, *cheap]
        notes.append(_renew(config, accepted, findings, untold, checked=checked, ran=ran))
        findings = [f for f in findings if f.code == UNPARSABLE]
    elif match is not None and match.stale:
        notes.extend(_stale(request, config, accepted, match))
    kept = [i for i in rules().infos if i.code in ran]
    report = Report(
        findings=tuple(sorted(findings, key=lambda f: f.sort_key)),
        summary=Summary(
            files=outcome.files,
            functions=outcome.functions,
            hot_functions=outcome.hot_functions,
            suppressed=sum(heard(config, f) for f in outcome.suppressed),
            baselined=sum(heard(config, f) for f in match.matched) if match else 0,
            fixed=sum(fixed.values()) if request.write and request.fix != "no" else 0,
            unheard=sum(f.certainty == "maybe" for f in unheard),
            unnoted=sum(f.certainty == "note" for f in unheard),
            cheap=len(cheap),
        ),
        rules=tuple(kept),
        version=__version__,
        notes=(*notes, *outcome.notes, *_idle(request, config, outcome)),
        # What a change brings is news, all of it.
        most_notes=None if config.notes or changes is not None else MOST_NOTES,
    )
    shown = {**texts, **after} if request.write else dict(texts)
    final = request.stdin
    if isinstance(given, Source):
        final = given.encode(after.get(given.rel, given.text))
    reader = Texts(discovery, shown)
    problems = (*outcome.problems, *unwritten)
    return Checked(config, report, problems, before, after, reader, final)


def _caused(
    config: Config,
    discovery: Discovery,
    rules: Callable[[], Catalog],
    cache: Cache | None,
    pool: Pool,
    changes: git_diff.Changes,
    untouched: Sequence[Finding],
    accepted: baselines.Baseline | None,
    texts: Mapping[str, str],
) -> tuple[list[Finding], tuple[str, ...]]:
    """What the changes make hot elsewhere, perhaps in files that were not asked for: told at the calls that
    do, in those that were. And what went wrong in those that were not."""
    from pytest_dispatchguard.lint.newly_hot import newly_hot
    from pytest_dispatchguard.lint.sources.git_diff import touches

    newly = newly_hot(config, discovery, rules, cache, pool, changes, texts)
    if newly is None:
        return [], ()
    asked = {f.rel for f in discovery.targets}
    others = tuple(f for f in discovery.project if f.rel in newly.files - asked)
    found = list(untouched)
    problems: tuple[str, ...] = ()
    if others:
        files = Discovery(others, discovery.project)
        outcome = engine.run(config, files, rules, cache, pool, texts=texts)
        more = list(outcome.findings)
        problems = outcome.problems
        if accepted is not None:
            from pytest_dispatchguard.lint.results import baseline as baselines

            more = list(baselines.match(more, accepted, checked=()).new)
        found += [
            f for f in more if not touches(changes.lines, f.path, f.span.line, f.span.end_line)
        ]
    told = (newly.told_at_its_cause(f) for f in found if heard(config, f))
    return [f for f in told if f is not None and f.path in asked], problems


def _speaking(config: Config, catalog: Catalog) -> set[str]:
    """The codes that may be found in a run."""
    return {i.code for i in catalog.infos if selected(config, i.code, i.default)}


def _idle(request: Request, config: Config, outcome: engine.Outcome) -> tuple[str, ...]:
    """Settings that cannot be read or match nothing; standard input and files outside of a project prove
    nothing."""
    if request.stdin is not None or not is_project(config):
        return ()
    return (*unread_python(config), *idle_folders(config), *outcome.idle)


def heard(config: Config, finding: Finding) -> bool:
    """Whether a finding is shown: what is only maybe so is for the pedantic, notes for who did not refuse
    them."""
    if finding.certainty == "note":
        return config.notes is not False
    return config.pedantic or finding.certainty == "sure"


def _is_cheap(request: Request, finding: Finding) -> bool:
    """Whether a finding costs less than is asked for; of what has no price nobody knows."""
    return finding.price is not None and finding.rank < request.min_cost


def _carried(
    discovery: Discovery, changed: Mapping[str, git_diff.Ranges], texts: Mapping[str, str]
) -> dict[str, git_diff.Ranges]:
    """Changed lines of texts that stand in place of what git sees on disk."""
    from pytest_dispatchguard.lint.sources import git_diff

    files = {f.rel: f for f in discovery.targets}
    out = {}
    for rel, text in texts.items():
        source = read_source(files[rel].path, rel) if rel in files else None
        out[rel] = (
            git_diff.carried(changed.get(rel, ()), source.text, text)
            if isinstance(source, Source)
            else git_diff.ALL
        )
    return out


def inputs(request: Request, config: Config) -> tuple[Discovery, Source | Unreadable | None]:
    """The files of the run, and standard input as it was read."""
    if request.stdin is None:
        return discover(request.paths, config, cwd=request.cwd), None
    (path,) = request.paths
    place = absolute(request.cwd / path)
    require_python(path, place, request.stdin)
    rel = rel_in(config.root, place)
    context = (
        discover((), config, cwd=config.root) if exists(place) or config.file else Discovery((), ())
    )
    target = File(str(place), rel, len(request.stdin), 0, 0, 0)
    others = tuple(f for f in context.project if f.rel != rel)
    project = tuple(sorted((*others, target), key=lambda f: f.rel))
    targets = () if is_excluded(rel, config) else (target,)
    return Discovery(targets, project, context.notes), decode_source(request.stdin, rel)


def _baseline(request: Request, config: Config) -> baselines.Baseline | None:
    if config.baseline is None:
        if request.write_baseline or request.prune_baseline:
            raise UserError(
                "which baseline? name it with --baseline FILE, or `baseline` in the configuration"
            )
        return None
    from pytest_dispatchguard.lint.results import baseline as baselines

    return (baselines.standing if request.write_baseline else baselines.load)(config.baseline)


def _renew(
    config: Config,
    standing: baselines.Baseline,
    told: Collection[Finding],
    untold: Collection[Finding],
    *,
    checked: Collection[str],
    ran: Collection[str],
) -> str:
    """Writes the baseline anew, and says so."""
    from pytest_dispatchguard.lint.results import baseline as baselines

    assert config.baseline is not None
    made = baselines.renewed(standing, told, untold, checked=checked, ran=ran, root=config.root)
    baselines.write(config.baseline, made)
    number = sum(f.code != UNPARSABLE for f in told)
    count = f"{number} finding{'' if number == 1 else 's'}"
    return f"{count} accepted into {_shown(config.baseline, config.root)}"


def _stale(
    request: Request, config: Config, accepted: baselines.Baseline | None, match: baselines.Match
) -> list[str]:
    from pytest_dispatchguard.lint.results import baseline as baselines

    assert config.baseline is not None and accepted is not None
    name = _shown(config.baseline, config.root)
    count = sum(e.count for e in match.stale)
    if request.prune_baseline:
        baselines.write(config.baseline, baselines.pruned(accepted, match.stale))
        return [f"{count} {'entry' if count == 1 else 'entries'} pruned from {name}"]
    lines = [
        f"{name}: {e.code} in {e.path} ({e.function or 'module'}) matches nothing any more"
        for e in match.stale[:10]
    ]
    if len(match.stale) > 10:
        lines.append(f"{name}: … and {len(match.stale) - 10} more")
    return [*lines, f"remove what no longer matches with --prune-baseline ({count})"]


def _shown(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


_Pass = tuple[engine.Outcome, list[Finding], "baselines.Match | None"]


def _fix(
    request: Request,
    discovery: Discovery,
    texts: Mapping[str, str],
    first: _Pass,
    once: Callable[[Mapping[str, str]], _Pass],
) -> tuple[dict[str, int], dict[str, str], dict[str, str], _Pass]:
    """Makes the fixes there are. Gives how many were made in each file, the texts before and after, and what
    is found in those after."""
    from pytest_dispatchguard.lint.results.fixes import repair

    safeties: tuple[Safety, ...] = ("safe",) if request.fix == "safe" else ("safe", "unsafe")
    last = first

    def again(after: Mapping[str, str]) -> list[Finding]:
        nonlocal last
        last = once({**texts, **after})
        return last[1]

    made = repair(first[1], Texts(discovery, texts), again, safeties)
    return dict(made.counts), dict(made.before), dict(made.after), last


def _silence(
    config: Config, discovery: Discovery, texts: Mapping[str, str], findings: Sequence[Finding]
) -> tuple[dict[str, int], dict[str, str], dict[str, str]]:
    """Writes comments for what fails the run, and for notes where all of them are asked for. Gives how many
    findings they silence in each file, and the texts before and after."""
    from pytest_dispatchguard.lint.results.ignore_comments import silenced

    meant = [f for f in findings if config.notes or fails(config, f)]
    made = silenced(meant, Texts(discovery, texts))
    return dict(made.counts), dict(made.before), dict(made.after)


def _silenced(counts: Mapping[str, int]) -> str:
    number = sum(counts.values())
    files = f"{len(counts)} file{'' if len(counts) == 1 else 's'}"
    return f"comments silence {number} more finding{'' if number == 1 else 's'} in {files}"


def _write(
    root: Path, discovery: Discovery, before: Mapping[str, str], after: Mapping[str, str]
) -> dict[str, str]:
    """Writes fixed files, each whole or not at all; a line for each that could not be."""
    files = {f.rel: f for f in discovery.targets}
    failed: dict[str, str] = {}
    for rel, text in after.items():
        source = read_source(files[rel].path, rel)
        if not isinstance(source, Source) or source.text != before[rel]:
            failed[rel] = f"{rel}: changed while it was being fixed, so not written; run again"
            continue
        if leads_out(files[rel], root):
            failed[rel] = f"{rel}: leads out of the project by a link, so not written; fix it there"
            continue
        try:
            write_source(files[rel].path, source.encode(text))
        except UserError as error:
            failed[rel] = str(error)
    return failed
