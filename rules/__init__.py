"""The built-in rule pack: one module a family, offered by the same hook that any other pack uses."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from pytest_dispatchguard import Rule, hookimpl

FAMILIES = (
    "trees",
    "contexts",
    "closures",
    "syncs_barriers",
    "syncs_reads",
    "syncs_repeats",
    "syncs_truth",
    "syncs_shapes",
    "allocations",
    "python_cost",
    "compile",
    "compile_running",
)
"""Modules of this package that define rules."""


def rule_classes(family: str) -> list[type[Rule]]:
    """The rules that a family's module defines, in the order of their codes."""
    module = import_module(f"{__name__}.{family}")
    own = (
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Rule)
        and value.__module__ == module.__name__
    )
    return sorted((cls for cls in own if "code" in vars(cls)), key=lambda cls: cls.code)


@hookimpl
def dispatchguard_rules() -> Iterable[type[Rule]]:
    """All rules of the pack."""
    return [cls for family in FAMILIES for cls in rule_classes(family)]
