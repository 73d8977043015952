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
        "The other files are checked all the same.",
        fix="none",
        origin="dispatchguard",
    ),
    RuleInfo(
        code="DG002",
        name="unused-suppression",
        summary="A suppression comment silences nothing, or cannot be understood.",
        help="## What it does\n\nReports `# dispatchguard: ignore[...]`, `ignore-file[...]` and "
        "`# noqa: DG...` comments that no finding needs any more, and "
        "comments that cannot be followed: misspelt ones, and `hot` or `cold` where there is no definition."
        "\n\n## Fix safety\n\nSafe: the comment, "
        "or the unused codes in it, are removed.",
        fix="safe",
        origin="dispatchguard",
    ),
)
"""What the linter itself can report."""


@dataclass(frozen=True, slots=True)
class Packs:
    """All rules, ready to judge, and what packs know of libraries."""

    rules: tuple[Rule, ...]
    hot_roots: Mapping[str, tuple[str, ...]]
    specimens: tuple[Path, ...] = ()
    """Folders that hold a folder of specimens for each code."""
    tables: tuple[tuple[str, Path], ...] = ()
    """The files that prices are from, each with the name of its pack. Judging needs none."""


def installed() -> tuple[str, ...]:
    """What the entry points of all packs name, the built-in one first, each once."""
    from importlib.metadata import entry_points  # costs more than to import all rules

    found = {e.value for e in entry_points(group=GROUP)}
    return (_BUILTIN, *sorted(found - {_BUILTIN}))


def load(names: tuple[str, ...] | None = None) -> Packs:
    """Imports all packs. Whoever was told that none but the built-in one is `installed` says so: other names
    are asked for anew, since a file that tells them could have anything imported. A pack that cannot be
    loaded, or a rule without a proper code, is the user's to mend: one line says which."""
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
        ) as error:  # a pack that exits must not end the run as if clean
            said = " ".join(str(error).split())
            raise UserError(
                f"rule pack {name!r} cannot be loaded ({type(error).__name__}: {said}); "
                "mend it or uninstall it"
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
    """What an entry point names: a module, or an object in one. The extras that may follow, in brackets, are
    nothing to import."""
    module, _, attribute = re.sub(r"\s|\[.*", "", name).partition(":")
    return resolve_name(f"{module}:{attribute}")


def _asked(manager: pluggy.PluginManager, pack: object, hook: str) -> Iterable[Any]:
    """What one pack, and no other, answers to a hook; nothing where it does not implement it."""
    others = [plugin for plugin in manager.get_plugins() if plugin is not pack]
    answers: list[Any] = manager.subset_hook_caller(hook, remove_plugins=others)()
    return answers[0] if answers else ()


def _paths(manager: pluggy.PluginManager, pack: object, hook: str) -> list[Path]:
    """The path that one pack answers to a hook, if it does."""
    found = _asked(manager, pack, hook)
    if found == ():
        return []
    if not isinstance(found, str | Path):
        raise UserError(f"{hook} gives {found!r}; give a path")
    return [Path(found)]


def _method_names(base: object, methods: object) -> tuple[str, ...]:
    if isinstance(methods, str) or not isinstance(methods, Iterable):
        raise UserError(f"hot root {base!r} is given {methods!r}; write a list of method names")
    return tuple(methods)


def _check(cls: object, taken: Mapping[str, Rule]) -> None:
    if not (isinstance(cls, type) and issubclass(cls, Rule)):
        raise UserError(f"offers {cls!r}, which is no subclass of Rule")
    code = getattr(cls, "code", "")
    if not (isinstance(code, str) and _CODE.fullmatch(code)):
        raise UserError(
            f"rule {cls.__name__} has no proper code ({code!r}): two capital letters or more, three digits"
        )
    if code in taken or code in {i.code for i in OWN}:
        other = type(taken[code]).__name__ if code in taken else "the linter itself"
        raise UserError(f"rule {cls.__name__} has the code {code} of {other}; choose another")
    for attribute in ("name", "looks_for", "origin"):
        if not getattr(cls, attribute, None) and not (cls.running and attribute == "looks_for"):
            raise UserError(f"rule {cls.__name__} ({code}) does not state its {attribute!r}")
    for look in cls.looks():
        if not isinstance(look, Look):
            raise UserError(f"rule {cls.__name__} ({code}) looks for {look!r}, which is no Look")


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
    """The source files of modules and what lies beside and below them in their packages."""
    out: set[str] = set()
    for module in modules:
        file = getattr(sys.modules.get(module), "__file__", None)
        if file is None:
            continue
        path = Path(file)
        packaged = path.name == "__init__.py" or "." in module
        out.update(str(p) for p in (path.parent.rglob("*.py") if packaged else [path]))
    return out
