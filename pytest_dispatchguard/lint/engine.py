"""One lint run from paths to findings: scout, heat, judge, suppressions, with all that is known cached."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_dispatchguard.config import UNPARSABLE, Config, ignored_in_file, is_project, selected
from pytest_dispatchguard.lint.cache import Cache
from pytest_dispatchguard.lint.catalog import Catalog
from pytest_dispatchguard.lint.chunks import (
    Lines,
    Outline,
    module_imports,
    worth_judging,
)
from pytest_dispatchguard.lint.facts import FileFacts
from pytest_dispatchguard.lint.files import (
    Discovery,
    File,
    Source,
    Unreadable,
    decode_source,
    read_source,
)
from pytest_dispatchguard.lint.packing import (
    pack_brief,
    pack_facts,
    pack_findings,
    shape,
    unpack_brief,
    unpack_facts,
    unpack_findings,
)
from pytest_dispatchguard.lint.pool import Pool
from pytest_dispatchguard.lint.target import Target
from pytest_dispatchguard.model import Edit, Finding, RuleInfo, Span

if TYPE_CHECKING:
    from pytest_dispatchguard.lint.heat import Heat
    from pytest_dispatchguard.lint.project import Project

# Scout, heat and judge are imported where they run: a run over a project that has not changed needs none
# of them, and would spend most of its time importing them.

Progress = Callable[[str, int, int], None]
"""Told what is being done, how many are done, of how many."""

# Comments that may be meant for us; most `noqa` name codes of other tools, with one letter or four digits.
_DIRECTIVE = re.compile(r"dispatchguard:|noqa[^\n]*\b[A-Za-z]{2,}\d{3}\b", re.IGNORECASE)
_MISSPELT = re.compile(r"#[ \t]*[dD][a-zA-Z_-]{10,14}[ \t]*:")
_SCAN_WORTH, _JUDGE_WORTH = 24, 12

_KEPT, _KEPT_LEAST = 4, 1000
"""Rows that the cache keeps for each file of the project, and those it keeps at least."""
_KEPT_CHUNKS = 40


@dataclass(frozen=True, slots=True)
class Scouted:
    """One file after scouting."""

    rel: str
    digest: str
    """Of its bytes."""
    shape: str
    """Of its facts, positions left out: what hotness depends on."""
    directives: bool
    """Whether its text may hold comments meant for us."""
    error: tuple[int, int, str] | None
    functions: int


@dataclass(slots=True)
class Survey:
    """Files of a run and what the scout knows of them."""

    files: dict[str, File]
    scouted: dict[str, Scouted]
    texts: dict[str, str]
    """Texts in place of those on disk: what fixes made of them, or standard input."""
    packed: dict[str, str] = field(default_factory=dict)
    """Facts as text, of files scanned or loaded in this run."""
    notes: list[str] = field(default_factory=list)


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
    """Settings that match nothing, a line each: true where the whole project was read."""
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
    catalog: Catalog,
    cache: Cache | None,
    pool: Pool,
    *,
    texts: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Checks the targets of a discovery, with hotness from its whole project."""
    tell = progress or (lambda what, done, total: None)
    survey = scout_files(config, discovery, cache, pool, texts or {}, tell)
    targets = [f.rel for f in discovery.targets if f.rel in survey.scouted]
    briefs = _briefs(config, survey, catalog, cache, tell)
    judged, problems = _judge(config, survey, targets, briefs, catalog, cache, pool, tell)
    read = Texts(discovery, survey.texts)
    return _settle(config, survey, targets, judged, problems, catalog.infos, briefs, read)


# -- scout -----------------------------------------------------------------------------------------


