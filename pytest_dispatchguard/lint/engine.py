"""One lint run from paths to findings: scout, heat, judge, suppressions, with all that is known cached."""

from __future__ import annotations

import functools
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from pytest_dispatchguard import project_folder
from pytest_dispatchguard.config import PROFILE, UNPARSABLE, Config, ignored_in_file, selected
from pytest_dispatchguard.lint.incremental import solution_store as kept
from pytest_dispatchguard.lint.incremental.survey import (
    Progress,
    Survey,
    Texts,
    facts_of,
    packaged,
    scout_files,
    sha,
    text_at,
    text_of,
)
from pytest_dispatchguard.lint.judge.brief_parts import Parts, still_so
from pytest_dispatchguard.lint.judge.catalog import Catalog
from pytest_dispatchguard.lint.judge.target import Target
from pytest_dispatchguard.lint.sources.files import Discovery, Unreadable
from pytest_dispatchguard.lint.store.cache import Cache, Store
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
from pytest_dispatchguard.lint.syntax.chunks import Lines, Outline, module_imports, worth_judging
from pytest_dispatchguard.lint.workers import Pool, WorkerDiedError
from pytest_dispatchguard.model import Edit, Finding, RuleInfo, Span
from pytest_dispatchguard.startup import compiled_dataclasses

if TYPE_CHECKING:
    from pytest_dispatchguard.lint.callgraph.project import Project
    from pytest_dispatchguard.lint.facts import Brief
    from pytest_dispatchguard.lint.hotness.solve import Heat
    from pytest_dispatchguard.lint.incremental.last_solution import Known

# Scout, heat and judge are imported where they run: a run over a project that has not changed needs none
# of them, and would spend most of its time importing them.

