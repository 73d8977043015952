"""The state of the code that a run is of, asked of git."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_dispatchguard.git import run_git
from pytest_dispatchguard.model.history import Checkout


def checkout_of(folder: Path) -> Checkout:
    """The commit and branch that a folder is at, and whether files that git knows are as in the commit."""
    commit = _asked(folder, "rev-parse", "--verify", "--quiet", "HEAD")
    if commit is None:
        return Checkout()
    branch = _asked(folder, "symbolic-ref", "--quiet", "--short", "HEAD")
    # Whether a submodule is at another commit, not what is changed in it: its own git would be asked.
    looking = ("--porcelain", "--untracked-files=no", "--ignore-submodules=dirty")
    changed = _asked(folder, "status", *looking)
    return Checkout(commit, branch or "", None if changed is None else bool(changed))


def _asked(folder: Path, *words: str) -> str | None:
    answer = run_git(folder, *words)
    if answer is None or answer.returncode:
        return None
    return os.fsdecode(answer.stdout).strip()