def scout_files(
    config: Config,
    discovery: Discovery,
    cache: Cache | None,
    pool: Pool,
    texts: Mapping[str, str],
    tell: Progress,
) -> Survey:
    """Facts of every file of the project: from the cache where its content is known."""
    files = {f.rel: f for f in discovery.project}
    survey = Survey(files, {}, dict(texts), notes=list(discovery.notes))
    fresh: dict[str, str] = {}
    if cache is not None:
        digests = cache.hashes(f for f in files.values() if f.rel not in texts)
        for rel, file in files.items():
            if rel in texts:
                digests[rel] = _sha(texts[rel].encode("utf-8", "surrogatepass"))
            elif rel not in digests:
                with suppress(OSError):  # scanning will tell why
                    fresh[rel] = digests[rel] = _sha(file.path.read_bytes())
        known = cache.get_many("scouted", (_scout_key(config, r, d) for r, d in digests.items()))
        for rel, digest in digests.items():
            row = known.get(_scout_key(config, rel, digest))
            if row is not None:
                survey.scouted[rel] = _scouted(rel, digest, row)
    missing = [rel for rel in files if rel not in survey.scouted]
    missing.sort(key=lambda rel: -files[rel].size)
    jobs = [_job(config, survey, rel) for rel in missing]
    rows: dict[str, str] = {}
    packed: dict[str, str] = {}
    for done, (rel, digest, row, facts) in enumerate(pool.map(_scan, jobs, worth=_SCAN_WORTH), 1):
        tell("reading", done, len(jobs))
        survey.scouted[rel] = _scouted(rel, digest, row)
        survey.packed[rel] = facts
        if digest:
            key = _scout_key(config, rel, digest)
            rows[key], packed[key] = row, facts
    if cache is not None and jobs:
        cache.put_hashes((files[r] for r in fresh), fresh)
        if is_project(config) and not texts:  # else the files of this run are not all there are
            cache.prune_hashes(files)
        cache.put_many("facts", packed)
        cache.put_many("scouted", rows)
        for namespace in ("scouted", "facts"):
            cache.trim(namespace, _KEPT * len(files) + _KEPT_LEAST)
    return survey


_File = tuple[str, str, tuple[str, ...], bool, str | None]
"""A file to scan: its name, path, the source roots, whether no function is spared, its text if given."""


def _scan(job: _File) -> tuple[str, str, str, str]:
    from pytest_dispatchguard.lint import scout
    from pytest_dispatchguard.lint.libraries import cold_by_name
    from pytest_dispatchguard.lint.module_names import module_name

    rel, path, roots, thorough, given = job
    digest, read = _read(path, rel, given)
    if isinstance(read, Unreadable):
        text, facts = "", FileFacts(error=(read.line, read.column, read.message))
    else:
        text = read
        cold = None if thorough else cold_by_name(rel, text)
        facts = scout.scan(text, module_name(rel, roots), rel.endswith("__init__.py"), cold)
    spoken_to = "dispatchguard:" in text or "noqa" in text or "NOQA" in text  # quick, and mostly no
    directives = spoken_to and _DIRECTIVE.search(text) is not None
    directives = directives or _MISSPELT.search(text) is not None
    row = json.dumps([shape(facts), directives, facts.error, len(facts.functions)])
    return rel, digest, row, pack_facts(facts)


def _read(path: str, rel: str, given: str | None) -> tuple[str, str | Unreadable]:
    """The digest of a file's bytes, empty where there are none to be had, and its text."""
    if given is not None:
        return _sha(given.encode("utf-8", "surrogatepass")), given
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        return "", Unreadable(rel, 1, 1, f"cannot be read: {error.strerror or error}")
    source = decode_source(data, rel)
    return _sha(data), source if isinstance(source, Unreadable) else source.text


def _scout_key(config: Config, rel: str, digest: str) -> str:
    """What facts depend on: the source roots are in the names that relative imports resolve to."""
    return f"{digest}:{','.join(config.src)}:{_thorough(config):d}:{rel}"


def _thorough(config: Config) -> bool:
    """Whether functions that are cold by their names are read like all others: the user's word can make them
    hot."""
    return bool(config.hot_roots)


