"""Finds loaded modules that come from the work tree, which a worker of another revision must not measure."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

_KNOWN: set[tuple[str, str]] = set()
"""Modules, and their files, that were found to be no strays; a forked process knows them, too."""


def strays_here() -> list[str]:
    """The modules of the work tree that this worker of another revision has loaded."""
    top = os.environ.get("DISPATCHGUARD_NOT_FROM")
    if top is None:
        return []
    loaded = ((name, getattr(module, "__file__", None)) for name, module in sys.modules.items())
    fresh = {(name, str(file)) for name, file in loaded if file} - _KNOWN
    found = strays(Path(top), fresh)
    if not found:
        _KNOWN.update(fresh)
    return found


def strays(top: Path, files: Iterable[tuple[str, str]]) -> list[str]:
    """The names of modules whose file is in the work tree."""
    found = []
    for name, file in files:
        path = Path(file).resolve()
        if path.is_relative_to(top) and not is_installed(path, top):
            found.append(name)
    return sorted(found)


def is_installed(path: Path, top: Path) -> bool:
    """Whether a path in the project belongs to a virtual environment, not to its sources."""
    if "site-packages" in path.parts:
        return True
    inner = path.relative_to(top).parts
    return any((top.joinpath(*inner[: i + 1]) / "pyvenv.cfg").exists() for i in range(len(inner)))
