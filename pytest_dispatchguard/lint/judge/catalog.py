"""What a run needs to know about the rules before it has to judge anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pytest_dispatchguard.model.findings import Price, RuleInfo


@dataclass(frozen=True, slots=True)
class Catalog:
    """All rules, told without their code."""

    infos: tuple[RuleInfo, ...]
    """By code, the linter's own reports among them."""
    tokens: frozenset[str]
    """What the rules look for (see `rule.Look`)."""
    hot_roots: Mapping[str, tuple[str, ...]]
    """What packs know of libraries: hot methods by base class."""
    packs: tuple[str, ...]
    """What the entry points of all packs name."""
    files: tuple[str, ...]
    """The source files of all packs."""
    stamp: str
    """Changes when one of them does: findings are kept under it."""

    @property
    def prices(self) -> dict[str, Price]:
        """What the patterns of rules cost, by code, as their packs say."""
        return {info.code: info.price for info in self.infos if info.price is not None}


class Codes(Mapping[str, str]):
    """The names of rules by code. The catalog is made when the first question is asked."""

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
