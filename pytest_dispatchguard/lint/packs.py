"""The rule packs: the built-in one and those of third parties, found by entry point."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

import pluggy

from pytest_dispatchguard import __version__, hookspecs
from pytest_dispatchguard.lint.rule import Rule
from pytest_dispatchguard.model import RuleInfo, UserError

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
        help="## What it does\n\nReports `# dispatchguard: ignore[...]`, `ignore-file[...]` and `# noqa: DG...` "
        "comments that no finding needs any more.\n\n## Fix safety\n\nSafe: the comment, or the unused codes in it, "
        "are removed.",
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


def _entries() -> list[EntryPoint]:
    """The entry points of all packs, the built-in one first, each once."""
    found = {e.value: e for e in entry_points(group=GROUP)}
    builtin = found.pop(_BUILTIN, None) or EntryPoint("builtin", _BUILTIN, GROUP)
    return [builtin, *(found[v] for v in sorted(found))]


@lru_cache(maxsize=1)
def load() -> Packs:
    """Imports all packs. A pack that cannot be loaded, or a rule without a proper code, is the user's to
    mend: one line says which."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    for entry in _entries():
        try:
            manager.register(entry.load(), name=entry.value)
        except Exception as error:  # noqa: BLE001 - whatever a pack raises, the user is told which it is
            raise UserError(
                f"rule pack {entry.value!r} cannot be loaded ({type(error).__name__}: {error}); "
                "mend it or uninstall it"
            ) from error
    rules: dict[str, Rule] = {}
    for group in reversed(manager.hook.dispatchguard_rules()):
        for cls in group:
            _check(cls, rules)
            rules[cls.code] = cls()
    roots: dict[str, tuple[str, ...]] = {}
    for mapping in manager.hook.dispatchguard_hot_roots():
        for base, methods in mapping.items():
            roots[base] = (*roots.get(base, ()), *methods)
    return Packs(tuple(rules[c] for c in sorted(rules)), roots)


def _check(cls: type[Rule], taken: Mapping[str, Rule]) -> None:
    code = getattr(cls, "code", "")
    if not _CODE.fullmatch(code):
        raise UserError(
            f"rule {cls.__name__} has no proper code ({code!r}): two capital letters or more, three digits"
        )
    if code in taken or code in {i.code for i in OWN}:
        other = type(taken[code]).__name__ if code in taken else "the linter itself"
        raise UserError(f"rule {cls.__name__} has the code {code} of {other}; choose another")
    for attribute in ("name", "looks_for", "origin"):
        if not getattr(cls, attribute, None):
            raise UserError(f"rule {cls.__name__} ({code}) does not state its {attribute!r}")


def hot_roots() -> Mapping[str, tuple[str, ...]]:
    """What third-party packs know of hot methods; the built-in pack adds none, so that alone it is not
    imported for this."""
    return load().hot_roots if len(_entries()) > 1 else {}


@dataclass(frozen=True, slots=True)
class Catalog:
    """What a run needs to know of the rules when it does not judge: importing them costs more than most
    runs over a known project take."""

    infos: tuple[RuleInfo, ...]
    """By code, the linter's own reports among them."""
    tokens: frozenset[str]
    """What the rules look for (see `rule.Look`)."""


def catalog() -> Catalog:
    """The catalog of all rules, by importing them."""
    rules = load().rules
    infos = sorted((*OWN, *(r.info() for r in rules)), key=lambda i: i.code)
    return Catalog(
        tuple(infos), frozenset().union(*(look.tokens for r in rules for look in r.looks()))
    )


def fingerprint() -> str:
    """Changes whenever a pack or the linter itself does: what a cache may be trusted for."""
    parts: list[str] = [__version__, sys.version.split()[0]]
    for entry in _entries():
        parts.append(f"{entry.value}={entry.dist.version if entry.dist else ''}")
        parts.extend(_stamps(entry.value.partition(":")[0]))
    parts.extend(_stamps("pytest_dispatchguard.lint"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


def _stamps(module: str) -> Iterable[str]:
    """Size and time of a module's files, without importing it."""
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return
    if spec is None or spec.origin is None:
        return
    origin = Path(spec.origin)
    files = sorted(origin.parent.glob("*.py")) if origin.name == "__init__.py" else [origin]
    for file in files:
        status = file.stat()
        yield f"{file.name}:{status.st_size}:{status.st_mtime_ns}"


def pack_catalog(catalog: Catalog) -> str:
    """A catalog as text for the cache."""
    return json.dumps([[asdict(i) for i in catalog.infos], sorted(catalog.tokens)])


def unpack_catalog(text: str) -> Catalog:
    """A catalog from the cache."""
    infos, tokens = json.loads(text)
    return Catalog(tuple(RuleInfo(**i) for i in infos), frozenset(tokens))
