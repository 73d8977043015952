"""Stores what is hot in a state of the project: an index, and the briefs by digest, so that states can
share most briefs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.lint.judge.catalog import Catalog
from pytest_dispatchguard.lint.store.cache import Cache


class Index(NamedTuple):
    """What is hot, without the briefs themselves."""

    keys: Mapping[str, str]
    """The digest of each brief, by path."""
    hot: Mapping[str, int]
    """The number of hot functions, by path."""
    idle: Sequence[str]
    """As in `engine.Briefs`."""


def settings_of(config: Config, catalog: Catalog, packaged: Iterable[str]) -> str:
    """The settings that hotness depends on; `packaged` are the packages that the project installs."""
    own = [
        config.hot_roots,
        config.cold,
        config.import_roots,
        config.tensor_types,
        sorted(packaged),
    ]
    return json.dumps([own, sorted(catalog.hot_roots.items())])


def index_of(cache: Cache, key: str) -> Index | None:
    """What is hot in a state; None if the cache does not have it."""
    row = cache.get_many("heat", [key]).get(key)
    return None if row is None else Index(*json.loads(row))


def brief_of(cache: Cache, digest: str) -> str | None:
    """A brief that an index names; None if the cache has lost it."""
    return cache.get_many("brief", [digest]).get(digest)


def restore_brief(cache: Cache, digest: str, brief: str) -> None:
    """Store a brief that the cache had lost."""
    cache.put_many("brief", {digest: brief})


def keep(cache: Cache, key: str, index: Index, new: Mapping[str, str]) -> None:
    """Store what is hot in a state, and drop other states except for shared briefs. `new` has the briefs
    that the cache does not have yet."""
    cache.prune("heat", ())
    cache.prune("brief", frozenset(index.keys.values()))
    cache.put_many("brief", {index.keys[rel]: text for rel, text in new.items()})
    cache.put_many("heat", {key: json.dumps(index)})
