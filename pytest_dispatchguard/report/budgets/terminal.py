"""Verdicts on a terminal: a table in color, and a progress line while measuring."""

from __future__ import annotations

import time
from typing import IO, Any

from pytest_dispatchguard.report.budgets.verdicts import Table
from pytest_dispatchguard.visible import one_line

_STYLES = {"pass": "green", "fail": "bold red", "error": "bold red", "undecided": "yellow"}
_SAVE, _RESTORE, _CLEAR = "\x1b7", "\x1b8", "\x1b[K"


_NAME, _MOVED = 20, 12
"""The least width for a test's name, and for the counters that moved."""


def fits(table: Table, width: int) -> bool:
    """Whether a terminal is wide enough for the table's figures beside a folded name."""
    columns = list(zip(table.head, *table.rows, strict=True))
    fixed = sum(max(map(len, column)) + 2 for column in columns[1 : table.figures + 2])
    return _NAME + fixed + _MOVED * (len(columns) > table.figures + 2) + 2 <= width


def show(table: Table, file: IO[str], width: int) -> None:
    """Write the table in color."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for i, title in enumerate(table.head):
        if i == 0:
            shown.add_column(title, overflow="fold", min_width=_NAME)
        elif i <= table.figures + 1:
            shown.add_column(title, justify="right" if i <= table.figures else "left", no_wrap=True)
        else:
            shown.add_column(title, overflow="fold")
    for row, notes in zip(table.rows, table.notes, strict=True):
        cells = [Text(cell) for cell in row]
        for note in notes:
            cells[0].append(f"\n  {note}", style="dim")
        verdict = cells[table.figures + 1]
        verdict.stylize(_STYLES.get(verdict.plain, ""))
        shown.add_row(*cells)
    Console(file=file, force_terminal=True, width=width).print(shown)


class ProgressLine:
    """Appends to the current line what is being measured, and removes it again. `writer` is pytest's."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._start = time.monotonic()

    def tell(self, what: str, done: int, of: int) -> None:
        """Show the progress; nothing if nothing is measured."""
        spent = time.monotonic() - self._start
        left = f", about {spent / done * (of - done):.0f} s left" if done else ""
        text = f"  measuring {done + 1} of {of}{left}: {one_line(what)}" if what else ""
        room = self._writer.fullwidth - self._writer.width_of_current_line - 2
        file = self._writer._file
        file.write(f"{_SAVE}{_CLEAR}{text[: max(room, 0)]}{_RESTORE}")
        file.flush()