def _scouted(rel: str, digest: str, row: str) -> Scouted:
    shaped, directives, error, functions = json.loads(row)
    return Scouted(rel, digest, shaped, directives, tuple(error) if error else None, functions)


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _facts(
    config: Config, survey: Survey, rels: Iterable[str], cache: Cache | None
) -> dict[str, FileFacts]:
    """Facts of files: those of this run, the rest from the cache (or scanned again where it lost them)."""
    wanted = list(rels)
    absent = [r for r in wanted if r not in survey.packed]
    if absent:
        keys = {_scout_key(config, r, survey.scouted[r].digest): r for r in absent}
        rows = {} if cache is None else cache.get_many("facts", keys)
        for key, rel in keys.items():
            row = rows.get(key)
            survey.packed[rel] = row if row is not None else _scan(_job(config, survey, rel))[3]
    return {r: unpack_facts(survey.packed[r]) for r in wanted}


def _job(config: Config, survey: Survey, rel: str) -> _File:
    path = str(survey.files[rel].path)
    return rel, path, config.src, _thorough(config), survey.texts.get(rel)


# -- heat ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Briefs:
    """The briefs of all files that have hot functions, as text, and how many functions are hot."""

    texts: Callable[[Iterable[str]], dict[str, str]]
    keys: dict[str, str]
    """By file: a hash of its brief; files without hot functions are not there."""
    hot: dict[str, int]
    idle: list[str]
    """Settings that match nothing, a line each."""


def solve(
    config: Config, survey: Survey, catalog: Catalog, cache: Cache | None
) -> tuple[Project, Heat]:
    """The project's call graph and what is hot in it."""
    from pytest_dispatchguard.lint import heat
    from pytest_dispatchguard.lint.project import build

    facts = _facts(config, survey, sorted(survey.scouted), cache)
    project = build(facts, config.src)
    solved = heat.solve(
        project,
        hot_roots=config.hot_roots,
        cold=config.cold,
        library_roots=catalog.hot_roots,
    )
    return project, solved


def _briefs(
    config: Config, survey: Survey, catalog: Catalog, cache: Cache | None, tell: Progress
) -> Briefs:
    project_key = _project_key(config, survey, catalog)
    stored: dict[str, str] = {}

    def from_cache(rels: Iterable[str]) -> dict[str, str]:
        wanted = list(rels)
        out = {r: stored[r] for r in wanted if r in stored}
        rest = [r for r in wanted if r not in out]
        if rest and cache is not None:
            rows = cache.get_many("brief", [f"{project_key}:{r}" for r in rest])
            out.update({k.partition(":")[2]: v for k, v in rows.items()})
        return out

    index = {} if cache is None else cache.get_many("heat", [project_key])
    if project_key in index:
        keys, hot, idle = json.loads(index[project_key])
        return Briefs(from_cache, keys, hot, idle)
    tell("finding what is hot", 0, 1)
    from pytest_dispatchguard.lint import briefs as briefing
    from pytest_dispatchguard.lint.idle import idle_names

    project, solved = solve(config, survey, catalog, cache)
    made = briefing.briefs(project, solved, sorted(survey.scouted))
    stored = {rel: pack_brief(b) for rel, b in made.items()}
    keys = {rel: _sha(text.encode()) for rel, text in stored.items()}
    hot = {rel: len(b.hot) for rel, b in made.items()}
    idle = list(idle_names(config, project))
    if cache is not None:
        cache.prune("heat", ())
        cache.prune("brief", ())
        cache.put_many("brief", {f"{project_key}:{r}": t for r, t in stored.items()})
        cache.put_many("heat", {project_key: json.dumps([keys, hot, idle])})
    tell("finding what is hot", 1, 1)
    return Briefs(from_cache, keys, hot, idle)


