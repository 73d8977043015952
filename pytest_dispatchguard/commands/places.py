"""How output names files: for people relative to the current directory, for code hosts relative to the
repository."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

from pytest_dispatchguard.commands.options import working_folder

OF_HOSTS = ("sarif", "github", "gitlab", "rdjson")
"""Formats that a code host reads: annotations need the host's paths."""


def from_here(root: Path) -> Callable[[str], str]:
    """Name files of a project relative to the directory in which the command was called, so that the user
    can open them."""
    here = working_folder()
    if root == here:
        return str
    return cache(lambda path: Path(os.path.relpath(root / path, here)).as_posix())


def below_repository(root: Path) -> str:
    """The path from the root of the repository to a project in it, with a trailing slash; empty if they
    are the same, or there is no repository."""
    from pytest_dispatchguard.paths import exists

    for folder in (root, *root.parents):
        if exists(folder / ".git"):
            return "" if folder == root else f"{root.relative_to(folder).as_posix()}/"
    return ""
