"""The settings of one run, as a frozen Config, and the rules and files they select."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_dispatchguard.config.globs import glob_pattern
from pytest_dispatchguard.config.settings import ALL

DEFAULT_SRC = (".", "src")
UNPARSABLE = "DG001"
"""The code for files that cannot be parsed."""


@dataclass(frozen=True, slots=True)
class Config:
    """Every setting of one run; nothing reads settings from anywhere else."""

    root: Path
    """The project root: reported paths and globs are relative to it."""
    file: Path | None = None
    """The pyproject.toml, or ``--config`` file, that the settings came from."""
    select: tuple[str, ...] | None = None
    """Codes and prefixes of the rules to run; None for the rules of every pack."""
    extend_select: tuple[str, ...] = ()
    """Codes and prefixes of further rules, including those off by default."""
    ignore: tuple[str, ...] = ()
    """Codes and prefixes of rules to skip."""
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Globs, as in a .gitignore, and the codes and prefixes to skip in matching files."""
    exclude: tuple[str, ...] = ()
    """Globs of files to leave out, besides ALWAYS_EXCLUDED, EXCLUDED_UNLESS_PACKAGE and what git ignores."""
    hot_roots: tuple[str, ...] = ()
    """Patterns of functions, classes, modules (`pkg.ops.*`) and decorators (`@pkg.hot`)."""
    cold: tuple[str, ...] = ()
    """Patterns, as in hot_roots, of what is never hot."""
    src: tuple[str, ...] = DEFAULT_SRC
    """Folders that imports start from, relative to the root."""
    tensor_types: tuple[str, ...] = ()
    """Dotted names of additional tensor classes."""
    tree_modules: tuple[str, ...] = ()
    """Dotted names of additional modules with a tree API."""
    baseline: Path | None = None
    """The baseline file."""
    pedantic: bool = False
    """Whether uncertain findings are shown."""
    notes: bool | None = None
    """Whether all notes are shown, or none; None for the most expensive ones."""
    strict: bool = False
    """Whether notes fail a run."""
    budgets: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """Globs of test IDs, and the limits of these tests; the pytest plugin reads them."""
    trace: tuple[tuple[str, float], ...] = ()
    """Limits for traces by name; the pytest plugin reads them."""
    requires_python: str | None = None
    """`requires-python` of the project."""
    torch_requirement: str | None = None
    """The version specifier of torch in the project's dependencies; empty if torch has none, None if it is no
    dependency."""
    nested: tuple[str, ...] = ()
    """Folders of nested projects, from which their own packages are imported."""

    @property
    def import_roots(self) -> tuple[str, ...]:
        """The folders from which modules are imported."""
        return (*self.src, *self.nested)


def selected(config: Config, code: str, default: bool = True) -> bool:
    """Whether the settings enable a rule.

    The longest prefix that matches decides between `select`/`extend-select` and `ignore`; ALL is the
    shortest, and at equal length `ignore` wins. A rule that is off by default runs only if either selects
    it by its full code or by ALL, or `extend-select` by at least its family (`DG6`): `select = ["DG6"]`
    narrows down what runs, so it enables nothing more. DG001 runs unless `ignore` matches it.
    """
    chosen = config.select or ()
    wanted = longest_match(code, chosen + config.extend_select)
    unwanted = longest_match(code, config.ignore)
    if code == UNPARSABLE and unwanted == 0:
        # A file that was not checked must not look clean.
        return True
    if wanted == 0 and (config.select is not None or unwanted):
        return False
    if wanted and unwanted >= wanted:
        return False
    return (
        default
        or code in chosen
        or ALL in (*chosen, *config.extend_select)
        or any(code.startswith(prefix) and prefix[-1:].isdigit() for prefix in config.extend_select)
    )


def longest_match(code: str, prefixes: Iterable[str]) -> float:
    """The length of the longest prefix that matches a code; 0 if none does. ALL is shorter than any other."""
    return max((_reach(code, prefix) for prefix in prefixes), default=0)


def _reach(code: str, prefix: str) -> float:
    return 0.5 if prefix == ALL else len(prefix) * code.startswith(prefix)


def ignored_in_file(config: Config, rel_path: str, code: str) -> bool:
    """Whether `per-file-ignores` skips a code in a file."""
    return any(
        longest_match(code, codes) > 0 and glob_pattern(glob).fullmatch(rel_path)
        for glob, codes in config.per_file_ignores
    )