_JUDGE_WORTH = 12


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run found in the files asked for, what is only maybe so among it, before baseline and diff
    have their say."""

    findings: tuple[Finding, ...]
    suppressed: tuple[Finding, ...]
    problems: tuple[str, ...]
    files: int
    functions: int
    hot_functions: int
    notes: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    """Settings that match nothing, and functions that are not as they were recorded, a line each: true where
    the whole project was read."""
    unread: frozenset[str] = frozenset()
    """Files that could not be read, or in which a function could not."""


def target_of(config: Config) -> Target:
    """What rules may ask of the linted project."""
    return Target(
        tensor_types=config.tensor_types,
        tree_modules=config.tree_modules,
        python=config.requires_python or "",
        torch=config.torch_requirement or "",
    )


def run(
    config: Config,
    discovery: Discovery,
    rules: Callable[[], Catalog],
    cache: Cache | None,
    pool: Pool,
    *,
    texts: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    passing: bool = False,
) -> Outcome:
    """Checks the targets of a discovery, with hotness from its whole project. The `rules` may take long to
    give their catalog: they are asked while files are read. Of a `passing` state of the project the cache
    does not keep what is hot: it keeps that of one state."""
    tell = progress or (lambda what, done, total: None)
    prepare = partial(_prepare, config, rules, pool)
    survey = scout_files(config, discovery, cache, pool, texts or {}, tell, meanwhile=prepare)
    catalog = rules()
    targets = [f.rel for f in discovery.targets if f.rel in survey.scouted]
    briefs = briefs_of(config, survey, catalog, cache, tell, passing=passing)
    judged, problems = judge_files(config, survey, targets, briefs, catalog, cache, pool, tell)
    read = Texts(discovery, survey.texts)
    return settle(config, survey, targets, judged, problems, catalog.infos, briefs, read)


def _prepare(config: Config, rules: Callable[[], Catalog], pool: Pool, files: int) -> None:
    """Makes ready what follows the reading of so many files; where that is much, all of it will follow."""
    if files and not pool.works and "pytest_dispatchguard.lint.judge.judge" not in sys.modules:
        pool.get_ready(partial(_get_ready_to_judge, config, rules))
    rules()
    if pool.works:
        from pytest_dispatchguard.lint.hotness import solve as heat  # noqa: F401 - only to have them


def _get_ready_to_judge(config: Config, rules: Callable[[], Catalog]) -> None:
    from pytest_dispatchguard.lint.judge import judge

    judge.bench(target_of(config), rules().packs)
    compiled_dataclasses.keep()


# -- heat ------------------------------------------------------------------------------------------


class Briefs:
    """The briefs of all files that have hot functions, as text, and how many functions are hot."""

    def __init__(
        self,
        hot: Mapping[str, int],
        idle: Sequence[str],
        make: Callable[[str], str],
        keys: Mapping[str, str] | None = None,
        unpacked: Callable[[str], Brief] | None = None,
    ) -> None:
        self.hot = hot
        """The number of hot functions by file; files without are not there."""
        self.idle = idle
        """Settings that match nothing, and what of the profile does not, a line each."""
        self._make = make
        self._keys = dict(keys or {})
        self._unpacked = unpacked
        """Gives briefs as they were made; None where only their texts are known."""

    def text(self, rel: str) -> str:
        """The brief of one file."""
        return self._make(rel)

    def brief(self, rel: str) -> Brief:
        """The same, to be read and not to be changed."""
        return unpack_brief(self.text(rel)) if self._unpacked is None else self._unpacked(rel)

    def key(self, rel: str) -> str:
        """A hash of it."""
        if rel not in self._keys:
            self._keys[rel] = sha(self.text(rel).encode())
        return self._keys[rel]


def solve(
    config: Config,
    survey: Survey,
    catalog: Catalog,
    cache: Cache | None,
    step: Callable[[], object] | None = None,
) -> tuple[Project, Heat]:
    """The project's call graph and what is hot in it; for `step` see `heat.solve`."""
    from pytest_dispatchguard.lint.callgraph.build import build
    from pytest_dispatchguard.lint.hotness import solve as heat

    facts = facts_of(config, survey, sorted(survey.scouted), cache)
    project = build(facts, config.import_roots, packaged(config, survey))
    known = None
    if (config.root / PROFILE).exists():
        from pytest_dispatchguard.lint.hotness.profile import observed
        from pytest_dispatchguard.profile import load

        recorded = load(config.root / PROFILE)
        if recorded is not None:
            known = observed(recorded, facts, project.module_of, partial(text_of, survey))
    solved = heat.solve(
        project,
        hot_roots=config.hot_roots,
        cold=config.cold,
        library_roots=catalog.hot_roots,
        observed=known,
        step=step,
    )
    return project, solved


def briefs_of(
    config: Config,
    survey: Survey,
    catalog: Catalog,
    cache: Cache | None,
    tell: Progress,
    *,
    passing: bool = False,
) -> Briefs:
    """Briefs that the cache knows, of this state or of one in which the same was hot, else from what is hot;
    without a cache each is made when it is asked for, while others are judged. Of a `passing` state nothing
    is kept."""
    if cache is None:
        return _told(tell, lambda: new_briefs(config, survey, catalog, cache))

    def solve_lost() -> Briefs:
        return new_briefs(config, survey, catalog, cache)

    key = project_key(config, survey, catalog)
    index = kept.index_of(cache, key)
    if index is not None:
        return _kept_briefs(cache, index, {}, solve_lost)
    # Imported here: a run over what has not changed needs none of it.
    from pytest_dispatchguard.lint.incremental import last_solution as solved
    from pytest_dispatchguard.lint.incremental.next_solution import next_state

    settings = kept.settings_of(config, catalog, packaged(config, survey))
    before = solved.recall(cache)
    follows = before and next_state(key, settings, config, survey, catalog, cache, before)
    if follows:
        if not passing:
            _keep(cache, follows.known, follows.briefs)
        return _kept_briefs(cache, follows.known.hot, follows.briefs, solve_lost)
    if passing:
        return new_briefs(config, survey, catalog, cache)
    states: list[tuple[solved.State, solved.Rows]] = []

    def solve_it() -> Briefs:
        return new_briefs(
            config,
            survey,
            catalog,
            cache,
            solved_to=lambda project, heat: states.append(
                solved.state_of(key, settings, survey, project, heat)
            ),
        )

    made = _told(tell, solve_it)
    texts = {rel: made.text(rel) for rel in made.hot}
    index = kept.Index(_digests(texts), made.hot, made.idle)
    if (config.root / PROFILE).exists():
        kept.keep(cache, key, index, texts)
    else:
        words = solved.words_after(config, survey, before, cache)
        state, rows = states[0]
        _keep(cache, solved.Known(state, words, index, rows), texts)
    return Briefs(made.hot, made.idle, texts.__getitem__, index.keys)


