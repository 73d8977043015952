"""The search for the commit that moved a counter, in real repositories; what it counts is in a file."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.history.bisect import _first_moved
from pytest_dispatchguard.measure.revisions import one_commit
from pytest_dispatchguard.model.errors import UserError

PLAN = {"subject": "f", "counter": "instructions", "before": 1}
Commit = Callable[..., str]


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commit:
    """Makes a commit that counts so much, None for nothing, on others."""
    git(tmp_path, "init", "-q", "-b", "main")

    def counted(plan: Mapping[str, Any]) -> tuple[dict[str, dict[str, int]], str]:
        said = (tmp_path / "counts").read_text()
        return ({}, "broken") if said == "None" else ({"f": {"instructions": int(said)}}, "")

    monkeypatch.setattr(one_commit, "counted", counted)
    serial = 0

    def commit(number: int | None, *parents: str) -> str:
        nonlocal serial
        serial += 1
        (tmp_path / "counts").write_text(str(number))
        (tmp_path / "serial").write_text(str(serial))
        git(tmp_path, "add", "-A")
        words = [word for parent in parents for word in ("-p", parent)]
        return git(tmp_path, "commit-tree", git(tmp_path, "write-tree"), *words, "-m", "c")

    return commit


@pytest.mark.parametrize("moved", range(1, 12))
def test_the_first_of_a_line_is_found(tmp_path: Path, commit: Commit, moved: int) -> None:
    line = [commit(1)]
    for number in range(1, 12):
        line.append(commit(5 if number >= moved else 1, line[-1]))
    first, tried = _first_moved(tmp_path, PLAN, line[0], line[-1])
    assert first == line[moved]
    assert len(tried) <= 4


def test_commits_that_count_nothing_are_passed_over(tmp_path: Path, commit: Commit) -> None:
    line = [commit(1)]
    for number in (1, None, None, 1, 2, None, 2):
        line.append(commit(number, line[-1]))
    first, _ = _first_moved(tmp_path, PLAN, line[0], line[-1])
    assert first == line[5]


def test_where_they_leave_it_open_that_is_said(tmp_path: Path, commit: Commit) -> None:
    line = [commit(1)]
    for number in (1, None, 2, 2):
        line.append(commit(number, line[-1]))
    with pytest.raises(UserError, match="cannot be narrowed down"):
        _first_moved(tmp_path, PLAN, line[0], line[-1])


def test_a_branch_that_was_merged(tmp_path: Path, commit: Commit) -> None:
    base = commit(1)
    side = commit(1, base)
    culprit = commit(7, side)
    merged = commit(7, commit(1, commit(1, base)), commit(7, culprit))
    assert _first_moved(tmp_path, PLAN, base, commit(7, merged))[0] == culprit


def test_ends_that_parted(tmp_path: Path, commit: Commit) -> None:
    base = commit(1)
    good, culprit = commit(1, base), commit(2, base)
    assert _first_moved(tmp_path, PLAN, good, commit(2, culprit))[0] == culprit
    other = commit(2)
    with pytest.raises(UserError, match=f"had already moved at the merge base {other[:12]}"):
        _first_moved(tmp_path, PLAN, commit(1, other), commit(2, other))