def _project_key(config: Config, survey: Survey, catalog: Catalog) -> str:
    words = [json.dumps([config.hot_roots, config.cold, config.src, config.tensor_types])]
    words.append(json.dumps(sorted(catalog.hot_roots.items())))
    words.extend(f"{rel}={survey.scouted[rel].shape}" for rel in sorted(survey.scouted))
    return _sha("\n".join(words).encode("utf-8", "surrogatepass"))


# -- judge -----------------------------------------------------------------------------------------


def _judge(
    config: Config,
    survey: Survey,
    targets: Sequence[str],
    briefs: Briefs,
    catalog: Catalog,
    cache: Cache | None,
    pool: Pool,
    tell: Progress,
) -> tuple[dict[str, list[Finding]], list[str]]:
    """Findings by file: those of whole files that are known, then those of functions that are known, and
    only the rest is judged."""
    target = target_of(config)
    words = json.dumps([catalog.stamp, *astuple(target)])
    keys = {
        rel: _sha(f"{survey.scouted[rel].digest}:{briefs.keys[rel]}:{words}".encode())
        for rel in targets
        if rel in briefs.keys and survey.scouted[rel].error is None
    }
    rows = {} if cache is None else cache.get_many("judged", keys.values())
    out = {rel: unpack_findings(rows[key], rel) for rel, key in keys.items() if key in rows}
    missing = [rel for rel in keys if rel not in out]
    if not missing:
        return out, []
    facts = _facts(config, survey, missing, cache)
    texts = briefs.texts(missing)
    pieces: dict[str, list[Piece]] = {}
    for rel in missing:
        hot = json.loads(texts[rel])[1]
        outlines = worth_judging(facts[rel], hot, catalog.tokens)
        salt = f"{briefs.keys[rel]}:{words}"
        pieces[rel] = _pieces(survey, rel, outlines, salt if cache is not None else "")
    known: dict[str, str] = {}
    if cache is not None:
        known = cache.get_many("chunks", (p.key for ps in pieces.values() for p in ps))
    jobs = []
    for rel, ps in pieces.items():
        unknown = [p.outline for p in ps if p.key not in known or not p.key]
        if unknown:
            path = str(survey.files[rel].path)
            digest = survey.scouted[rel].digest
            jobs.append((rel, path, digest, survey.texts.get(rel), texts[rel], unknown, target))
    jobs.sort(key=lambda job: -sum(o.end_byte - o.start_byte for o in job[5]))
    judged: dict[tuple[str, Outline], tuple[int, str]] = {}
    problems: list[str] = []
    results = pool.map(_judge_one, jobs, worth=_JUDGE_WORTH)
    for done, (rel, found, trouble) in enumerate(results, 1):
        tell("judging", done, len(jobs))
        judged.update(((rel, outline), (line, row)) for outline, line, row in found)
        problems.extend(trouble)
    problems.sort()
    fresh: dict[str, str] = {}
    for rel, ps in pieces.items():
        out[rel] = []
        for piece in ps:
            line, row = judged.get((rel, piece.outline), (piece.line, known.get(piece.key, "[]")))
            if piece.key:
                fresh[piece.key] = row
            out[rel].extend(unpack_findings(row, rel, line))
        out[rel] = _with_imports(survey, rel, out[rel])
    if cache is not None and not problems:
        cache.put_many("chunks", fresh)
        cache.put_many("judged", {keys[rel]: pack_findings(out[rel]) for rel in missing})
        cache.trim("judged", _KEPT * len(survey.files) + _KEPT_LEAST)
        cache.trim("chunks", _KEPT_CHUNKS * len(survey.files) + _KEPT_LEAST)
    return out, problems


class Piece(NamedTuple):
    """A function to judge: where it is now, and the key of what it reads."""

    outline: Outline
    line: int
    key: str


