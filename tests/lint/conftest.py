"""Projects that are linted again and again, for tests of the state that follows another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_dispatchguard.lint.judge.cached_catalog import catalog
from pytest_dispatchguard.lint.judge.catalog import Catalog
from pytest_dispatchguard.lint.store.cache import Cache

from .relinted import Linted, count_solutions

Start = Callable[..., Linted]


@pytest.fixture(scope="session")
def rules() -> Catalog:
    """The rules of this project."""
    return catalog(None)


@pytest.fixture
def linted(rules: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Gives a project that was linted once."""
    made: list[Linted] = []
    count_solutions(monkeypatch, made)

    def start(texts: dict[str, str], **settings: object) -> Linted:
        cache = Cache.open(tmp_path / f"{len(made)}.sqlite", "1")
        one = Linted(tmp_path, rules, cache, settings)
        made.append(one)
        assert not one.proved(texts)
        return one

    yield start
    for one in made:
        one.cache.close()
