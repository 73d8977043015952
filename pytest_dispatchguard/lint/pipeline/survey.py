"""The files of a run and what the scout knows of each, from the cache where their content is known."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.config.project_root import is_project, names_project
from pytest_dispatchguard.lint.facts import FileFacts
from pytest_dispatchguard.lint.internal_errors import mistake
from pytest_dispatchguard.lint.pipeline.progress import Progress
from pytest_dispatchguard.lint.processes.workers import Pool
from pytest_dispatchguard.lint.sources.files import (
    Discovery,
    File,
    Source,
    Unreadable,
    decode_source,
    read_source,
)
from pytest_dispatchguard.lint.sources.packages import made_to_be_installed
from pytest_dispatchguard.lint.store.cache import Cache, Store
from pytest_dispatchguard.lint.store.packing import pack_facts, shape, unpack_facts
from pytest_dispatchguard.model.errors import pass_interrupt_on

# Comments that may be meant for us; most `noqa` name codes of other tools, with one letter or four digits.
_NOQA = tuple(
    re.compile(rf"{word}[^\n]*\b[A-Za-z]{{2,}}\d{{3}}\b") for word in ("noqa", "NOQA", "NoQA")
)
_NAME = "dispatchguard"
_MISSPELT = re.compile(r"#[ \t]*([dD][a-zA-Z_-]{10,14})[ \t]*:")
_SAME_LETTERS = 10
"""What is a misspelt name of ours, as `suppressions` has it, has more in common with it."""
_SCAN_WORTH = 24


@dataclass(frozen=True, slots=True)
class Scouted:
    """One file after scouting."""

    rel: str
    digest: str
    """Of its bytes."""
    shape: str
    """Of its facts, positions left out: what hotness depends on. Empty where no cache asks for it."""
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
    facts: dict[str, FileFacts] = field(default_factory=dict)
    """Of files scanned or loaded in this run."""
    notes: list[str] = field(default_factory=list)
    packaged: frozenset[str] | None = None
    """The folders of the packages that are made to be installed; None until somebody asks."""


def scout_files(
    config: Config,
    discovery: Discovery,
    cache: Cache | None,
    pool: Pool,
    texts: Mapping[str, str],
    tell: Progress,
    meanwhile: Callable[[int], object] | None = None,
) -> Survey:
    """Facts of every file of the project: from the cache where its content is known. What there is to do
    `meanwhile` is done while other processes read; it is told how many files are read."""
    files = {f.rel: f for f in discovery.project}
    survey = Survey(files, {}, dict(texts), notes=list(discovery.notes))
    fresh = {} if cache is None else _recalled(config, survey, cache)
    missing = [rel for rel in files if rel not in survey.scouted]
    missing.sort(key=lambda rel: -files[rel].size)
    kept = cache is not None
    jobs = [_job(config, survey, rel, kept=kept) for rel in missing]
    results = pool.map(_scan, jobs, worth=_SCAN_WORTH, most=len(jobs))
    if meanwhile is not None:
        meanwhile(len(jobs))
    rows: dict[str, str] = {}
    packed: dict[str, str] = {}
    for done, (rel, digest, row, facts) in enumerate(results, 1):
        tell("reading", done, len(jobs))
        survey.scouted[rel] = _scouted(rel, digest, json.loads(row))
        survey.facts[rel] = unpack_facts(facts)
        if kept and digest:
            key = _scout_key(config, rel, digest)
            rows[key], packed[key] = row, facts
    if jobs:
        pool.close()  # these processes know no rules; those that judge are born knowing them
    if cache is not None and fresh:
        cache.put_hashes((files[r] for r in fresh), fresh)
    if cache is not None and jobs:
        if is_project(config) and not texts:  # else the files of this run are not all there are
            cache.prune_hashes(files)
        cache.put_many("facts", packed)
        cache.put_many("scouted", rows)
        for namespace in ("scouted", "facts"):
            cache.trim(namespace, 4 * len(files))
    return survey


def _recalled(config: Config, survey: Survey, cache: Cache) -> dict[str, str]:
    """Puts into the survey what the cache knows of its files. Gives the digests of those that had to be
    read for it."""
    files, texts = survey.files, survey.texts
    fresh: dict[str, str] = {}
    digests = cache.hashes(f for f in files.values() if f.rel not in texts)
    for rel, file in files.items():
        if rel in texts:
            digests[rel] = sha(texts[rel].encode("utf-8", "surrogatepass"))
        elif rel not in digests:
            with suppress(OSError):  # scanning will tell why
                fresh[rel] = digests[rel] = sha(file.path.read_bytes())
    keys = {rel: _scout_key(config, rel, digest) for rel, digest in digests.items()}
    known = cache.get_many("scouted", keys.values())
    # One by one they would take ten times as long.
    rows = dict(zip(known, json.loads(f"[{','.join(known.values())}]"), strict=True))
    for rel, key in keys.items():
        if key in rows:
            survey.scouted[rel] = _scouted(rel, digests[rel], rows[key])
    return fresh


_File = tuple[str, str, "tuple[str, ...]", bool, "str | None", bool]
"""A file to scan: its name, path, the source roots, whether no function is spared, its text if given,
whether the cache will keep what is found."""


def _scan(job: _File) -> tuple[str, str, str, str]:
    from pytest_dispatchguard.lint.knowledge.cold_names import cold_by_name
    from pytest_dispatchguard.lint.scout import scan
    from pytest_dispatchguard.lint.sources.module_names import module_name

    rel, path, roots, thorough, given, kept = job
    digest, read = text_at(path, rel, given)
    if isinstance(read, Unreadable):
        text, facts = "", FileFacts(error=(read.line, read.column, read.message))
    else:
        text = read
        cold = None if thorough else cold_by_name(rel, text)
        try:
            facts = scan.scan(text, module_name(rel, roots), rel.endswith("__init__.py"), cold)
        except Exception as error:  # noqa: BLE001 - one file must not hide what others hold
            pass_interrupt_on(error)
            digest = ""  # so that nothing of it is kept
            facts = FileFacts(error=(1, 1, mistake("the file could not be read", error)))
    directives = "dispatchguard:" in text or any(noqa.search(text) for noqa in _NOQA)
    directives = directives or any(_is_like_our_name(word) for word in _MISSPELT.findall(text))
    row = json.dumps([shape(facts) if kept else "", directives, facts.error, len(facts.functions)])
    return rel, digest, row, pack_facts(facts)


def _is_like_our_name(word: str) -> bool:
    """Whether a word may be our name misspelt."""
    letters = word.lower()
    same = sum(min(letters.count(letter), _NAME.count(letter)) for letter in set(_NAME))
    return same >= _SAME_LETTERS


def scouted_text(config: Config, rel: str, text: str) -> tuple[Scouted, FileFacts]:
    """What the scout knows of a text in place of what is on disk, and its facts."""
    _, digest, row, facts = _scan((rel, "", config.import_roots, _thorough(config), text, True))
    return _scouted(rel, digest, json.loads(row)), unpack_facts(facts)


def text_at(path: str, rel: str, given: str | None) -> tuple[str, str | Unreadable]:
    """The digest of a file's bytes, empty where there are none to be had, and its text."""
    if given is not None:
        return sha(given.encode("utf-8", "surrogatepass")), given
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        return "", Unreadable(rel, 1, 1, f"cannot be read: {error.strerror or error}")
    source = decode_source(data, rel)
    return sha(data), source if isinstance(source, Unreadable) else source.text


