"""The project being linted, as far as rules need to know it, and whether a rule for some releases applies
to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet


@dataclass(frozen=True, slots=True)
class Target:
    """The project being linted, as far as rules need to know it."""

    tensor_types: tuple[str, ...] = ()
    tree_modules: tuple[str, ...] = ()
    python: str = ""
    torch: str = ""


_PYTHONS = tuple(f"3.{n}" for n in range(8, 16))
_TORCHES = tuple([f"1.{n}" for n in range(8, 14)] + [f"2.{n}" for n in range(20)])


def overlaps(project: str, rule: str, versions: Sequence[str] = _PYTHONS) -> bool:
    """Whether some release satisfies both what the project allows and what a rule is about."""
    if not (project and rule):
        return True
    mine, wanted = _specifiers(project), _specifiers(rule)
    return any(mine.contains(v) and wanted.contains(v) for v in versions)


def applies(target: Target, python: str, torch: str) -> bool:
    """Whether a rule that depends on certain releases applies to the linted project."""
    return overlaps(target.python, python, _PYTHONS) and overlaps(target.torch, torch, _TORCHES)


def is_needed(project: str, torch: str) -> bool:
    """Whether every torch release that the project allows satisfies a specifier."""
    mine, wanted = _specifiers(project), _specifiers(torch)
    return all(wanted.contains(v) for v in _TORCHES if mine.contains(v))


def _specifiers(text: str) -> SpecifierSet:
    """The version specifiers of a project; an invalid one allows everything."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # imported only for judging

    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        return SpecifierSet()
