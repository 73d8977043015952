"""What a run needs to know of the rules when it does not judge, kept in the cache: importing the rules
costs more than most runs over a known project take."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pytest_dispatchguard import __version__
from pytest_dispatchguard.lint.store.cache import Cache
from pytest_dispatchguard.model.findings import Price, RuleInfo

_NAMESPACE, _KEY = "rules", "catalog"


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
    here = Path(__file__).parent
    own = sorted(e.path for e in os.scandir(here) if e.name.endswith(".py"))
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


def catalog(cache: Cache | None) -> Catalog:
    """The catalog: the kept one while it is true, else by importing all packs."""
    kept = {} if cache is None else cache.get_many(_NAMESPACE, [_KEY])
    if _KEY in kept:
        found = _unpacked(json.loads(kept[_KEY]))
        if found.stamp == stamp(found.files):
            return found
    from pytest_dispatchguard.lint.judge import packs  # imports every rule

    made = packs.catalog()
    if cache is not None:
        cache.put_many(_NAMESPACE, {_KEY: json.dumps(_packed(made))})
    return made


def _packed(made: Catalog) -> list[Any]:
    infos = [asdict(i) for i in made.infos]
    roots = {base: list(methods) for base, methods in made.hot_roots.items()}
    return [infos, sorted(made.tokens), roots, list(made.packs), list(made.files), made.stamp]


def _unpacked(row: list[Any]) -> Catalog:
    infos, tokens, roots, packs, files, stamped = row
    return Catalog(
        tuple(map(_info, infos)),
        frozenset(tokens),
        {base: tuple(methods) for base, methods in roots.items()},
        tuple(packs),
        tuple(files),
        stamped,
    )


def _info(row: dict[str, Any]) -> RuleInfo:
    return RuleInfo(**{**row, "price": _price(row["price"])})


def _price(row: dict[str, Any] | None) -> Price | None:
    return None if row is None else Price(**{**row, "dry": _price(row["dry"])})
