"""Which packages of a project get installed, so that other projects can build on them: those of a
library."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

APART = re.compile(
    r"(?:^|/)(?:(?:\w+_)?examples?|scripts?|tutorials?|recipes|projects|research|notebooks|tools|benchmarks?|"
    r"_?third_?party|_?3rd_?party|_?vendor(?:ed)?|archived?|attic|obsolete|unused|backups?|experiments?|samples?|demos?|datasets?|models?/hub|io|cli|"
    r"entry_?points?|"
    r"checkpoint\w*|convert\w*|loggers?|plot\w*|visuali[sz]\w*)/|"
    r"(?:^|/)(?:init|initializers?|io|checkpoint\w*|conversion|serialization|weights?|converters?|"
    r"\w+_(?:legacy|old|backup|deprecated)|loading|saving|logging|debug\w*|plot\w*|profil\w*|summar\w*|version|config\w*|\w*(?:random|dummy|fake|synthetic)_data)\.py$"
)
"""Folders with code that nobody calls in a step."""


def made_to_be_installed(packages: Iterable[str], owners: Collection[str]) -> frozenset[str]:
    """The top-level packages, as folders, that get installed. `owners` are the folders with a `setup.py` or
    a `pyproject.toml` that names a project."""
    every = frozenset(packages)
    outermost = {folder for folder in every if folder.rpartition("/")[0] not in every}
    return frozenset(
        folder
        for folder in outermost
        if not APART.search(f"{folder}/") and any(above in owners for above in _above(folder))
    )


def _above(folder: str) -> list[str]:
    parts = folder.split("/")
    return ["/".join(parts[:n]) for n in range(len(parts))]
