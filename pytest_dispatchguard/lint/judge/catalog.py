"""What a run needs to know about the rules before it judges anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pytest_dispatchguard.model.findings import Price, RuleInfo


@dataclass(frozen=True, slots=True)
class Catalog:
    """Information about all rules, without their code."""

    infos: tuple[RuleInfo, ...]
    """By code, including the linter's own reports."""
    tokens: frozenset[str]
    """What the rules look for (see `rule.Look`)."""
    hot_roots: Mapping[str, tuple[str, ...]]
    """What packs know about libraries: hot methods by base class."""
    packs: tuple[str, ...]
    """The names of the entry points of all packs."""
    files: tuple[str, ...]
    """The source files of all packs."""
    stamp: str
    """Changes whenever one of these files does; findings are stored under it."""

    @property
    def prices(self) -> dict[str, Price]:
        """The prices of rules, by code, according to their packs."""
        return {info.code: info.price for info in self.infos if info.price is not None}


class Codes(Mapping[str, str]):
    """The names of rules by code. The catalog is loaded on first use."""

    def __init__(self, rules: Callable[[], Catalog]) -> None:
        self._rules = rules

    def _names(self) -> dict[str, str]:
        return {info.code: info.name for info in self._rules().infos}

    def __getitem__(self, code: str) -> str:
        return self._names()[code]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())
