"""What makes a cache stale: another version of the linter or of Python, or other installed packages."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from pytest_dispatchguard import __version__


def stamp(files: Iterable[str]) -> str:
    """Names, sizes and times of files as one word; a file that is gone counts as such."""
    parts = []
    for file in files:
        try:
            status = os.stat(file)  # noqa: PTH116 - hundreds of Paths cost more than the question
            parts.append(f"{file}:{status.st_size}:{status.st_mtime_ns}")
        except OSError:
            parts.append(f"{file}:gone")
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:24]


def fingerprint() -> str:
    """Changes when the linter itself does, when Python does, or when something is installed or removed:
    what a cache may be trusted for."""
    linter = Path(__file__).parent.parent
    own = sorted(
        os.path.join(folder, name)  # noqa: PTH118 - as in `stamp`
        for folder, _, names in os.walk(linter)
        for name in names
        if name.endswith(".py")
    )
    return f"{__version__}:{sys.version_info[:3]}:{stamp([*_installed(), *own])}"


def _installed() -> Iterable[str]:
    """Where something changes when a pack comes or goes."""
    for folder in sys.path:
        if folder.endswith(("site-packages", "dist-packages")):
            yield folder
            continue
        # Some other folder of sys.path, perhaps one that people work in: only what pip puts there counts.
        try:
            with os.scandir(folder or ".") as entries:
                yield from sorted(
                    e.path for e in entries if e.name.endswith((".dist-info", ".egg-info"))
                )
        except OSError:
            continue