def _pieces(survey: Survey, rel: str, outlines: Sequence[Outline], salt: str) -> list[Piece]:
    if not outlines:
        return []
    if not salt:
        return [Piece(o, 1, "") for o in outlines]
    digest, text = _read(str(survey.files[rel].path), rel, survey.texts.get(rel))
    if isinstance(text, Unreadable) or digest != survey.scouted[rel].digest:
        # Nothing is known of such pieces: judging them tells that the file has changed.
        return [Piece(o, 1, "") for o in outlines]
    lines = Lines(text)
    out = []
    for outline in outlines:
        source, first, _ = lines.chunk(outline)
        key = _sha(f"{salt}:{outline.name}:{source}".encode("utf-8", "surrogatepass"))
        out.append(Piece(outline, first, key))
    return out


_Job = tuple[str, str, str, "str | None", str, "list[Outline]", Target]


def _judge_one(job: _Job) -> tuple[str, list[tuple[Outline, int, str]], list[str]]:
    from pytest_dispatchguard.lint import judge  # brings libcst: paid for only when needed

    rel, path, digest, given, brief_text, outlines, target = job
    found_digest, text = _read(path, rel, given)
    if isinstance(text, Unreadable) or found_digest != digest:
        return rel, [], [_changed(rel)]
    brief = unpack_brief(brief_text)
    lines = Lines(text)
    judged = judge.judge_chunks(text, outlines, brief, judge.bench(target), target)
    found = []
    problems: list[str] = []
    for outline, piece in zip(outlines, judged, strict=True):
        _, first, _ = lines.chunk(outline)
        found.append((outline, first, pack_findings(piece.findings, first)))
        problems.extend(piece.problems)
    return rel, found, problems


def _changed(rel: str) -> str:
    return f"{rel}: changed while it was being checked; run again"


def _with_imports(survey: Survey, rel: str, findings: list[Finding]) -> list[Finding]:
    """The findings with edits that add imports put where the file has its imports, and left out where it
    has those. A fix whose import would take a name that the file uses for something else is not offered."""
    if not any(e.span.line == 0 for f in findings if f.fix for e in f.fix.edits):
        return findings
    from pytest_dispatchguard.lint.import_place import import_place

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


def _settle(
    config: Config,
    survey: Survey,
    targets: Sequence[str],
    judged: Mapping[str, list[Finding]],
    problems: Sequence[str],
    infos: Sequence[RuleInfo],
    briefs: Briefs,
    read: Texts,
) -> Outcome:
    """Suppressions, per-file ignores and selection have their say."""
    known = {i.code: i.default for i in infos}
    ran = {i.code for i in infos if selected(config, i.code, i.default)}
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
                from pytest_dispatchguard.lint import suppress

                here = {c for c in ran if not ignored_in_file(config, rel, c)}
                applied = suppress.read(text).apply(
                    [f for f in found if f.code in here], path=rel, ran=here, known=known
                )
                found, unused = list(applied.kept), applied.unused
                suppressed.extend(applied.suppressed)
        kept.extend(
            f
            for f in (*found, *unused)
            if f.code in ran and not ignored_in_file(config, rel, f.code)
        )
    kept = _distinct(kept)
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


def text_of(survey: Survey, rel: str) -> str | None:
    """The text of a file as this run sees it; None when it cannot be read."""
    if rel in survey.texts:
        return survey.texts[rel]
    source = read_source(survey.files[rel].path, rel)
    return source.text if isinstance(source, Source) else None


class Texts:
    """Reads the files of a run as the run sees them: texts given in place of what is on disk first."""

    def __init__(self, discovery: Discovery, texts: Mapping[str, str]) -> None:
        self._paths = {f.rel: f.path for f in discovery.project}
        self._texts = dict(texts)

    def __call__(self, rel: str) -> str | None:
        """The text of a file, None when it cannot be read."""
        if rel not in self._texts:
            source = read_source(self._paths[rel], rel) if rel in self._paths else None
            if not isinstance(source, Source):
                return None
            self._texts[rel] = source.text
        return self._texts[rel]