def _keep(cache: Cache, known: Known, new: Mapping[str, str]) -> None:
    """Keeps a state, with those of its briefs that are new."""
    from pytest_dispatchguard.lint.incremental import last_solution as solved

    kept.keep(cache, known.state.key, known.hot, new)
    solved.keep(cache, known)


def _told(tell: Progress, make: Callable[[], Briefs]) -> Briefs:
    tell("finding what is hot", 0, 1)
    made = make()
    tell("finding what is hot", 1, 1)
    return made


def _kept_briefs(
    cache: Cache, index: kept.Index, others: Mapping[str, str], solve_lost: Callable[[], Briefs]
) -> Briefs:
    """Briefs that the cache has, but for some that are at hand. If it has lost one, all is solved anew."""
    anew = functools.cache(solve_lost)

    def text(rel: str) -> str:
        if rel in others:
            return others[rel]
        brief = kept.brief_of(cache, index.keys[rel])
        if brief is None:
            brief = anew().text(rel)
            kept.mend(cache, index.keys[rel], brief)
        return brief

    return Briefs(index.hot, index.idle, text, index.keys)


def _digests(texts: Mapping[str, str]) -> dict[str, str]:
    return {rel: sha(text.encode()) for rel, text in texts.items()}


def new_briefs(
    config: Config,
    survey: Survey,
    catalog: Catalog,
    cache: Cache | None,
    step: Callable[[], object] | None = None,
    solved_to: Callable[[Project, Heat], object] | None = None,
) -> Briefs:
    """Briefs from what is hot, each made when it is asked for; for `step` see `heat.solve`. Whoever wants to
    know what they are made from is `solved_to`."""
    from pytest_dispatchguard.lint.judge.briefs import Briefer
    from pytest_dispatchguard.lint.results.unused_settings import idle_names

    project, solved = solve(config, survey, catalog, cache, step)
    if solved_to is not None:
        solved_to(project, solved)
    briefer = Briefer(project, solved)
    brief = lru_cache(maxsize=1)(briefer.brief)  # asked for twice in a row: to be read, and as text
    return Briefs(
        {rel: len(functions) for rel, functions in briefer.hot.items()},
        [*idle_names(config, project), *filter(None, [solved.observed.note])],
        lambda rel: pack_brief(brief(rel)),
        unpacked=brief,
    )


def project_key(config: Config, survey: Survey, catalog: Catalog) -> str:
    """Changes with all that briefs are made from."""
    words = [kept.settings_of(config, catalog, packaged(config, survey))]
    words.extend(f"{rel}={survey.scouted[rel].shape}" for rel in sorted(survey.scouted))
    profile = None
    with suppress(OSError):
        profile = project_folder.read(config.root / PROFILE)
    if profile is not None:
        # A profile knows functions by their text, so with one every change counts.
        words.append(sha(profile))
        words.extend(survey.scouted[rel].digest for rel in sorted(survey.scouted))
    return sha("\n".join(words).encode("utf-8", "surrogatepass"))


# -- judge -----------------------------------------------------------------------------------------


