"""What a run needs to know about the rules before it has to judge anything."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_dispatchguard import __version__
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
