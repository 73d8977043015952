"""What makes a cache stale: another version of the linter or of Python, or other installed packages."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from pytest_dispatchguard import __version__


def stamp(files: Iterable[str]) -> str:
    """Names, sizes and times of files as one string; a missing file counts as such."""
    parts = []
    for file in files:
        try:
            status = os.stat(file)  # noqa: PTH116 - hundreds of Paths cost more than the question
            parts.append(f"{file}:{status.st_size}:{status.st_mtime_ns}")
        except OSError:
            parts.append(f"{file}:gone")
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:24]


def fingerprint() -> str:
    """A hash that changes with the linter's code, with Python, and when packages are installed or
    removed; the cache is only valid for one value."""
    linter = Path(__file__).parent.parent
    own = sorted(
        os.path.join(folder, name)  # noqa: PTH118 - as in `stamp`
        for folder, _, names in os.walk(linter)
        for name in names
        if name.endswith(".py")
    )
    return f"{__version__}:{sys.version_info[:3]}:{stamp([*_installed(), *own])}"


def _installed() -> Iterable[str]:
    """The paths that change when a rule pack is installed or removed."""
    for folder in sys.path:
        if folder.endswith(("site-packages", "dist-packages")):
            yield folder
            continue
        # Other directories of sys.path may be working directories: only what pip puts there counts.
        try:
            with os.scandir(folder or ".") as entries:
                yield from sorted(
                    e.path for e in entries if e.name.endswith((".dist-info", ".egg-info"))
                )
        except OSError:
            continue
