"""Verdicts as Markdown: for a comment on a pull request, or a summary page of a CI step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pytest_dispatchguard.model.verdicts import Verdict
from pytest_dispatchguard.report.budgets import paces
from pytest_dispatchguard.report.budgets.verdicts import explained, table_of
from pytest_dispatchguard.report.markdown_text import LIMIT, code, escape, fence_around
from pytest_dispatchguard.visible import visible

SIGNS = {"pass": "✅", "fail": "❌", "error": "💥", "undecided": "❔", "skipped": "⏭"}


def as_markdown(verdicts: Sequence[Verdict], machine: Mapping[str, str]) -> str:
    """The table, and an explanation of each verdict that is not a pass."""
    counts = Counter[str](verdict.verdict for verdict in verdicts)
    told = ", ".join(f"{counts[word]} {word}" for word in SIGNS if counts[word])
    about = ", ".join(f"{name} {number}" for name, number in machine.items())
    out = f"### Overhead budgets: {told or 'none'}\n\n{escape(about)}\n"
    table = table_of(verdicts)
    if not table.rows:
        return out
    at = table.figures + 1
    out += f"\n| {' | '.join(map(escape, table.head))} |\n"
    aligned = ["---", *["---:"] * table.figures, *["---"] * (len(table.head) - at)]
    out += f"| {' | '.join(aligned)} |\n"
    for row in table.rows:
        # Even in code, a bar would end the cell.
        cells = [
            code(row[0]).replace("|", "\\|"),
            *map(escape, row[1:at]),
            f"{SIGNS[row[at]]} {row[at]}",
        ]
        out += f"| {' | '.join([*cells, *map(escape, row[at + 1 :])])} |\n"
    for line in paces.of_run(verdicts):
        out += f"\n{escape(line)}\n"
    left = [verdict for verdict in verdicts if verdict.verdict not in ("pass", "skipped")]
    for i, verdict in enumerate(left):
        block = f"\n#### {code(verdict.node_id)}\n\n{_fenced(explained(verdict))}\n"
        if len(out) + len(block) > LIMIT:
            return f"{out}\n… and {len(left) - i} more, left out to keep this short.\n"
        out += block
    return out


def _fenced(text: str) -> str:
    text = visible(text)
    fence = fence_around(text)
    return f"{fence}text\n{text}\n{fence}"
