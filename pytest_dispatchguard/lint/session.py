"""What a run works with: configuration, rules, cache and worker processes, open for as long as it lasts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.config.load import load_config
from pytest_dispatchguard.config.project_root import find_root
from pytest_dispatchguard.lint.judge.cached_catalog import catalog as catalog_of
from pytest_dispatchguard.lint.judge.catalog import Catalog, Codes
from pytest_dispatchguard.lint.processes.workers import Pool
from pytest_dispatchguard.lint.store.cache import Cache, cache_path
from pytest_dispatchguard.lint.store.staleness import fingerprint
from pytest_dispatchguard.paths import absolute, is_folder

if TYPE_CHECKING:
    from pytest_dispatchguard.profile import Profile


Caches = Callable[[Path], Cache]
"""Gives the cache of a project by its root, in place of the one in the project."""


@dataclass(frozen=True, slots=True)
class Session:
    """An open project."""

    config: Config
    rules: Callable[[], Catalog]
    """Gives the catalog of rules; slow the first time, so it is asked for while other processes work."""
    cache: Cache | None
    pool: Pool
    ran: Profile | None = None
    """What ran of the project, beside what its recorded profile says: in a trace."""

    @property
    def catalog(self) -> Catalog:
        """All rules, without their code."""
        return self.rules()


@contextmanager
def open_session(
    paths: Sequence[Path],
    cwd: Path,
    config_file: Path | None,
    given: Mapping[str, Any],
    *,
    cached: bool,
    jobs: int,
    kept: Caches | None = None,
) -> Iterator[Session]:
    """Open the project around the paths, for up to `jobs` processes. Caches that are `kept` stay open."""
    config, rules, cache = settings(paths, cwd, config_file, given, cached, kept)
    try:
        with Pool(jobs) as pool:
            yield Session(config, rules, cache, pool)
    finally:
        if cache is not None and kept is None:
            cache.close()


def settings(
    paths: Sequence[Path],
    cwd: Path,
    config_file: Path | None,
    given: Mapping[str, Any],
    cached: bool,
    kept: Caches | None = None,
) -> tuple[Config, Callable[[], Catalog], Cache | None]:
    """The configuration, a function that gives the rules (slow the first time), and the open cache."""
    asked = [absolute(cwd / p) for p in paths] or [cwd]
    root = find_root(asked, None if config_file is None else absolute(cwd / config_file))
    if kept is not None:
        cache: Cache | None = kept(root)
    else:
        cache = Cache.open(cache_path(root), fingerprint()) if cached and is_folder(root) else None
    rules = functools.cache(functools.partial(catalog_of, cache))
    try:
        config = load_config(
            paths, cwd=cwd, config_file=config_file, known_codes=Codes(rules), **given
        )
    except BaseException:
        if cache is not None and kept is None:
            cache.close()
        raise
    return config, rules, cache


def settings_only(
    paths: Sequence[Path],
    cwd: Path,
    config_file: Path | None,
    given: Mapping[str, Any],
    cached: bool,
) -> Config:
    """The configuration alone."""
    config, _, cache = settings(paths, cwd, config_file, given, cached)
    if cache is not None:
        cache.close()
    return config
