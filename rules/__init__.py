"""The built-in rule pack: one module a family, offered by the same hook that any other pack uses."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

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
    "syncs_counts",
    "syncs_hidden",
    "allocations",
    "python_cost",
    "python_rebuilt",
    "python_checks",
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


@hookimpl
def dispatchguard_specimens() -> Path:
    """The specimens: beside the rules where these are installed, in `fixtures/` of a checkout."""
    here = Path(__file__).resolve()
    installed = here.with_name("specimens")
    return installed if installed.is_dir() else here.parents[1] / "fixtures"


@hookimpl
def dispatchguard_prices() -> Path:
    """Prices on the machine that the table names."""
    return Path(__file__).with_name("prices.json")
