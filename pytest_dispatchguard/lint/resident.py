"""A project kept in memory, for an editor that asks again at every change: facts, hotness and findings stay,
and only what a change touches is done anew."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from pytest_dispatchguard import prices
from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.config.project_root import is_project
from pytest_dispatchguard.lint.facts import FileFacts
from pytest_dispatchguard.lint.incremental.cached_briefs import (
    cached_briefs,
    project_key,
    solved_briefs,
)
from pytest_dispatchguard.lint.judge.catalog import Catalog
from pytest_dispatchguard.lint.judge.judge import bench
from pytest_dispatchguard.lint.pipeline.briefs import Briefs
from pytest_dispatchguard.lint.pipeline.judge_files import judge_files, target_of
from pytest_dispatchguard.lint.pipeline.outcome import outcome_of
from pytest_dispatchguard.lint.pipeline.progress import Progress, no_progress
from pytest_dispatchguard.lint.pipeline.survey import (
    Scouted,
    Survey,
    facts_of,
    scout_files,
    scouted_text,
    sha,
    text_of,
)
from pytest_dispatchguard.lint.processes.workers import Pool
from pytest_dispatchguard.lint.results import baseline as baselines
from pytest_dispatchguard.lint.results.fixes import repair
from pytest_dispatchguard.lint.results.reported import is_shown
from pytest_dispatchguard.lint.session import settings
from pytest_dispatchguard.lint.sources.files import (
    Discovery,
    File,
    discover,
    is_excluded,
    rel_in,
)
from pytest_dispatchguard.lint.store.cache import Cache, Memory, cache_path
from pytest_dispatchguard.lint.store.staleness import fingerprint
from pytest_dispatchguard.model.errors import UserError, pass_interrupt_on
from pytest_dispatchguard.model.findings import Finding, Safety
from pytest_dispatchguard.model.prices import PriceTable
from pytest_dispatchguard.paths import is_file

_KEPT_BRIEFS = 3
"""States of a project whose hotness is kept: with those before, for who undoes, and on the way of a fix."""


@dataclass(frozen=True, slots=True)
class Told:
    """What there is to say of one file."""

    findings: tuple[Finding, ...] = ()
    text: str = ""
    """The text that they are about."""
    state: str = ""
    """Of the project, whose hotness they come from: where two files are told from two states, one is out of
    date."""
    settled: bool = True
    """Whether that is the state that the texts are in; else it is one of before, until what is `unsolved` is
    solved."""
    problems: tuple[str, ...] = ()
    """Failures of the linter itself, a line each."""


@dataclass(frozen=True, slots=True)
class Unsolved:
    """A state of a project whose hotness is not known."""

    key: str
    config: Config
    survey: Survey
    catalog: Catalog

    def solved(self, step: Callable[[], object] | None = None) -> Solved:
        """Its hotness. May be asked in another thread than all else; a `step` is taken every now and then, in
        which it may be held up."""
        made = solved_briefs(self.config, self.survey, self.catalog, None, step)
        return Solved(self.key, made)


@dataclass(frozen=True, slots=True)
class Solved:
    """A state of a project, and what is hot in it."""

    key: str
    briefs: Briefs


@dataclass(frozen=True, slots=True)
class _Buffer:
    """A text in place of what is on disk."""

    text: str
    file: File
    now: Scouted
    """The text."""
    known: Scouted
    """What the project has of it: where the text does not parse, and was not saved so, what it was before."""
    facts: FileFacts
    """The same."""


class Resident:
    """A project, its files as they are on disk and as they are being edited. For one thread."""

    def __init__(
        self, config: Config, rules: Callable[[], Catalog], kept: Cache | None, jobs: int = 1
    ) -> None:
        self.config = config
        self.complaints: tuple[str, ...] = ()
        """What of the project's own files could not be read, a line each."""
        self._rules = rules
        self._cache = kept or Cache.in_memory()
        """What runs before this one found out of files on disk."""
        self._judged = Memory()
        """What was found in functions, as they are and as they were."""
        self._jobs = jobs
        self._asked: set[Path] = set()
        """Files that make up the project where there is none around them."""
        self._disk: Survey | None = None
        self._buffers: dict[str, _Buffer] = {}
        self._key = ""
        """Of the state that the hotness in use is of."""
        self._briefs: dict[str, Briefs] = {}
        """By state, the last one solved in the end."""
        self._own_prices: PriceTable | None = None
        self._accepted: baselines.Baseline | None = None

    @property
    def catalog(self) -> Catalog:
        """All rules, told without their code."""
        return self._rules()

    def close(self) -> None:
        """Lets go of what other processes may want."""
        self._cache.close()

    def rel(self, path: Path) -> str:
        """What a file is called in the project."""
        if path.is_relative_to(self.config.root):
            rel = path.relative_to(self.config.root).as_posix()
            if self._disk is None or rel in self._disk.files:
                return rel
        return rel_in(self.config.root, path)

    def text(self, rel: str) -> str | None:
        """The text of a file that is not being edited; None where it cannot be read."""
        return (
            None if self._disk is None or rel not in self._disk.files else text_of(self._disk, rel)
        )

    # -- what is on disk ---------------------------------------------------------------------------

    def refresh(self, tell: Progress | None = None) -> None:
        """Looks at the disk again: files that changed there, came, or went. `tell` is told how far it is."""
        tell = tell or no_progress
        try:
            self._survey_disk(tell)
        except UserError:
            raise
        except Exception as error:  # noqa: BLE001 - rows that nobody wrote like this can do anything
            pass_interrupt_on(error)
            # Without them the same error is ours.
            self._cache.close()
            self._cache = Cache.in_memory()
            self._survey_disk(tell)
        self.complaints = tuple(self._read_own())

    def _survey_disk(self, tell: Progress) -> None:
        before = self._disk
        with Pool(self._jobs, threads=True) as pool:
            found = scout_files(
                self.config,
                self._discovered(),
                self._cache,
                pool,
                {},
                tell,
                lambda _: self._rules(),
            )
        if before is None:
            self._disk = found
            made = cached_briefs(self.config, found, self.catalog, self._cache, tell)
            # All of them now: another process may drop them from the cache.
            texts = {rel: made.text(rel) for rel in made.hot}
            key = project_key(self.config, found, self.catalog)
            # The first file is not to wait for the rules.
            bench(target_of(self.config), self.catalog.packs)
            self._keep(key, Briefs(made.hot, made.idle, texts.__getitem__))
            return
        for rel, facts in before.facts.items():
            if rel in found.scouted and found.scouted[rel].digest == before.scouted[rel].digest:
                found.facts.setdefault(rel, facts)
        self._disk = found

    def _discovered(self) -> Discovery:
        root = self.config.root
        if is_project(self.config):
            return discover((), self.config, cwd=root)
        there = sorted(path for path in self._asked if is_file(path))
        return discover(there, self.config, cwd=root) if there else Discovery((), ())

    def _read_own(self) -> list[str]:
        """Reads prices and baseline; the last good ones stay where they cannot be read."""
        said = []
        try:
            self._own_prices = prices.load(self.config.root / prices.NAME)
        except UserError as error:
            said.append(str(error))
        try:
            if self.config.baseline is not None:
                self._accepted = baselines.load(self.config.baseline)
        except UserError as error:
            said.append(str(error))
        return said

    # -- what is being edited ----------------------------------------------------------------------

    def _take(self, texts: Mapping[str, str]) -> Survey:
        """The project with these texts in place of those on disk, and no others."""
        if self._disk is None:
            self.refresh()
        disk = self._disk
        assert disk is not None
        self._buffers = {r: self._buffer(disk, r, text) for r, text in texts.items()}
        buffers = self._buffers
        return Survey(
            {**disk.files, **{r: b.file for r, b in buffers.items()}},
            {**disk.scouted, **{r: b.known for r, b in buffers.items()}},
            {r: b.text for r, b in buffers.items()},
            {**disk.facts, **{r: b.facts for r, b in buffers.items()}},
        )

    def _buffer(self, disk: Survey, rel: str, text: str) -> _Buffer:
        digest = sha(text.encode("utf-8", "surrogatepass"))
        saved = disk.scouted.get(rel)
        file = disk.files.get(rel) or File(str(self.config.root / rel), rel, len(text), 0, 0, 0)
        if saved is not None and saved.digest == digest:
            facts = facts_of(self.config, disk, [rel], self._cache)[rel]
            return _Buffer(text, file, saved, saved, facts)
        before = self._buffers.get(rel)
        if before is not None and before.text == text:
            return replace(before, file=file)
        now, facts = scouted_text(self.config, rel, text)
        if now.error is not None:
            if before is not None and before.known.error is None:
                return _Buffer(text, file, now, before.known, before.facts)
            if saved is not None and saved.error is None:
                facts = facts_of(self.config, disk, [rel], self._cache)[rel]
                return _Buffer(text, file, now, saved, facts)
        return _Buffer(text, file, now, now, facts)

    # -- what is found -----------------------------------------------------------------------------

    def check(self, rel: str, texts: Mapping[str, str], *, wait: bool = True) -> Told:
        """The findings in one file, where these texts stand in place of those on disk. Where hotness is not
        known for them, it is found out first; or what is known is told, if nobody wants to `wait`."""
        config = self.config
        self._ask_for(rel)
        survey = self._take(texts)
        key = project_key(config, survey, self.catalog)
        if key != self._key and (wait or key in self._briefs):
            self._solve(key, survey)
        if rel not in survey.scouted or is_excluded(rel, config):
            return Told(state=self._key, settled=key == self._key)
        if rel in self._buffers:
            survey.scouted[rel] = self._buffers[rel].now
        briefs = self._briefs[self._key]
        judged = judge_files(
            config, survey, [rel], briefs, self.catalog, self._judged, Pool(1), no_progress
        )
        read = partial(text_of, survey)
        infos = self.catalog.infos
        outcome = outcome_of(config, survey, [rel], judged, infos, briefs, read)
        return Told(
            findings=tuple(self._told(outcome.findings)),
            text=read(rel) or "",
            state=self._key,
            settled=key == self._key,
            problems=outcome.problems,
        )

    def _told(self, findings: Collection[Finding]) -> list[Finding]:
        if self._accepted is not None:
            findings = baselines.match(findings, self._accepted, checked=()).new
        told = (f for f in findings if is_shown(self.config, f))
        return prices.priced(told, self.catalog.prices, self._own_prices)

    def _ask_for(self, rel: str) -> None:
        """Has a file looked for that no project around it leads to."""
        path = self.config.root / rel
        if path in self._asked or is_project(self.config):
            return
        self._asked.add(path)
        if self._disk is not None and rel not in self._disk.files:
            self._disk = None

    def fixed(self, rel: str, texts: Mapping[str, str]) -> str | None:
        """The text of a file with all its safe fixes made; None where there is nothing to fix."""

        def again(after: Mapping[str, str]) -> tuple[Finding, ...]:
            return self.check(rel, {**texts, **after}).findings

        told = self.check(rel, texts)
        safe: tuple[Safety, ...] = ("safe",)
        return repair(told.findings, lambda _: told.text, again, safe).after.get(rel)

    # -- what is hot -------------------------------------------------------------------------------

    def unsolved(self, texts: Mapping[str, str]) -> Unsolved | None:
        """The project with these texts, if it is not known what is hot in it."""
        survey = self._take(texts)
        key = project_key(self.config, survey, self.catalog)
        return None if key == self._key else self._unsolved(key, survey)

    def accept(self, solved: Solved) -> None:
        """Takes what was found to be hot for what is hot."""
        made = solved.briefs
        self._keep(solved.key, Briefs(made.hot, made.idle, cache(made.text)))

    def _unsolved(self, key: str, survey: Survey) -> Unsolved:
        disk = self._disk
        assert disk is not None
        rest = [rel for rel in disk.scouted if rel not in self._buffers]
        survey.facts.update(facts_of(self.config, disk, rest, self._cache))
        return Unsolved(key, self.config, survey, self.catalog)

    def _solve(self, key: str, survey: Survey) -> None:
        if key in self._briefs:
            self._keep(key, self._briefs.pop(key))
        else:
            self.accept(self._unsolved(key, survey).solved())

    def _keep(self, key: str, briefs: Briefs) -> None:
        self._key = key
        self._briefs[key] = briefs
        for old in list(self._briefs)[:-_KEPT_BRIEFS]:
            del self._briefs[old]


def resident_around(path: Path, jobs: int = 1) -> Resident:
    """The project that a file belongs to."""
    config, rules, _ = settings((path,), path.parent, None, {}, cached=False)
    # Outside of projects nobody expects a folder of ours.
    kept = Cache.open(cache_path(config.root), fingerprint()) if is_project(config) else None
    if kept is not None and kept.connection is None:
        kept = None
    return Resident(config, rules, kept, jobs)
