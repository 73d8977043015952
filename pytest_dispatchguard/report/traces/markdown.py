"""Traces for a comment on a pull request, or a summary page of a CI step."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.model.trace_changes import TraceComparison
from pytest_dispatchguard.model.traces import Told
from pytest_dispatchguard.report.formats.markdown import linked
from pytest_dispatchguard.report.markdown_text import LIMIT, code, escape
from pytest_dispatchguard.report.traces import changes
from pytest_dispatchguard.report.traces.options import Options
from pytest_dispatchguard.report.traces.rows import (
    COSTS,
    RANKS,
    WAITS,
    Cost,
    Waited,
    costs_of,
    outside,
    rank_rows,
    sentence,
    stragglers,
    together,
    wait_cells,
    waiting,
    waits_of,
)
from pytest_dispatchguard.report.traces.wording import about, hints, lead
from pytest_dispatchguard.report.wording import NAME, remedy, statement


def render(told: Sequence[Told], comparison: TraceComparison | None, options: Options) -> str:
    """The verdict, then tables."""
    out = ""
    if comparison is not None:
        out += _comparison(comparison, told, options)
        told = told[-1:]
    waits = waits_of(told, linted=options.linted)
    if len(told) == 1:
        trace = told[0].trace
        title = sentence(told[0], waits, options.shown)
        out += f"### {NAME}: {escape(title)}\n\n{code(trace.path)}: {escape(about(trace))}\n"
        out += f"\n{escape(_capital(lead(trace)))}.\n" if lead(trace) else ""
    else:
        out += f"### {NAME}: {escape(together(told))}\n\n"
        rows = [
            (*map(escape, row), code(one.trace.path))
            for row, one in zip(rank_rows(told), told, strict=True)
        ]
        out += _table((*RANKS, "file"), rows)
        out += "".join(f"\n{escape(_capital(line))}.\n" for line in stragglers(told))
    for title, found in waits.tables:
        out += _waits(title, found, options)
    out += f"\n{escape(outside(waits.outside))}\n" if outside(waits.outside) else ""
    out += _costs(costs_of(told), options)
    for hint in hints([one.trace for one in told], options.root, linted=options.linted):
        out += f"\n> {escape(hint)}\n"
    return out


def _capital(line: str) -> str:
    return line[:1].upper() + line[1:]


def _waits(title: str, waits: Sequence[Waited], options: Options) -> str:
    rows = [
        (
            *map(escape, wait_cells(one)),
            _place(one, options.shown),
            "<br>".join(_finding(finding) for finding in one.findings),
        )
        for one in waits[: options.top]
    ]
    head = (*WAITS, "place", "finding")
    return (
        f"\n#### {title}\n\n{_capital(waiting(waits))}.\n\n"
        + _table(head, rows)
        + _rest(len(waits) - len(rows))
    )


def _place(one: Waited, shown: Callable[[str], str]) -> str:
    place = code(one.place(shown))
    return f"{place}<br>{escape(one.around)}" if one.line.file else place


def _finding(finding: Finding) -> str:
    told = f"{linked(finding)} line {finding.span.line}: {escape(statement(finding))}"
    return told if finding.fix is None else f"{told}; fix: {escape(remedy(finding.fix))}"


def _costs(costs: Sequence[Cost], options: Options) -> str:
    if not costs:
        return ""
    rows = [
        (
            *cost.cells,
            code(cost.place(options.shown)),
            "<br>".join([*map(escape, cost.remarks), *map(_finding, cost.findings)]),
        )
        for cost in costs[: options.top]
    ]
    table = _table((*COSTS, "place", "remarks"), rows) + _rest(len(costs) - len(rows))
    title = "Overhead by place, over the whole trace"
    return f"\n<details><summary>{title}</summary>\n\n{table}\n</details>\n"


def _rest(left: int) -> str:
    return f"\n… and {left} more.\n" if left > 0 else ""


def _comparison(comparison: TraceComparison, told: Sequence[Told], options: Options) -> str:
    out = f"### {NAME}: {escape(changes.headline(comparison))}\n\n"
    out += _table(changes.FIGURES, [tuple(map(escape, r)) for r in changes.figure_rows(comparison)])
    rows = changes.wait_rows(comparison, told, options.shown)
    if rows:
        cells = [(*map(escape, row[:-1]), code(row[-1])) for row in rows[: options.top]]
        out += "\n" + _table(changes.WAITS, cells) + _rest(len(rows) - len(cells))
    if changes.caveat(comparison):
        out += f"\n> {escape(changes.caveat(comparison))}\n"
    return out + "\n"


_BAR = re.compile(r"(?<!\\)\|")
_FIGURES = frozenset({*WAITS, *COSTS, *RANKS, "before", "after"})


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table without its empty columns, as long as there is room."""
    shown = [i for i in range(len(head)) if any(row[i] for row in rows)]
    lines = [
        f"| {' | '.join(head[i] for i in shown)} |\n",
        f"| {' | '.join('--:' if head[i] in _FIGURES else '---' for i in shown)} |\n",
    ]
    room = LIMIT // 4
    for number, row in enumerate(rows):
        # Bars end a cell even in code.
        cells = [_BAR.sub(r"\\|", row[i]) for i in shown]
        lines.append(f"| {' | '.join(cells)} |\n")
        room -= len(lines[-1])
        if room < 0:
            lines[-1] = f"\n… and {len(rows) - number} more, left out here for their length.\n"
            break
    return "".join(lines)
