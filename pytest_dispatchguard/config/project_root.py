"""Finds the project root, and the projects nested in it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.config.toml_file import has_own_table
from pytest_dispatchguard.paths import exists, is_file, is_folder

MARKERS = ("pyproject.toml", "setup.py", "setup.cfg", ".git")
"""Any of these makes a folder a project root."""
LIBRARY_FOLDERS = ("site-packages", "dist-packages")
"""Folders of installed packages, which do not belong to the project around them."""
ALWAYS_EXCLUDED = (
    ".git",
    ".hg",
    ".svn",
    ".venv",
    ".tox",
    ".nox",
    "node_modules",
    "__pycache__",
    "__pypackages__",
    "*.egg-info",
    ".ipynb_checkpoints",
    ".eggs",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".dispatchguard",
    *LIBRARY_FOLDERS,
)
"""Folders below the root that are never searched."""
EXCLUDED_UNLESS_PACKAGE = ("venv", "env", "build", "dist")
"""Folders below the root that are searched only if they are packages: `env/__init__.py` is code."""


def find_root(paths: Sequence[Path], config_file: Path | None = None) -> Path:
    """The root of the project that contains all of the (absolute) paths.

    This is the nearest folder whose pyproject.toml has a `[tool.dispatchguard]` (so that a file of a
    monorepo is checked in the same way alone as with the whole repository); else the git work tree; else the
    nearest folder with any marker; else the folder of the ``--config`` file, if it contains the paths; else
    the folder above the outermost package, or the folder itself.
    """
    common = Path(os.path.commonpath([p if is_folder(p) else p.parent for p in paths]))
    first = None
    for folder in _own_ancestors(common):
        pyproject = folder / "pyproject.toml"
        if is_file(pyproject) and has_own_table(pyproject):
            return folder
        if exists(folder / ".git"):
            return folder
        if first is None and _has_marker(folder):
            first = folder
    if first is not None:
        return first
    if config_file is not None and config_file.parent in (common, *common.parents):
        return config_file.parent
    package = top_package(common)
    return common if package is None else package.parent


def _own_ancestors(folder: Path) -> Iterator[Path]:
    """The folder and its parents, up to a folder of installed packages."""
    for candidate in (folder, *folder.parents):
        if candidate.name in LIBRARY_FOLDERS:
            return
        yield candidate


def is_project(config: Config) -> bool:
    """Whether the root is a project, all of which is context for hotness, or just any folder."""
    if config.file is not None and config.file.parent == config.root:
        return True
    return _has_marker(config.root)


def _has_marker(folder: Path) -> bool:
    return any(exists(folder / marker) for marker in MARKERS)


def names_project(folder: Path) -> bool:
    """Whether the folder holds installed packages or a project that can be installed."""
    if folder.name in LIBRARY_FOLDERS or is_file(folder / "setup.py"):
        return True
    for name, words in (("pyproject.toml", _NAMES_PROJECT), ("setup.cfg", _HAS_METADATA)):
        with suppress(OSError):
            if words.search((folder / name).read_bytes()):
                return True
    return False


_NAMES_PROJECT = re.compile(
    rb"^\s*\[(?:project|build-system|tool\.poetry|tool\.flit)", re.MULTILINE
)
_HAS_METADATA = re.compile(rb"^\s*\[(?:metadata|options)\]", re.MULTILINE)


def nested_roots(root: Path) -> tuple[str, ...]:
    """The import roots of the projects nested in a repository: their folders, and `src` inside them."""
    if not exists(root / ".git"):
        return ()
    found: list[str] = []
    waiting = [(root, "", 0)]
    while waiting:
        folder, rel, depth = waiting.pop()
        with suppress(OSError), os.scandir(folder) as entries:
            names = {}
            for entry in entries:
                names[entry.name] = entry.is_dir(follow_symlinks=False)
            # A package with a `setup.py` of its own, for its extension, is imported as any package.
            is_package = "__init__.py" in names
            if rel and not is_package and any(name in names for name in MARKERS[:3]):
                found.append(rel)
                if names.get("src") and not is_file(folder / "src" / "__init__.py"):
                    found.append(f"{rel}/src")
            if depth >= _DEEPEST_PROJECT or is_package:
                continue
            waiting.extend(
                (folder / name, f"{rel}/{name}".lstrip("/"), depth + 1)
                for name, is_folder_ in names.items()
                if is_folder_ and not name.startswith(".") and name not in _NEVER_PROJECTS
            )
    return tuple(sorted(found))


_DEEPEST_PROJECT = 5
"""Levels below the root that are searched for nested projects."""
_NEVER_PROJECTS = frozenset({*ALWAYS_EXCLUDED, *EXCLUDED_UNLESS_PACKAGE})


def top_package(path: Path) -> Path | None:
    """The outermost package that contains a file or folder; None outside packages."""
    folder = path if is_folder(path) else path.parent
    top = None
    while is_file(folder / "__init__.py") and folder.parent != folder:
        top, folder = folder, folder.parent
    return top
