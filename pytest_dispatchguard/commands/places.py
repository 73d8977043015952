"""How output names files: for people from the folder they are in, for code hosts from the repository."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from pytest_dispatchguard.commands.options import (
    working_folder,
)

OF_HOSTS = ("sarif", "github", "gitlab", "rdjson")
"""Formats that a code host reads: an annotation stands where the host itself has the file."""


def from_here(root: Path) -> Callable[[str], str]:
    """Names files of a project as whoever called the command can open them: relative to the folder it was
    called in."""
    here = working_folder()
    if root == here:
        return str
    return lambda path: Path(os.path.relpath(root / path, here)).as_posix()


def below_repository(root: Path) -> str:
    """The way from the repository to a project in it, with a slash at its end; empty where they are one, and
    where there is no repository."""
    from pytest_dispatchguard.paths import exists

    for folder in (root, *root.parents):
        if exists(folder / ".git"):
            return "" if folder == root else f"{root.relative_to(folder).as_posix()}/"
    return ""
