"""The built-in rule pack: one folder a family, offered by the same hook as any other pack."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from pytest_dispatchguard import Rule, hookimpl

MODULES = (
    "trees.one_tensor",
    "trees.needless",
    "contexts.from_contextlib",
    "contexts.torch_modes",
    "closures.functions",
    "closures.wrappers",
    "closures.classes",
    "syncs.truth.branches",
    "syncs.truth.checks",
    "syncs.truth.loops",
    "syncs.truth.order",
    "syncs.truth.clamps",
    "syncs.truth.comparisons",
    "syncs.reads.values",
    "syncs.reads.repeated",
    "syncs.reads.iteration",
    "syncs.reads.element_loops",
    "syncs.reads.list_indices",
    "syncs.reads.rows",
    "syncs.shapes.nonzero",
    "syncs.shapes.mask_reads",
    "syncs.shapes.mask_writes",
    "syncs.shapes.result_sizes",
    "syncs.shapes.tensors_as_numbers",
    "syncs.barriers",
    "syncs.hidden",
    "syncs.across_devices",
    "allocations.scalars",
    "allocations.constants.built",
    "allocations.moves",
    "allocations.casts",
    "allocations.computed",
    "allocations.twice",
    "allocations.unused",
    "allocations.loops.parameters",
    "allocations.batches",
    "allocations.collectives",
    "allocations.loops.growth",
    "allocations.loops.repeated",
    "allocations.conversions",
    "allocations.host_data",
    "python.lookups",
    "python.messages",
    "python.copies",
    "python.module_attributes",
    "python.module_walks",
    "python.checks",
    "python.einops_calls",
    "python.defaults",
    "python.files",
    "python.settings",
    "compile.ctypes_calls",
    "compile.wrappers",
    "compile.modules",
    "compile.guards",
    "compile.tensor_subclasses",
    "compile.running",
)
"""Modules of this package that define rules."""


def rule_classes(module: str) -> list[type[Rule]]:
    """The rules that a module defines."""
    name = f"{__name__}.{module}"
    values = vars(import_module(name)).values()
    own = (v for v in values if isinstance(v, type) and v.__module__ == name)
    return [cls for cls in own if issubclass(cls, Rule) and "code" in vars(cls)]


@hookimpl
def dispatchguard_rules() -> Iterable[type[Rule]]:
    """All rules of the pack."""
    return sorted((c for m in MODULES for c in rule_classes(m)), key=lambda c: c.code)


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
