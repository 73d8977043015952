"""Which loaded modules come from the work tree: a worker of another revision must not measure those."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path


def strays_here() -> list[str]:
    """Modules of the work tree, in a worker of another revision: it would measure the wrong code."""
    top = os.environ.get("DISPATCHGUARD_NOT_FROM")
    if top is None:
        return []
    files = ((name, getattr(module, "__file__", None)) for name, module in sys.modules.items())
    return strays(Path(top), [(name, file) for name, file in files if file])


def strays(top: Path, files: Iterable[tuple[str, str]]) -> list[str]:
    """Modules that came from the work tree: names of those whose file lies in it."""
    found = []
    for name, file in files:
        path = Path(file).resolve()
        if path.is_relative_to(top) and not is_installed(path, top):
            found.append(name)
    return sorted(found)


def is_installed(path: Path, top: Path) -> bool:
    """Whether a path inside the project belongs to an environment there, not to the project's sources."""
    if "site-packages" in path.parts:
        return True
    inner = path.relative_to(top).parts
    return any((top.joinpath(*inner[: i + 1]) / "pyvenv.cfg").exists() for i in range(len(inner)))
