"""Which files of a project may mean something by a name, told from their facts as text: in doubt they do."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import cached_property

from pytest_dispatchguard.lint.callgraph.build import packages_of
from pytest_dispatchguard.lint.facts import FileFacts
from pytest_dispatchguard.lint.incremental.changes import roots_in

Rows = Mapping[str, str]
"""The facts of files as JSON, by path."""


class Mentions:
    """Answers who mentions what, as it was before a change."""

    def __init__(self, read: Callable[[], Rows], modules: Collection[str]) -> None:
        self._read = read
        self._modules = modules

    @cached_property
    def _rows(self) -> Rows:
        return self._read()

    @cached_property
    def _packages(self) -> frozenset[str]:
        return packages_of(self._modules)

    def member(self, name: str) -> set[str]:
        """The files that mention something of that name in something else: ``x.name``, ``module.name``."""
        if not name.isascii():
            return set(self._rows)
        last = re.compile(rf"\.{name}\b")
        return {rel for rel, row in self._rows.items() if f".{name}" in row and last.search(row)}

    def starred(self, name: str) -> set[str]:
        """The files that mention a name and import all that some module has."""
        return {rel for rel, row in self._rows.items() if '["*",' in row and name in row}

    def renamed(self, name: str) -> bool:
        """Whether something of that name is called something else somewhere."""
        imported = rf'\["(?!{name}")\w+","[^"]*\b{name}"\]'
        assigned = rf'"name:(?:[^"]*\.)?{name}"(?!,\{{)'  # what a function looks like ends so, too
        alias = re.compile(f"{imported}|{assigned}")
        return any(name in row and alias.search(row) for row in self._rows.values())

    def is_asked_for(self, rel: str, facts: FileFacts, module: str, name: str) -> bool:
        """Whether anybody may mean, by what he writes, that a module has such a name, which it has not;
        `facts` are those of the module's file."""
        if not name.isascii() or f"{module}.{name}" in self._packages or name in roots_in(facts):
            return True
        last = module.rpartition(".")[2]
        for path, row in self._rows.items():
            if path == rel or name not in row:
                continue
            if f"{last}.{name}" in row or (f'"{module}"' in row and f".{name}" in row):
                return True
        # Who imports all of it, or all of somebody who does, need not mention it.
        return any(f'["*","{module}"]' in row for row in self._rows.values())
