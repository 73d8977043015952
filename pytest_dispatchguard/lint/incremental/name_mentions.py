"""Which files of a project may refer to a name, from the text of their facts. In doubt, a file counts."""

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
    """Finds the files that mention a name, before a change."""

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
        """The files that mention the name as a member: ``x.name``, ``module.name``."""
        if not name.isascii():
            return set(self._rows)
        last = re.compile(rf"\.{name}\b")
        return {rel for rel, row in self._rows.items() if f".{name}" in row and last.search(row)}

    def starred(self, name: str) -> set[str]:
        """The files that mention a name and have a star import."""
        return {rel for rel, row in self._rows.items() if '["*",' in row and name in row}

    def renamed(self, name: str) -> bool:
        """Whether something of that name is imported or assigned under another name anywhere."""
        imported = rf'\["(?!{name}")\w+","[^"]*\b{name}"\]'
        assigned = (
            rf'"name:(?:[^"]*\.)?{name}"(?!,\{{)'  # the facts of a function end in the same way
        )
        alias = re.compile(f"{imported}|{assigned}")
        return any(name in row and alias.search(row) for row in self._rows.values())

    def is_asked_for(self, rel: str, facts: FileFacts, module: str, name: str) -> bool:
        """Whether any code may refer to a name that a module did not have. `facts` are those of the
        module's file."""
        if not name.isascii() or f"{module}.{name}" in self._packages or name in roots_in(facts):
            return True
        last = module.rpartition(".")[2]
        for path, row in self._rows.items():
            if path == rel or name not in row:
                continue
            if f"{last}.{name}" in row or (f'"{module}"' in row and f".{name}" in row):
                return True
        # A star import, direct or through another module, need not mention the name.
        return any(f'["*","{module}"]' in row for row in self._rows.values())
