"""What a repository may bring along in the place of our folder, seen from the command."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from .conftest import Run, one_line

needs_links = pytest.mark.skipif(os.name == "nt", reason="links are for administrators there")


def key_of(tmp_path: Path, name: str) -> Mapping[str, str]:
    return {"DISPATCHGUARD_CACHE_KEY_FILE": str(tmp_path.parent / f"{tmp_path.name}-{name}.key")}


def test_a_planted_cache_hides_nothing_and_writes_nothing(
    project: Path, start: Run, tmp_path: Path
) -> None:
    mine, theirs = key_of(tmp_path, "mine"), key_of(tmp_path, "theirs")
    good = start("check", "--format", "json", env=mine)
    shutil.rmtree(project / ".dispatchguard")
    assert start("check", "--format", "json", env=theirs).out == good.out
    cache = project / ".dispatchguard" / "cache.sqlite"
    with closing(sqlite3.connect(cache)) as planted:
        planted.execute("UPDATE rows SET value = replace(value, 'zeros', 'evil')")
        planted.execute("UPDATE rows SET value = '[]' WHERE namespace = 'judged'")
        planted.commit()
    for env in (mine, theirs):
        planted_once = cache.read_bytes()
        assert start("check", "--format", "json", env=env) == good
        cache.write_bytes(planted_once)
    start("check", "--fix", env=mine)
    assert "evil" not in (project / "pkg" / "a.py").read_text()


@needs_links
def test_a_linked_folder_is_told_in_one_line(project: Path, run: Run, tmp_path: Path) -> None:
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    plain = run("check", "--no-cache", "--format", "json")
    (project / ".dispatchguard").symlink_to(elsewhere, target_is_directory=True)
    assert run("check", "--format", "json").findings == plain.findings
    said = run("check").out.splitlines()
    (line,) = [line for line in said if "running without a cache" in line]
    assert "is a link, through which nothing is written; remove it" in line
    assert "is a link" in one_line(run("clean"))
    assert [path.name for path in elsewhere.iterdir()] == ["precious"]


def test_a_home_that_takes_no_key_is_told_in_one_line(project: Path, start: Run) -> None:
    home = project / "pyproject.toml"  # no folder
    told = start("check", env={"XDG_STATE_HOME": str(home), "LOCALAPPDATA": str(home)})
    assert told.out.count("running without a cache: ") == 1
    assert not (project / ".dispatchguard").exists()
