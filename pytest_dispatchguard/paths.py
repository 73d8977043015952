"""Path checks that never raise: a file in a locked directory counts as missing."""

from __future__ import annotations

import os
from pathlib import Path


def absolute(path: Path) -> Path:
    """The absolute path without `..`; symbolic links stay."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - Path.absolute() keeps the `..`


def is_file(path: Path) -> bool:
    """Whether the path is a file that we can see."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file() raises below a directory that is locked


def is_folder(path: Path) -> bool:
    """Whether the path is a directory that we can see."""
    return os.path.isdir(path)  # noqa: PTH112 - as above


def exists(path: Path) -> bool:
    """Whether the path is anything that we can see."""
    return os.path.exists(path)  # noqa: PTH110 - as above
