"""The price table: what the pattern of each rule costs over its fix, from specimens measured on one machine.
Written by `dispatchguard price`, read where findings are told; plain JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_dispatchguard import project_folder
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.findings import Finding, Price

if TYPE_CHECKING:
    from pytest_dispatchguard.model.measurements import Interval
    from pytest_dispatchguard.model.prices import Priced, PriceTable

# What a table is made of is imported where one is read: most projects have none of their own.

SCHEMA = 1
NAME = ".dispatchguard/prices.json"
"""Where a project keeps the prices of its own machine."""


def packed(table: PriceTable) -> str:
    """A table as JSON: the same table gives the same text."""
    in_order = sorted(table.specimens, key=lambda one: (one.code, one.specimen))
    rows = ",\n".join(f"  {json.dumps(asdict(one), allow_nan=False)}" for one in in_order)
    machine = json.dumps(dict(table.machine))
    return f'{{\n "schema": {SCHEMA},\n "machine": {machine},\n "specimens": [\n{rows}\n ]\n}}\n'


def unpacked(text: str) -> PriceTable:
    """A table from its JSON; a `ValueError` where it is none."""
    from pytest_dispatchguard.model.prices import PriceTable

    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']!r}")
        rows = tuple(_row(row) for row in data["specimens"])
        return PriceTable({str(k): str(v) for k, v in data["machine"].items()}, rows)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from None


def _row(row: Mapping[str, Any]) -> Priced:
    from pytest_dispatchguard.model.prices import Priced

    bad, good = row["waits"]
    return Priced(
        str(row["code"]),
        str(row["specimen"]),
        _interval(row["bad_us"]),
        _interval(row["saves_us"]),
        (int(bad), int(good)),
        str(row["note"]),
        max(1, int(row.get("places", 1))),  # tables of before do not have it
    )


def _interval(row: Mapping[str, float] | None) -> Interval | None:
    from pytest_dispatchguard.model.measurements import Interval

    return None if row is None else Interval(*(float(row[n]) for n in ("value", "low", "high")))


def load(path: Path) -> PriceTable | None:
    """The table of a file; None where there is no such file."""
    try:
        data = project_folder.read(path)
        if data is None:
            return None
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        said = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read: {said}; remove it, or correct it") from None
    try:
        return unpacked(text)
    except (ValueError, RecursionError):
        raise UserError(
            f"{path}: is no price table that this version has written; remove it, and run "
            "`dispatchguard price` again"
        ) from None


def priced(
    findings: Iterable[Finding], shipped: Mapping[str, Price], own: PriceTable | None
) -> list[Finding]:
    """Findings with what they cost, where that is known and they do not say so themselves: on this machine,
    else on that of their pack."""
    here = {} if own is None else own.prices()
    prices = {**shipped, **{code: _of_here(price) for code, price in here.items()}}
    return [
        replace(finding, price=_at(finding, prices[finding.code]))
        if finding.price is None and finding.code in prices
        else finding
        for finding in findings
    ]


def _of_here(price: Price) -> Price:
    dry = None if price.dry is None else replace(price.dry, machine="")
    return replace(price, machine="", dry=dry)


def _at(finding: Finding, price: Price) -> Price | None:
    """What a pattern of that price costs at a place."""
    if not price.waits or finding.dry is False:
        return replace(price, dry=None)
    return price.dry if finding.dry else None
