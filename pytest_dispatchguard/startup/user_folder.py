"""Folders that are this user's alone: what lies there nobody else has put there. Imports next to nothing."""

from __future__ import annotations

import os
import stat


def own_folder(base: str, name: str) -> str | None:
    """A folder in another, made where it is missing; None where others may have a say in it."""
    path = f"{base}/{name}"
    try:
        above = os.stat(base)  # noqa: PTH116 - pathlib costs what is to be saved
        # Whoever can put another folder in its place could have this user run what they like.
        theirs = above.st_uid not in (0, os.getuid())
        if theirs or (above.st_mode & 0o022 and not above.st_mode & stat.S_ISVTX):
            return None
        try:
            os.mkdir(path, 0o700)  # noqa: PTH102 - the same
        except FileExistsError:
            pass
        found = os.lstat(path)
    except OSError:
        return None
    alone = found.st_uid == os.getuid() and not found.st_mode & 0o077
    return path if alone and stat.S_ISDIR(found.st_mode) else None
