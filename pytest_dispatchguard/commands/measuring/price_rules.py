"""Does the work of `dispatchguard price`: measures the specimens of rules, and stores the prices."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from pytest_dispatchguard import prices, project_folder
from pytest_dispatchguard.config.project_root import find_root
from pytest_dispatchguard.lint.judge import packs
from pytest_dispatchguard.lint.judge.rule import Rule
from pytest_dispatchguard.lint.judge.target import Target, applies
from pytest_dispatchguard.measure.budgets.machine import installed_versions, processor
from pytest_dispatchguard.measure.specimens.prices import measured
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.prices import PriceTable
from pytest_dispatchguard.report import prices as report
from pytest_dispatchguard.spelling import did_you_mean

Tell = Callable[[str, int, int], object]
Format = Literal["text", "json", "markdown"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What to measure."""

    codes: Sequence[str]
    """Codes and prefixes; empty for all."""
    seconds: float
    """The time limit per specimen."""
    cwd: Path


def priced(asked: Asked, tell: Tell) -> tuple[PriceTable, Path]:
    """Measure, and write the prices of the project; return the prices and the file."""
    found = packs.load()
    chosen = _chosen(found.rules, asked.codes)
    specimens = [
        path
        for folder in found.specimens
        for rule in chosen
        for path in sorted(folder.glob(f"{rule.code}/specimen*.py"))
    ]
    if not specimens:
        raise UserError(f"no specimens found for {', '.join(asked.codes) or 'any rule'}")
    here = installed_versions()
    if "torch" not in here:
        raise UserError("measuring prices needs torch, which is not installed")
    about = {"cpu": processor(), **here}
    gc.enable()
    table = PriceTable(about, tuple(measured(specimens, asked.seconds, tell)))
    file = find_root([asked.cwd]) / prices.NAME
    _keep(table, file)
    return table, file


def _chosen(rules: Sequence[Rule], codes: Sequence[str]) -> list[Rule]:
    """The requested rules that apply to the installed Python and torch."""
    known = [rule.code for rule in rules]
    for code in codes:
        if not any(one.startswith(code) for one in known):
            raise UserError(f"unknown code {code!r}; {did_you_mean(code, known)}")
    releases = {
        name: f"=={'.'.join(v.split('.')[:2])}.*" for name, v in installed_versions().items()
    }
    here = Target(python=releases["python"], torch=releases["torch"])
    return [
        rule
        for rule in rules
        if (not codes or rule.code.startswith(tuple(codes)))
        and applies(here, rule.python, rule.torch)
    ]


def _keep(table: PriceTable, file: Path) -> None:
    """Write the file. Earlier prices from the same machine that were not measured again stay."""
    try:
        before = prices.load(file)
    except UserError:
        before = None  # it is to be replaced
    kept = table.specimens
    if before is not None and dict(before.machine) == dict(table.machine):
        anew = {one.code for one in table.specimens}
        kept = (*(one for one in before.specimens if one.code not in anew), *kept)
    project_folder.write(file, prices.packed(PriceTable(table.machine, kept)).encode())


def written(table: PriceTable, form: Format, *, color: bool = False) -> str:
    """The prices in one of the formats."""
    ways: dict[str, Callable[[], str]] = {
        "text": partial(report.as_text, table, color=color),
        "json": partial(prices.packed, table),
        "markdown": partial(report.as_markdown, table),
    }
    return ways[form]()
