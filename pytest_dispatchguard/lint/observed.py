"""Findings of code that ran, held against what the linter holds its own against: selection, suppressions,
baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_dispatchguard import __version__, prices, profile
from pytest_dispatchguard.config.config import Config, ignored_in_file, selected
from pytest_dispatchguard.lint.judge.catalog import Catalog
from pytest_dispatchguard.lint.knowledge.cold_names import TEST_PATHS
from pytest_dispatchguard.lint.results import baseline as baselines
from pytest_dispatchguard.lint.results import suppressions
from pytest_dispatchguard.lint.session import settings, settings_only
from pytest_dispatchguard.lint.sources.files import Source, is_excluded, read_source
from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.model.reports import Report, Summary
from pytest_dispatchguard.project_folder import PROFILE


def read_config(place: Path, cwd: Path, config_file: Path | None = None) -> Config:
    """The settings of a run that only asks which files are the project's own."""
    return settings_only((place,), cwd, config_file, {}, cached=False)


def own_files(config: Config) -> Callable[[str], str | None]:
    """What gives a file's path relative to the project root; None for files that are not the project's."""
    known: dict[str, str | None] = {}
    root, here = config.root.resolve(), Path.cwd()  # which code that runs may leave

    def rel(path: str) -> str | None:
        if path not in known:
            known[path] = None
            whole = (here / path).resolve() if path and not path.startswith("<") else None
            if whole is not None and whole.is_relative_to(root):
                inside = whole.relative_to(root).as_posix()
                known[path] = None if is_excluded(inside, config) else inside
        return known[path]

    return rel


class Sieve:
    """The settings of one run, read before anything runs: what is wrong with them is told at once."""

    def __init__(
        self, place: Path, cwd: Path, config_file: Path | None, given: Mapping[str, Any]
    ) -> None:
        self.config: Config
        self.catalog: Catalog
        self.config, rules, cache = settings((place,), cwd, config_file, given, cached=True)
        self.catalog = rules()
        if cache is not None:
            cache.close()
        self.accepted = (
            None if self.config.baseline is None else baselines.load(self.config.baseline)
        )
        profile.load(
            self.config.root / PROFILE
        )  # which is read in the end: what is wrong is told now
        self.prices = prices.load(self.config.root / prices.NAME)
        self.rules = {info.code: info.name for info in self.catalog.infos}
        self.rel = own_files(self.config)

    @staticmethod
    def is_test(rel: str) -> bool:
        """Whether a file belongs to tests, benchmarks or documentation."""
        return TEST_PATHS.search(rel) is not None

    def report(self, findings: Sequence[Finding], notes: Sequence[str]) -> Report:
        """What is left of findings, in their order, with the numbers."""
        config, infos = self.config, self.catalog.infos
        ran = {info.code for info in infos if selected(config, info.code, default=True)}
        kept: list[Finding] = []
        suppressed = 0
        files = sorted({finding.path for finding in findings})
        for rel in files:
            here = {code for code in ran if not ignored_in_file(config, rel, code)}
            mine = [f for f in findings if f.path == rel and f.code in here]
            source = read_source(config.root / rel, rel)
            if isinstance(source, Source):
                # Which suppressions are unused cannot be told from one run.
                applied = suppressions.read(source.text).apply(mine, path=rel, ran=(), known={})
                mine = list(applied.kept)
                suppressed += len(applied.suppressed)
            kept += mine
        order = {finding.sort_key: place for place, finding in enumerate(findings)}
        functions = len({(finding.path, finding.function) for finding in findings})
        matched = 0
        if self.accepted is not None:
            match = baselines.match(kept, self.accepted, checked=files, ran=ran, root=config.root)
            kept, matched = list(match.new), len(match.matched)
        return Report(
            tuple(
                prices.priced(
                    sorted(kept, key=lambda finding: order[finding.sort_key]),
                    self.catalog.prices,
                    self.prices,
                )
            ),
            Summary(
                files=len(files),
                functions=functions,
                hot_functions=functions,
                suppressed=suppressed,
                baselined=matched,
            ),
            tuple(info for info in infos if info.code in ran),
            __version__,
            tuple(notes),
            ranked=True,
        )

    def source(self) -> Callable[[str], str | None]:
        """Texts of the project's files."""

        def text(rel: str) -> str | None:
            found = read_source(self.config.root / rel, rel)
            return found.text if isinstance(found, Source) else None

        return text
