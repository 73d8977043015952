"""The rule packs: the built-in one and those of third parties, found by entry point."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pluggy

from pytest_dispatchguard import hookspecs, prices
from pytest_dispatchguard.lint.judge.catalog import Catalog
from pytest_dispatchguard.lint.judge.rule import Look, Rule
from pytest_dispatchguard.lint.store.staleness import stamp
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.findings import Price, RuleInfo

GROUP = "dispatchguard"
_BUILTIN = "dispatchguard_rules"
_CODE = re.compile(r"[A-Z]{2,}\d{3}")

OWN = (
    RuleInfo(
        code="DG001",
        name="unparsable-file",
        summary="A file cannot be read or parsed, so nothing in it was checked.",
        help="## What it does\n\nReports a file that is not valid Python, or cannot be decoded or opened. "
        "The other files are still checked.",
        fix="none",
        origin="dispatchguard",
    ),
    RuleInfo(
        code="DG002",
        name="unused-suppression",
        summary="A suppression comment suppresses nothing, or cannot be understood.",
        help="## What it does\n\nReports `# dispatchguard: ignore[...]`, `ignore-file[...]` and "
        "`# noqa: DG...` comments that no longer suppress anything, and comments that cannot be "
        "understood: misspelled ones, and `hot` or `cold` without a definition."
        "\n\n## Fix safety\n\nSafe: the comment, "
        "or the unused codes in it, are removed.",
        fix="safe",
        origin="dispatchguard",
    ),
)
"""The linter's own reports."""


@dataclass(frozen=True, slots=True)
class Packs:
    """All rules, ready to judge, and what packs know about libraries."""

    rules: tuple[Rule, ...]
    hot_roots: Mapping[str, tuple[str, ...]]
    specimens: tuple[Path, ...] = ()
    """Directories with a directory of specimens for each code."""
    tables: tuple[tuple[str, Path], ...] = ()
    """The files that the prices come from, each with the name of its pack. Judging needs none."""


def installed() -> tuple[str, ...]:
    """The entry points of all packs, the built-in one first, without duplicates."""
    from importlib.metadata import entry_points  # costs more than to import all rules

    found = {e.value for e in entry_points(group=GROUP)}
    return (_BUILTIN, *sorted(found - {_BUILTIN}))


def load(names: tuple[str, ...] | None = None) -> Packs:
    """Import all packs.

    If the caller already knows that only the built-in pack is `installed`, it passes the names; any other
    names are looked up again, because a file that lists them could otherwise have anything imported. A
    pack that cannot be loaded, or a rule without a valid code, is an error for the user, in one line.
    """
    return _loaded(names if names == (_BUILTIN,) else installed())


@lru_cache(maxsize=1)
def _loaded(names: tuple[str, ...]) -> Packs:
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    rules: dict[str, Rule] = {}
    roots: dict[str, tuple[str, ...]] = {}
    specimens: list[Path] = []
    tables: list[tuple[str, Path]] = []
    for name in names:
        try:
            pack = _named(name)
            manager.register(pack, name=name)
            manager.check_pending()
            for cls in _asked(manager, pack, "dispatchguard_rules"):
                _check(cls, rules)
                rules[cls.code] = cls()
            for base, methods in dict(_asked(manager, pack, "dispatchguard_hot_roots")).items():
                roots[base] = (*roots.get(base, ()), *_method_names(base, methods))
            specimens += _paths(manager, pack, "dispatchguard_specimens")
            tables += [(name, file) for file in _paths(manager, pack, "dispatchguard_prices")]
        except UserError as error:
            raise UserError(f"rule pack {name!r}: {error}") from None
        except (
            Exception,
            SystemExit,
        ) as error:  # a pack that calls sys.exit must not make the run look clean
            said = " ".join(str(error).split())
            raise UserError(
                f"rule pack {name!r} cannot be loaded ({type(error).__name__}: {said}); repair or "
                "uninstall it"
            ) from error
    return Packs(tuple(rules[c] for c in sorted(rules)), roots, tuple(specimens), tuple(tables))