def packaged(config: Config, survey: Survey) -> frozenset[str]:
    """The folders of the packages that are made to be installed: those of a library."""
    if survey.packaged is None:
        suffix = "/__init__.py"
        packages = {rel.removesuffix(suffix) for rel in survey.scouted if rel.endswith(suffix)}
        folders = {"/".join(p.split("/")[:n]) for p in packages for n in range(p.count("/") + 1)}
        outside = folders - packages
        owners = {folder for folder in outside if names_project(config.root / folder)}
        survey.packaged = made_to_be_installed(packages, owners)
    return survey.packaged


def _scout_key(config: Config, rel: str, digest: str) -> str:
    """What facts depend on: the source roots are in the names that relative imports resolve to."""
    return f"{digest}:{','.join(config.import_roots)}:{_thorough(config):d}:{rel}"


def _thorough(config: Config) -> bool:
    """Whether functions that are cold by their names are read like all others: the user's word can make them
    hot."""
    return bool(config.hot_roots)


def _scouted(rel: str, digest: str, row: Sequence[Any]) -> Scouted:
    shaped, directives, error, functions = row
    return Scouted(rel, digest, shaped, directives, tuple(error) if error else None, functions)


def sha(data: bytes) -> str:
    """A digest, as short as it may be."""
    return hashlib.sha256(data).hexdigest()[:32]


def facts_of(
    config: Config, survey: Survey, rels: Iterable[str], cache: Store | None
) -> dict[str, FileFacts]:
    """Facts of files: those of this run, the rest from the cache (or scanned again where it lost them)."""
    wanted = list(rels)
    absent = [r for r in wanted if r not in survey.facts]
    if absent:
        keys = {_scout_key(config, r, survey.scouted[r].digest): r for r in absent}
        rows = {} if cache is None else cache.get_many("facts", keys)
        for key, rel in keys.items():
            row = rows.get(key)
            if row is None:
                row = _scan(_job(config, survey, rel, kept=False))[3]
            survey.facts[rel] = unpack_facts(row)
    return {r: survey.facts[r] for r in wanted}


def facts_before(config: Config, digests: Mapping[str, str], cache: Store) -> dict[str, FileFacts]:
    """Facts of files as they were, by the digests of their texts, of those that the cache still has."""
    rows = facts_rows(config, digests, cache)
    return {rel: unpack_facts(row) for rel, row in rows.items()}


def facts_rows(config: Config, digests: Mapping[str, str], cache: Store) -> dict[str, str]:
    """The same as the cache has them."""
    keys = {_scout_key(config, rel, digest): rel for rel, digest in digests.items()}
    return {keys[key]: row for key, row in cache.get_many("facts", keys).items()}


def _job(config: Config, survey: Survey, rel: str, *, kept: bool) -> _File:
    path = survey.files[rel].name
    return rel, path, config.import_roots, _thorough(config), survey.texts.get(rel), kept


def text_of(survey: Survey, rel: str) -> str | None:
    """The text of a file as this run sees it; None when it cannot be read."""
    if rel in survey.texts:
        return survey.texts[rel]
    source = read_source(survey.files[rel].path, rel)
    return source.text if isinstance(source, Source) else None


class Texts:
    """Reads the files of a run as the run sees them: texts given in place of what is on disk first."""

    def __init__(self, discovery: Discovery, texts: Mapping[str, str]) -> None:
        self._files = {f.rel: f for f in discovery.project}
        self._texts = dict(texts)

    def __call__(self, rel: str) -> str | None:
        """The text of a file, None when it cannot be read."""
        if rel not in self._texts:
            source = read_source(self._files[rel].path, rel) if rel in self._files else None
            if not isinstance(source, Source):
                return None
            self._texts[rel] = source.text
        return self._texts[rel]
