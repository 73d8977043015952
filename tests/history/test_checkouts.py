"""What git says of the code that was measured."""

from __future__ import annotations

import subprocess
from pathlib import Path

from pytest_dispatchguard.history.checkouts import checkout_of
from pytest_dispatchguard.model.history import Checkout


def git(folder: Path, *words: str) -> str:
    said = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    done = subprocess.run(
        ["git", *said, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_folder_without_git_has_none(tmp_path: Path) -> None:
    assert checkout_of(tmp_path) == Checkout()
    assert checkout_of(tmp_path / "gone") == Checkout()


def test_commit_branch_and_whether_all_is_committed(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=tränk/ü")
    assert checkout_of(tmp_path) == Checkout()  # no commit yet
    (tmp_path / "a.py").write_text("a")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "a")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert checkout_of(tmp_path) == Checkout(commit, "tränk/ü", False)
    (tmp_path / "new.json").write_text("{}")  # what git does not know is no change
    assert checkout_of(tmp_path).dirty is False
    (tmp_path / "a.py").write_text("b")
    assert checkout_of(tmp_path).dirty is True
    git(tmp_path, "checkout", "--quiet", "--force", "--detach")
    assert checkout_of(tmp_path) == Checkout(commit, "", False)