def judge_files(
    config: Config,
    survey: Survey,
    targets: Sequence[str],
    briefs: Briefs,
    catalog: Catalog,
    cache: Store | None,
    pool: Pool,
    tell: Progress,
) -> tuple[dict[str, list[Finding]], list[str]]:
    """Findings by file: those of whole files that are known, then those of functions that are known, and
    only the rest is judged."""
    target = target_of(config)
    words = json.dumps([catalog.stamp, *astuple(target)])
    out: dict[str, list[Finding]] = {}
    keys: dict[str, str] = {}
    missing = [r for r in targets if r in briefs.hot and survey.scouted[r].error is None]
    if cache is not None:
        keys = {
            rel: sha(f"{survey.scouted[rel].digest}:{briefs.key(rel)}:{words}".encode())
            for rel in missing
        }
        rows = cache.get_many("judged", keys.values())
        out = {rel: unpack_findings(rows[key], rel) for rel, key in keys.items() if key in rows}
        missing = [rel for rel in missing if rel not in out]
    if not missing:
        return out, []
    facts = facts_of(config, survey, missing, cache)
    missing.sort(key=lambda rel: -survey.files[rel].size)
    pieces: dict[str, list[Piece]] = {}
    known: dict[str, str] = {}

    def jobs() -> Iterator[_Job]:
        for rel in missing:
            brief = briefs.brief(rel)
            outlines = worth_judging(facts[rel], *hot_in_brief(brief), catalog.tokens)
            if cache is None:
                pieces[rel] = [Piece(outline, 1, "") for outline in outlines]
            else:
                pieces[rel] = _pieces(survey, rel, outlines, brief, words)
                rows = cache.get_many("chunks", (p.key for p in pieces[rel] if p.key))
                known.update((k, row) for k, row in rows.items() if still_so(brief, asked_in(row)))
            unknown = [p.outline for p in pieces[rel] if p.key not in known]
            if unknown:
                path, digest = survey.files[rel].name, survey.scouted[rel].digest
                given = survey.texts.get(rel)
                yield rel, path, digest, given, briefs.text(rel), unknown, target, catalog.packs

    judged: dict[tuple[str, Outline], tuple[int, str]] = {}
    problems: list[str] = []
    deaths = False
    made = _Kept(jobs())
    results = pool.map(_judge_one, made, worth=_JUDGE_WORTH, most=len(missing), ready=True)
    try:
        for done, (rel, found, trouble) in enumerate(results, 1):
            tell("judging", done, len(missing))
            judged.update(((rel, outline), (line, row)) for outline, line, row in found)
            problems.extend(trouble)
    except WorkerDiedError:
        from pytest_dispatchguard.lint.isolated import one_by_one

        deaths = True
        pool.close(kill=True)
        known_by_now = {rel for rel, _ in judged}
        left = [job for job in (*made.items, *made) if job[0] not in known_by_now]
        for rel, found, trouble in one_by_one(
            _judge_one, left, _functions_of, _died, threads=pool.threads
        ):
            judged.update(((rel, outline), (line, row)) for outline, line, row in found)
            problems.extend(trouble)
    problems.sort()
    fresh: dict[str, str] = {}
    nothing = pack_judged((), 1, {})
    for rel, ps in pieces.items():
        out[rel] = []
        for piece in ps:
            recalled = (piece.line, known.get(piece.key, nothing))
            line, row = judged.get((rel, piece.outline), recalled)
            if piece.key:
                fresh[piece.key] = row
            out[rel].extend(unpack_judged(row, rel, line))
        out[rel] = _with_imports(survey, rel, out[rel])
    if cache is not None and not problems and not deaths:
        cache.put_many("chunks", fresh)
        cache.put_many("judged", {keys[rel]: pack_findings(out[rel]) for rel in missing})
        cache.trim("judged", len(survey.files))
        cache.trim("chunks", len(survey.files), each=40)
    return out, problems


class Piece(NamedTuple):
    """A function to judge: where it is now, and the key of what judging it reads; empty where that is not
    known."""

    outline: Outline
    line: int
    key: str


