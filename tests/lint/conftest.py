"""Projects that are linted again and again, for tests of what is carried over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_dispatchguard.lint import following, learning, remembered
from pytest_dispatchguard.lint.cache import Cache
from pytest_dispatchguard.lint.catalog import Catalog, catalog

from .relinted import Remembering, count_solutions

Start = Callable[..., Remembering]


@pytest.fixture(scope="session")
def rules() -> Catalog:
    """The rules of this project."""
    return catalog(None)


@pytest.fixture
def remembering(rules: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Gives a project that was linted once, and is remembered."""
    made: list[Remembering] = []
    count_solutions(monkeypatch, made)
    monkeypatch.setattr(learning, "fingerprint", lambda: "1")
    monkeypatch.setattr(learning, "cache_path", lambda root: root / "cache.sqlite")
    monkeypatch.setattr(remembered, "projects", {})
    monkeypatch.setattr(remembered, "declined", set())
    for module in (following, learning):
        monkeypatch.setattr(module, "projects", remembered.projects)
    monkeypatch.setattr(learning, "declined", remembered.declined)

    def start(texts: dict[str, str], **settings: object) -> Remembering:
        root = tmp_path / str(len(made))
        root.mkdir()
        one = Remembering(root, rules, Cache.open(root / "cache.sqlite", "1"), settings)
        made.append(one)
        assert not one.proved(texts)
        one.learn()
        assert root in remembered.projects
        return one

    yield start
    for one in made:
        one.cache.close()
