"""A cache is stale when the linter, Python or what is installed has changed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_dispatchguard import lint
from pytest_dispatchguard.lint.store import staleness


def test_the_fingerprint_sees_packs_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    before = staleness.fingerprint()
    (tmp_path / "notes.txt").write_text("no pack")
    assert staleness.fingerprint() == before
    (tmp_path / "pack-1.0.dist-info").mkdir()
    assert staleness.fingerprint() != before


def test_the_fingerprint_covers_every_module_of_the_linter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stamped: set[str] = set()
    monkeypatch.setattr(staleness, "stamp", stamped.update)
    staleness.fingerprint()
    root = Path(lint.__path__[0])
    names = {
        Path(file).relative_to(root).as_posix()
        for file in stamped
        if Path(file).is_relative_to(root)
    }
    assert {"engine.py", "dataflow/reader.py", "scout/scan.py", "judge/judge.py"} <= names
