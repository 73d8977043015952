"""The search for the first commit that has a change, in real repositories; what it counts is in a file."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_dispatchguard.history.search import check_out, first_changed
from pytest_dispatchguard.model.errors import UserError

Commit = Callable[..., str]


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def commit(tmp_path: Path) -> Commit:
    """Makes a commit that counts so much, None for nothing, on others."""
    git(tmp_path, "init", "-q", "-b", "main")

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


def searched(tree: Path, good: str, bad: str) -> tuple[str, list[str]]:
    """The first commit at which the number is not 1, and those that were looked at."""
    looked = []

    def look(commit: str) -> bool | None:
        check_out(tree, commit)
        looked.append(commit)
        said = (tree / "counts").read_text()
        return None if said == "None" else said != "1"

    return first_changed(tree, look, good, bad, lambda commit: f"nothing at {commit}"), looked


@pytest.mark.parametrize("moved", range(1, 12))
def test_the_first_of_a_line_is_found(tmp_path: Path, commit: Commit, moved: int) -> None:
    line = [commit(1)]
    for number in range(1, 12):
        line.append(commit(5 if number >= moved else 1, line[-1]))
    first, tried = searched(tmp_path, line[0], line[-1])
    assert first == line[moved]
    assert len(tried) <= 4


def test_commits_that_count_nothing_are_passed_over(tmp_path: Path, commit: Commit) -> None:
    line = [commit(1)]
    for number in (1, None, None, 1, 2, None, 2):
        line.append(commit(number, line[-1]))
    first, _ = searched(tmp_path, line[0], line[-1])
    assert first == line[5]


def test_where_they_leave_it_open_that_is_said(tmp_path: Path, commit: Commit) -> None:
    line = [commit(1)]
    for number in (1, None, 2, 2):
        line.append(commit(number, line[-1]))
    with pytest.raises(UserError, match="cannot be narrowed down") as told:
        searched(tmp_path, line[0], line[-1])
    assert f"nothing at {line[2]}; it is one of {line[2][:12]}, {line[3][:12]};" in str(told.value)


def test_a_branch_that_was_merged(tmp_path: Path, commit: Commit) -> None:
    base = commit(1)
    side = commit(1, base)
    culprit = commit(7, side)
    merged = commit(7, commit(1, commit(1, base)), commit(7, culprit))
    assert searched(tmp_path, base, commit(7, merged))[0] == culprit


def test_ends_that_parted(tmp_path: Path, commit: Commit) -> None:
    base = commit(1)
    good, culprit = commit(1, base), commit(2, base)
    assert searched(tmp_path, good, commit(2, culprit))[0] == culprit
    other = commit(2)
    with pytest.raises(UserError, match=f"had already moved at the merge base {other[:12]}"):
        searched(tmp_path, commit(1, other), commit(2, other))
