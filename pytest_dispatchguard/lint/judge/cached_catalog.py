"""The catalog of rules, stored in the cache, because importing the rules takes longer than most runs over
a project that has been checked before."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from pytest_dispatchguard.lint.judge.catalog import Catalog
from pytest_dispatchguard.lint.store.cache import Cache
from pytest_dispatchguard.lint.store.staleness import stamp
from pytest_dispatchguard.model.findings import Price, RuleInfo

_NAMESPACE, _KEY = "rules", "catalog"


def catalog(cache: Cache | None) -> Catalog:
    """The catalog: the stored one if it is still valid, otherwise made by importing all packs."""
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
