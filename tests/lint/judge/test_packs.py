"""The built-in pack loads, and says of itself what runs need to know without importing it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_dispatchguard.lint.judge import cached_catalog, packs
from pytest_dispatchguard.lint.judge import catalog as catalogs
from pytest_dispatchguard.lint.judge.rule import Look, Rule
from pytest_dispatchguard.lint.store import staleness
from pytest_dispatchguard.lint.store.cache import Cache


def test_rules_are_sorted_and_proper() -> None:
    rules = packs.load().rules
    codes = [r.code for r in rules]
    assert codes == sorted(set(codes))
    assert all(re.fullmatch(r"DG[1-9]\d\d", c) for c in codes if c.startswith("DG"))
    names = [r.name for r in rules]
    assert len(set(names)) == len(names)
    for rule in rules:
        assert isinstance(rule, Rule)
        assert all(isinstance(look, Look) and look.tokens for look in rule.looks())
        assert rule.info().summary.endswith(".")


def test_the_catalog_tells_of_all_rules_and_of_the_linter_itself() -> None:
    made = packs.catalog()
    assert [i.code for i in made.infos] == sorted(
        {r.code for r in packs.load().rules} | {"DG001", "DG002"}
    )
    assert made.tokens >= packs.load().rules[0].looks()[0].tokens
    assert made.files
    assert all(Path(f).is_file() for f in made.files)
    assert made.stamp == staleness.stamp(made.files)


def test_the_stamp_covers_every_module_of_a_pack() -> None:
    pack = Path(sys.modules["dispatchguard_rules"].__file__ or "").parent
    modules = {str(p) for p in pack.rglob("*.py")}
    assert str(pack / "syncs" / "truth" / "conditions.py") in modules  # defines no rule itself
    assert modules <= set(packs.catalog().files)


def test_the_catalog_is_kept_and_made_anew_when_a_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = tmp_path / "pack.py"
    watched.write_text("one")
    made = packs.catalog()
    calls: list[int] = []

    def count() -> catalogs.Catalog:
        calls.append(1)
        files = (str(watched),)
        return catalogs.Catalog(
            made.infos, made.tokens, made.hot_roots, made.packs, files, staleness.stamp(files)
        )

    monkeypatch.setattr(packs, "catalog", count)
    cache = Cache.open(tmp_path / "cache.sqlite", "1")
    first = cached_catalog.catalog(cache)
    assert cached_catalog.catalog(cache) == first
    assert len(calls) == 1
    watched.write_text("three")
    assert cached_catalog.catalog(cache).stamp != first.stamp
    assert len(calls) == 2
    cache.close()


def test_names_that_a_file_told_are_never_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "poison_of_a_cache.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert packs.load(("dispatchguard_rules", "poison_of_a_cache")) == packs.load()


def test_a_known_project_is_checked_without_importing_rules_or_libcst(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    words = "import sys; from pytest_dispatchguard.cli import main; s = main(['check', '.']); print(s); "
    words += (
        "print([m for m in ('libcst', 'dispatchguard_rules', 'torch', 'rich') if m in sys.modules])"
    )
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", words], cwd=tmp_path, capture_output=True, text=True, check=True
        )
    assert done.stdout.splitlines()[-2:] == ["0", "[]"]
