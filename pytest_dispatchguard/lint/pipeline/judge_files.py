"""Runs the rules over the hot functions of files whose findings are not known yet, in worker processes if
that pays."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import NamedTuple

from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.lint.facts import Brief
from pytest_dispatchguard.lint.judge.brief_parts import Parts, same_answers
from pytest_dispatchguard.lint.judge.catalog import Catalog
from pytest_dispatchguard.lint.judge.target import Target
from pytest_dispatchguard.lint.pipeline.briefs import Briefs
from pytest_dispatchguard.lint.pipeline.progress import Progress
from pytest_dispatchguard.lint.pipeline.survey import Survey, facts_of, sha, text_at, text_of
from pytest_dispatchguard.lint.processes.workers import Pool, WorkerDiedError
from pytest_dispatchguard.lint.sources.files import Unreadable
from pytest_dispatchguard.lint.store.cache import Store
from pytest_dispatchguard.lint.store.packing import (
    asked_in,
    hot_in_brief,
    pack_brief,
    pack_findings,
    pack_judged,
    unpack_brief,
    unpack_findings,
    unpack_judged,
)
from pytest_dispatchguard.lint.syntax.chunks import Lines, Outline, worth_judging
from pytest_dispatchguard.model.findings import Finding

# `judge.judge` brings libcst and is imported where it runs: most runs over a known project need none of it.

WORTH_A_PROCESS = 12
"""Files: fewer are judged in this process."""
_STATES = 4
"""Of files, and of their functions, for which the cache keeps what was found."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What the rules found, by file."""

    findings: Mapping[str, list[Finding]]
    problems: Sequence[str] = ()
    """Failures of the linter itself, a line each."""


class _Piece(NamedTuple):
    """A function to judge: the line it is on now, and a hash of all that judging it reads; empty if that is
    unknown."""

    outline: Outline
    line: int
    key: str


class _Job(NamedTuple):
    """The functions of one file that a process is to judge."""

    rel: str
    path: str
    digest: str
    text: str | None
    """In place of what is on disk."""
    brief: str
    outlines: list[Outline]
    target: Target
    packs: tuple[str, ...]


class _Found(NamedTuple):
    """What judging the functions of one file gave: for each its first line and its findings as JSON."""

    rel: str
    rows: list[tuple[Outline, int, str]]
    problems: list[str]