def _pieces(
    survey: Survey, rel: str, outlines: Sequence[Outline], brief: Brief, words: str
) -> list[Piece]:
    if not outlines:
        return []
    digest, text = text_at(survey.files[rel].name, rel, survey.texts.get(rel))
    if isinstance(text, Unreadable) or digest != survey.scouted[rel].digest:
        # Nothing is known of such pieces: judging them tells that the file has changed.
        return [Piece(o, 1, "") for o in outlines]
    lines, parts = Lines(text), Parts(brief)
    out = []
    for outline in outlines:
        source, first, _ = lines.chunk(outline)
        part = pack_brief(parts.of(outline.name, source))
        # Findings quote whole lines, with the comment behind the last.
        whole = source + lines.rest(outline)
        key = sha(f"{words}:{part}:{outline.name}:{whole}".encode("utf-8", "surrogatepass"))
        out.append(Piece(outline, first, key))
    return out


_Job = tuple[str, str, str, "str | None", str, "list[Outline]", Target, tuple[str, ...]]


def _judge_one(job: _Job) -> tuple[str, list[tuple[Outline, int, str]], list[str]]:
    from pytest_dispatchguard.lint.judge import judge  # brings libcst: paid for only when needed

    rel, path, digest, given, brief_text, outlines, target, packs = job
    found_digest, text = text_at(path, rel, given)
    if isinstance(text, Unreadable) or found_digest != digest:
        return rel, [], [_changed(rel)]
    brief = unpack_brief(brief_text)
    lines = Lines(text)
    benched = judge.bench(target, packs)
    judged = judge.judge_chunks(lines, outlines, brief, benched, target)
    found = []
    problems: list[str] = []
    for outline, piece in zip(outlines, judged, strict=True):
        _, first, _ = lines.chunk(outline)
        found.append((outline, first, pack_judged(piece.findings, first, piece.asked)))
        problems.extend(piece.problems)
    return rel, found, problems


class _Kept(Iterator[_Job]):
    """Jobs that are kept as they are made: a worker may die of one of them."""

    def __init__(self, jobs: Iterator[_Job]) -> None:
        self._jobs = jobs
        self.items: list[_Job] = []

    def __next__(self) -> _Job:
        job = next(self._jobs)
        self.items.append(job)
        return job


def _functions_of(job: _Job) -> list[_Job]:
    """A job for each function of one."""
    rel, path, digest, given, brief, outlines, target, packs = job
    return [(rel, path, digest, given, brief, [one], target, packs) for one in outlines]


def _died(job: _Job) -> tuple[str, list[tuple[Outline, int, str]], list[str]]:
    """What is told of a function that a process died of."""
    from pytest_dispatchguard.lint.judge import judge

    rel, path, _, given, brief_text, (outline,), _, _ = job
    _, text = text_at(path, rel, given)
    if isinstance(text, Unreadable):
        return rel, [], [_changed(rel)]
    lines = Lines(text)
    told = judge.unjudged(
        lines, outline, unpack_brief(brief_text), "ends the process that checks it (out of memory?)"
    )
    _, first, _ = lines.chunk(outline)
    return rel, [(outline, first, pack_judged([told], first, {}))], []


def _changed(rel: str) -> str:
    return f"{rel}: changed while it was being checked; run again"


def _with_imports(survey: Survey, rel: str, findings: list[Finding]) -> list[Finding]:
    """The findings with edits that add imports put where the file has its imports, and left out where it
    has those. A fix whose import would take a name that the file uses for something else is not offered."""
    if not any(e.span.line == 0 for f in findings if f.fix for e in f.fix.edits):
        return findings
    from pytest_dispatchguard.lint.syntax.import_position import import_place

    text = text_of(survey, rel) or ""
    bound = module_imports(text)
    out = []
    for finding in findings:
        if finding.fix is not None:
            edits: list[Edit] = []
            taken = False
            for edit in finding.fix.edits:
                if edit.span.line != 0:
                    edits.append(edit)
                    continue
                ((local, target),) = module_imports(edit.replacement).items()
                if local not in bound:
                    line, new = import_place(text, edit.replacement.rstrip("\n"))
                    edits.append(Edit(edit.path, Span(line, 1, line, 1), new))
                taken = taken or bound.get(local, target) != target
            fix = None if taken else replace(finding.fix, edits=tuple(edits))
            finding = replace(finding, fix=fix)
        out.append(finding)
    return out


