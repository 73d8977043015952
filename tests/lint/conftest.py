"""Projects that are linted again and again, for tests of the state that follows another."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pytest_dispatchguard.lint.judge.cached_catalog import catalog
from pytest_dispatchguard.lint.judge.catalog import Catalog
from pytest_dispatchguard.lint.store.cache import Cache

from .relinted import Linted, count_solutions

Start = Callable[..., Linted]
SWEEPS = Path(__file__).parents[2] / "bench" / "attacks" / "size_sweeps.py"


@pytest.fixture(scope="session")
def sweeps() -> ModuleType:
    """The files that grow, of the benchmarks."""
    if not SWEEPS.exists():
        pytest.skip("the benchmarks are not here")
    spec = importlib.util.spec_from_file_location("size_sweeps", SWEEPS)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["size_sweeps"] = module
    spec.loader.exec_module(module)
    return module


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