@dataclass(slots=True)
class _Results:
    """What processes found, and whether one of them died."""

    rows: dict[tuple[str, Outline], tuple[int, str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    died: bool = False

    def add(self, found: _Found) -> None:
        self.rows.update(((found.rel, outline), (line, row)) for outline, line, row in found.rows)
        self.problems.extend(found.problems)


def target_of(config: Config) -> Target:
    """What rules may ask about the linted project."""
    return Target(
        tensor_types=config.tensor_types,
        tree_modules=config.tree_modules,
        python=config.requires_python or "",
        torch=config.torch_requirement or "",
    )


def judge_files(
    config: Config,
    survey: Survey,
    targets: Sequence[str],
    briefs: Briefs,
    catalog: Catalog,
    cache: Store | None,
    pool: Pool,
    progress: Progress,
) -> Judged:
    """The findings of each target with hot functions: first those of files that are known as a whole, then
    those of known functions; only the rest is judged."""
    settings = json.dumps([catalog.stamp, *astuple(target_of(config))])
    hot = [rel for rel in targets if rel in briefs.hot and survey.scouted[rel].error is None]
    keys: dict[str, str] = {}
    findings: dict[str, list[Finding]] = {}
    if cache is not None:
        keys = {
            rel: sha(f"{survey.scouted[rel].digest}:{briefs.key(rel)}:{settings}".encode())
            for rel in hot
        }
        rows = cache.get_many("judged", keys.values())
        findings = {
            rel: unpack_findings(rows[key], rel) for rel, key in keys.items() if key in rows
        }
    missing = [rel for rel in hot if rel not in findings]
    if not missing:
        return Judged(findings)
    missing.sort(key=lambda rel: -survey.files[rel].size)
    jobs = _Jobs(config, survey, missing, briefs, catalog, cache, settings)
    fresh: dict[str, str] = {}

    def finish(rel: str) -> None:
        pieces = jobs.pieces[rel]
        rows_of_file = [_row_of(rel, piece, results, jobs.known) for piece in pieces]
        fresh.update(
            (p.key, row) for p, (_, row) in zip(pieces, rows_of_file, strict=True) if p.key
        )
        found = [f for line, row in rows_of_file for f in unpack_judged(row, rel, line)]
        findings[rel] = _placed(survey, rel, found)

    results = _Results()
    _judge(jobs, results, pool, progress, len(missing), finish)
    for rel in [rel for rel in jobs.pieces if rel not in findings]:
        finish(rel)  # what the cache knows of its functions is all there is of it
    if cache is not None and not results.problems and not results.died:
        cache.put_many("chunks", fresh)
        cache.put_many("judged", {keys[rel]: pack_findings(findings[rel]) for rel in missing})
        cache.trim("judged", _STATES * len(survey.files))
        cache.trim("chunks", 40 * len(survey.files) + _STATES * sum(briefs.hot.values()))
    return Judged(findings, sorted(results.problems))


_NOTHING = pack_judged((), 1, {})


def _row_of(
    rel: str, piece: _Piece, results: _Results, known: Mapping[str, str]
) -> tuple[int, str]:
    """The line of a function and its findings as JSON, as just judged or as the cache knows them."""
    judged = results.rows.get((rel, piece.outline))
    return (piece.line, known.get(piece.key, _NOTHING)) if judged is None else judged


class _Jobs(Iterator[_Job]):
    """Makes the jobs for some files one by one, while others are done already; keeps what it made, because a
    worker may die of one."""

    def __init__(
        self,
        config: Config,
        survey: Survey,
        files: Sequence[str],
        briefs: Briefs,
        catalog: Catalog,
        cache: Store | None,
        settings: str,
    ) -> None:
        self._survey, self._briefs, self._catalog = survey, briefs, catalog
        self._cache, self._settings = cache, settings
        self._target = target_of(config)
        self._facts = facts_of(config, survey, files, cache)
        self._left = iter(files)
        self.all_new = cache is None
        """Whether no earlier run is asked what it found."""
        self.made: list[_Job] = []
        self.pieces: dict[str, list[_Piece]] = {}
        """The functions worth judging, of each file that was looked at."""
        self.known: dict[str, str] = {}
        """What the cache knows of them, by key."""

    def __next__(self) -> _Job:
        for rel in self._left:
            unknown = self._unknown(rel)
            if unknown:
                survey = self._survey
                job = _Job(
                    rel,
                    survey.files[rel].name,
                    survey.scouted[rel].digest,
                    survey.texts.get(rel),
                    self._briefs.text(rel),
                    unknown,
                    self._target,
                    self._catalog.packs,
                )
                self.made.append(job)
                return job
        raise StopIteration

    def _unknown(self, rel: str) -> list[Outline]:
        """The functions of a file that have to be judged."""
        brief = self._briefs.brief(rel)
        outlines = worth_judging(self._facts[rel], *hot_in_brief(brief), self._catalog.tokens)
        if self._cache is None:
            self.pieces[rel] = [_Piece(outline, 1, "") for outline in outlines]
            return outlines
        pieces = self.pieces[rel] = _pieces(self._survey, rel, outlines, brief, self._settings)
        rows = self._cache.get_many("chunks", (p.key for p in pieces if p.key))
        self.known.update((k, row) for k, row in rows.items() if same_answers(brief, asked_in(row)))
        return [p.outline for p in pieces if p.key not in self.known]


def _pieces(
    survey: Survey, rel: str, outlines: Sequence[Outline], brief: Brief, settings: str
) -> list[_Piece]:
    if not outlines:
        return []
    digest, text = text_at(survey.files[rel].name, rel, survey.texts.get(rel))
    if isinstance(text, Unreadable) or digest != survey.scouted[rel].digest:
        # Nothing is known of these: judging them reports that the file has changed.
        return [_Piece(o, 1, "") for o in outlines]
    lines, parts = Lines(text), Parts(brief)
    out = []
    for outline in outlines:
        source, first, _ = lines.chunk(outline)
        part = pack_brief(parts.of(outline.name, source))
        # Findings quote whole lines, with the comment behind the last.
        whole = source + lines.rest(outline)
        # By what it holds, a function may be passed over: see `Bench.wants`.
        held = ",".join(outline.tokens)
        words = f"{settings}:{part}:{outline.name}:{held}:{whole}"
        key = sha(words.encode("utf-8", "surrogatepass"))
        out.append(_Piece(outline, first, key))
    return out


def _judge(
    jobs: _Jobs,
    results: _Results,
    pool: Pool,
    progress: Progress,
    files: int,
    finish: Callable[[str], None],
) -> None:
    """Do all jobs, and `finish` each file while others are still being judged. If a worker dies, do those
    without a result again, each in a process of its own."""
    # Where nothing is known of many files, there are surely enough jobs: the first can be done at once.
    worth = 1 if jobs.all_new and files >= 4 * WORTH_A_PROCESS else WORTH_A_PROCESS
    found = pool.map(_judge_one, jobs, worth=worth, most=files, ready=True)
    try:
        for done, one in enumerate(found, 1):
            progress("judging", done, files)
            results.add(one)
            finish(one.rel)
    except WorkerDiedError:
        from pytest_dispatchguard.lint.processes.isolated import one_by_one

        results.died = True
        pool.close(kill=True)
        judged = {rel for rel, _ in results.rows}
        left = [job for job in (*jobs.made, *jobs) if job.rel not in judged]
        for one in one_by_one(_judge_one, left, _functions_of, _died, threads=pool.threads):
            results.add(one)


def _judge_one(job: _Job) -> _Found:
    from pytest_dispatchguard.lint.judge import judge

    digest, text = text_at(job.path, job.rel, job.text)
    if isinstance(text, Unreadable) or digest != job.digest:
        return _Found(job.rel, [], [_changed(job.rel)])
    brief = unpack_brief(job.brief)
    lines = Lines(text)
    benched = judge.bench(job.target, job.packs)
    judged = judge.judge_chunks(lines, job.outlines, brief, benched, job.target)
    rows = []
    problems: list[str] = []
    for outline, piece in zip(job.outlines, judged, strict=True):
        _, first, _ = lines.chunk(outline)
        rows.append((outline, first, pack_judged(piece.findings, first, piece.asked)))
        problems.extend(piece.problems)
    return _Found(job.rel, rows, problems)


def _functions_of(job: _Job) -> list[_Job]:
    """A job for each function of one."""
    return [job._replace(outlines=[one]) for one in job.outlines]


def _died(job: _Job) -> _Found:
    """What is reported of a function that ends the process that judges it."""
    from pytest_dispatchguard.lint.judge import judge

    _, text = text_at(job.path, job.rel, job.text)
    if isinstance(text, Unreadable):
        return _Found(job.rel, [], [_changed(job.rel)])
    lines = Lines(text)
    (outline,) = job.outlines
    finding = judge.unjudged(
        lines,
        outline,
        unpack_brief(job.brief),
        "crashes the process that checks it (out of memory?)",
    )
    _, first, _ = lines.chunk(outline)
    return _Found(job.rel, [(outline, first, pack_judged([finding], first, {}))], [])


def _changed(rel: str) -> str:
    return f"{rel}: changed while it was being checked; run again"


def _placed(survey: Survey, rel: str, findings: list[Finding]) -> list[Finding]:
    """The findings of a file, with edits for its imports and definitions moved to where it has these."""
    if not any(e.span.line == 0 for f in findings if f.fix for e in f.fix.edits):
        return findings
    from pytest_dispatchguard.lint.syntax.placed_edits import placed

    return placed(findings, text_of(survey, rel) or "")