def _prices(tables: Iterable[tuple[str, Path]]) -> dict[str, Price]:
    """What the patterns of rules cost, by code."""
    found: dict[str, Price] = {}
    for name, file in tables:
        try:
            table = prices.load(file)
        except UserError as error:
            raise UserError(f"rule pack {name!r}: {error}") from None
        found |= {} if table is None else table.prices()
    return found


def _named(name: str) -> Any:
    """The object that an entry point names: a module, or an attribute of one. Extras in brackets are
    ignored."""
    module, _, attribute = re.sub(r"\s|\[.*", "", name).partition(":")
    return resolve_name(f"{module}:{attribute}")


def _asked(manager: pluggy.PluginManager, pack: object, hook: str) -> Iterable[Any]:
    """What one pack, and no other, returns from a hook; nothing if it does not implement it."""
    others = [plugin for plugin in manager.get_plugins() if plugin is not pack]
    answers: list[Any] = manager.subset_hook_caller(hook, remove_plugins=others)()
    return answers[0] if answers else ()


def _paths(manager: pluggy.PluginManager, pack: object, hook: str) -> list[Path]:
    """The path that one pack returns from a hook, if it does."""
    found = _asked(manager, pack, hook)
    if found == ():
        return []
    if not isinstance(found, str | Path):
        raise UserError(f"{hook} returned {found!r}; return a path")
    return [Path(found)]


def _method_names(base: object, methods: object) -> tuple[str, ...]:
    if isinstance(methods, str) or not isinstance(methods, Iterable):
        raise UserError(f"hot root {base!r} has {methods!r}; write a list of method names")
    return tuple(methods)


def _check(cls: object, taken: Mapping[str, Rule]) -> None:
    if not (isinstance(cls, type) and issubclass(cls, Rule)):
        raise UserError(f"offers {cls!r}, which is not a subclass of Rule")
    code = getattr(cls, "code", "")
    if not (isinstance(code, str) and _CODE.fullmatch(code)):
        raise UserError(
            f"rule {cls.__name__} has no valid code ({code!r}): two or more capital letters, then "
            "three digits"
        )
    if code in taken or code in {i.code for i in OWN}:
        other = type(taken[code]).__name__ if code in taken else "the linter itself"
        raise UserError(f"rule {cls.__name__} has the code {code} of {other}; choose another")
    for attribute in ("name", "looks_for", "origin"):
        if not getattr(cls, attribute, None) and not (cls.running and attribute == "looks_for"):
            raise UserError(f"rule {cls.__name__} ({code}) does not set {attribute!r}")
    for look in cls.looks():
        if not isinstance(look, Look):
            raise UserError(f"rule {cls.__name__} ({code}) looks for {look!r}, which is not a Look")


def catalog() -> Catalog:
    """The catalog of all rules, by importing them."""
    names = installed()
    found = load(names)
    priced = _prices(found.tables)
    told = (replace(r.info(), price=priced.get(r.code)) for r in found.rules)
    infos = sorted((*OWN, *told), key=lambda i: i.code)
    tokens = frozenset[str]().union(*(look.tokens for r in found.rules for look in r.looks()))
    files = tuple(sorted(_files({name.partition(":")[0] for name in names} | _homes(found))))
    files = (*files, *(str(file) for _, file in found.tables))
    return Catalog(tuple(infos), tokens, found.hot_roots, names, files, stamp(files))


def _homes(found: Packs) -> set[str]:
    return {type(rule).__module__ for rule in found.rules}


def _files(modules: Iterable[str]) -> set[str]:
    """The source files of modules, with those beside and below them in their packages."""
    out: set[str] = set()
    for module in modules:
        file = getattr(sys.modules.get(module), "__file__", None)
        if file is None:
            continue
        path = Path(file)
        packaged = path.name == "__init__.py" or "." in module
        out.update(str(p) for p in (path.parent.rglob("*.py") if packaged else [path]))
    return out
