"""The prices of rules by specimen, for the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_dispatchguard.model.prices import Priced, PriceTable
from pytest_dispatchguard.report.lines import Line, written
from pytest_dispatchguard.report.markdown_text import code, escape
from pytest_dispatchguard.report.wording import count, microseconds

_HEAD = ("specimen", "bad form", "extra cost", "interval", "waits")


def as_text(table: PriceTable, *, color: bool = False) -> str:
    """A row for each specimen; those that prove nothing are highlighted."""
    rows = [_cells(one) for one in table.specimens]
    wide = [max(map(len, column)) for column in zip(_HEAD, *rows, strict=True)]
    lines: list[Line] = [[(_row(_HEAD, wide), "dim")]]
    for one, row in zip(table.specimens, rows, strict=True):
        lines.append([(_row(row, wide), "" if one.proven else "bold red")])
        if one.note:
            lines.append([(f"    {' '.join(one.note.split())}", "yellow")])
    lines += [[], [(conclusion(table), "bold")], [(f"measured on {table.shown}", "dim")]]
    return written(lines, color=color)


def as_markdown(table: PriceTable) -> str:
    """The same table."""
    lines = [
        escape(conclusion(table)),
        "",
        f"Measured on {escape(table.shown)}.",
        "",
        f"| {' | '.join(_HEAD)} |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for one in table.specimens:
        name, *rest = _cells(one)
        said = f"<br>{escape(one.note)}" if one.note else ""
        lines.append(f"| {code(name)}{said} | {' | '.join(rest)} |")
    return "\n".join(lines) + "\n"


def conclusion(table: PriceTable) -> str:
    """How many rules are proven, and which are not."""
    rules = {one.code for one in table.specimens}
    open_ = [one for one in table.specimens if not one.proven]
    fine = len(rules - {one.code for one in open_})
    told = f"The good form of every specimen is measurably cheaper for {fine} of {count(len(rules), 'rule')}."
    if open_:
        told += f" Not of {', '.join(f'{one.code}/{one.specimen}' for one in open_)}."
    return told


def _cells(one: Priced) -> tuple[str, ...]:
    bad, good = one.waits
    waits = f"{bad} → {good}" if bad or good else ""
    name = f"{one.code}/{one.specimen}"
    if one.bad_us is None or one.saves_us is None:
        return name, "", "", "", waits
    saves = one.saves_us
    return (
        name,
        f"{_us(one.bad_us.value)} µs",
        f"{_us(saves.value)} µs",
        f"{_us(saves.low)} to {_us(saves.high)} µs",
        waits,
    )


def _us(value: float) -> str:
    return f"-{microseconds(-value)}" if value < 0 else microseconds(value)


def _row(cells: Sequence[str], wide: Sequence[int]) -> str:
    first, *rest = cells
    aligned = [cell.rjust(width) for cell, width in zip(rest, wide[1:], strict=True)]
    return "  ".join([first.ljust(wide[0]), *aligned]).rstrip()