# -- settle ----------------------------------------------------------------------------------------


def settle(
    config: Config,
    survey: Survey,
    targets: Sequence[str],
    judged: Mapping[str, list[Finding]],
    problems: Sequence[str],
    infos: Sequence[RuleInfo],
    briefs: Briefs,
    read: Callable[[str], str | None],
) -> Outcome:
    """Suppressions, per-file ignores and selection have their say."""
    known = {i.code: i.default for i in infos}
    ran = {i.code for i in infos if selected(config, i.code, i.default) and not i.running}
    kept: list[Finding] = []
    suppressed: list[Finding] = []
    unread: set[str] = set()
    by_file: dict[str, list[Finding]] = defaultdict(list, {r: list(f) for r, f in judged.items()})
    for rel in targets:
        scouted = survey.scouted[rel]
        found = by_file.get(rel, [])
        unused: tuple[Finding, ...] = ()
        if scouted.error is not None:
            found = [_unparsable(rel, scouted.error)]
        if any(f.code == UNPARSABLE for f in found):
            unread.add(rel)
        if scouted.error is None and scouted.directives:
            text = read(rel)
            if text is not None:
                from pytest_dispatchguard.lint.results import suppressions

                here = {c for c in ran if not ignored_in_file(config, rel, c)}
                applied = suppressions.read(text).apply(
                    [f for f in found if f.code in here], path=rel, ran=here, known=known
                )
                found, unused = list(applied.kept), applied.unused
                suppressed.extend(applied.suppressed)
        kept.extend(
            f
            for f in (*found, *unused)
            if f.code in ran and not ignored_in_file(config, rel, f.code)
        )
    kept = _distinct(_in_cells(kept, read))
    return Outcome(
        findings=tuple(kept),
        suppressed=tuple(suppressed),
        problems=tuple(problems),
        files=len(targets),
        functions=sum(survey.scouted[r].functions for r in targets),
        hot_functions=sum(briefs.hot.get(r, 0) for r in targets),
        notes=tuple(survey.notes),
        idle=tuple(briefs.idle),
        unread=frozenset(unread),
    )


def _in_cells(findings: Iterable[Finding], read: Callable[[str], str | None]) -> Iterator[Finding]:
    """The findings, those in notebooks with the cells they are in and without fixes, which would be edits of
    Python in a file of JSON."""
    for finding in findings:
        if not finding.path.endswith(".ipynb"):
            yield finding
            continue
        from pytest_dispatchguard.lint.sources.notebooks import cell_of

        cell = cell_of(read(finding.path) or "", finding.span.line)
        yield replace(finding, fix=None, cell=cell)


def _distinct(findings: Iterable[Finding]) -> list[Finding]:
    """Sorted, each said once: loops are read once, but a place can be reached by two looks of one rule."""
    seen: set[tuple[str, int, int, str, str]] = set()
    out = []
    for finding in sorted(findings, key=lambda f: f.sort_key):
        if finding.sort_key not in seen:
            seen.add(finding.sort_key)
            out.append(finding)
    return out


def refused(config: Config, infos: Sequence[RuleInfo], what: Unreadable) -> Outcome:
    """The outcome for standard input that cannot be read."""
    finding = _unparsable(what.rel, (what.line, what.column, what.message))
    heard = any(i.code == finding.code and selected(config, i.code, i.default) for i in infos)
    heard = heard and not ignored_in_file(config, what.rel, finding.code)
    return Outcome(
        findings=(finding,) if heard else (),
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
