"""Verdicts as a table for the terminal, as the text of a failure, and as JSON."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pytest_dispatchguard.model.compiled import Compiled, Guards
from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.model.layers import Layers
from pytest_dispatchguard.model.measurements import CostlyLine, Interval, Measurement
from pytest_dispatchguard.model.reports import Missing
from pytest_dispatchguard.model.verdicts import Base, Verdict, has_moved
from pytest_dispatchguard.report.budgets import paces
from pytest_dispatchguard.report.budgets.blame import Slower, compared_layers, slower_layers
from pytest_dispatchguard.report.budgets.layers import as_object, relative, waterfall
from pytest_dispatchguard.report.budgets.sorting import in_order
from pytest_dispatchguard.visible import one_line, visible, without_commands

SCHEMA = 1
"""The number of the JSON layout. Fields are added, never renamed."""


_MOST_LINES = 8
"""How many lines of source a failure shows."""
_SHORT = {
    "py_allocations": "blocks",
    "tensor_allocations": "tensors",
    "native_instructions": "native",
}
"""Shorter column titles for counters with long names."""


@dataclass(frozen=True, slots=True)
class Table:
    """All verdicts, ready to show in any format."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    """Test, figures, verdict, and the counters that moved."""
    figures: int
    """The number of columns with figures."""
    notes: Sequence[Sequence[str]]
    """The lines below each row."""
    verdicts: Sequence[Verdict] = ()
    """The verdict of each row."""


def table_of(verdicts: Sequence[Verdict], by: str | None = None) -> Table:
    """One row per subject: failures first, then the slowest, or those with most instructions; or sorted
    by `by`, a name or a figure."""
    order = sorted(verdicts, key=_dearest) if by is None else in_order(verdicts, by)
    figures = _time_columns(order) or _counter_columns(order)
    moved = [_moved(verdict) for verdict in order]
    columns = [
        ("test", [one_line(_name(verdict, verdicts)) for verdict in order]),
        *figures,
        ("verdict", [verdict.verdict for verdict in order]),
        *([("counters that moved", moved)] if any(moved) else []),
    ]
    rows = list(zip(*(cells for _, cells in columns), strict=True))
    notes = [_notes(verdict) for verdict in order]
    return Table([title for title, _ in columns], rows, len(figures), notes, order)


def _notes(verdict: Verdict) -> list[str]:
    # A failure is explained in its own section.
    told = verdict.reason if verdict.verdict != "fail" or not verdict.counters else ""
    note = verdict.base.note if verdict.base else ""
    return [one_line(text.splitlines()[0]) for text in (told, note) if text]


def plain_lines(table: Table) -> list[str]:
    """The table as text, the same for every terminal and file."""
    widths = [max(map(len, column)) for column in zip(table.head, *table.rows, strict=True)]
    lines = [_line(table.head, widths, table.figures)]
    for row, notes in zip(table.rows, table.notes, strict=True):
        lines.append(_line(row, widths, table.figures))
        lines += [f"    {note}" for note in notes]
    return [without_commands(line) for line in lines]


_OF_TIME = {"ratio", "extra_us", "host_us", "regression"}
"""The figures named in a verdict's reason if a call takes too long."""
_OF_COMPILING = (
    "fake_dispatches",
    "fake_mode_dispatches",
    "proxy_dispatches",
    "fake_cache_hits",
    "fake_cache_misses",
)
"""Counters of compilation: columns of the table only if a budget limits one of them."""

Column = tuple[str, Sequence[str]]
"""A title, and one cell per verdict."""


def _time_columns(verdicts: Sequence[Verdict]) -> list[Column]:
    """Reference, subject, ratio with its interval, and its limit, as far as any verdict has them."""
    measured = [verdict.measured for verdict in verdicts]
    if not any(measured):
        return []
    columns: list[Column] = [
        ("reference", [_microseconds(m.reference_us if m else None) for m in measured]),
        ("subject", [_microseconds(m.subject_us if m else None) for m in measured]),
        ("ratio", [_ratio(m.ratio if m else None) for m in measured]),
    ]
    on_device = [_microseconds(m.device_us if m else None) for m in measured]
    if any(on_device):
        columns.append(("device", on_device))
    for name in ("ratio", "extra_us", "host_us", "device_us", "guard_us"):
        cells = [_allowed(verdict, name) for verdict in verdicts]
        if any(cells):
            columns.append(("allowed" if name == "ratio" else f"{name} allowed", cells))
    changes = [_ratio(verdict.base.change if verdict.base else None) for verdict in verdicts]
    if any(changes):
        columns.append(("times base", changes))
    return columns


def _allowed(verdict: Verdict, name: str) -> str:
    limits = {limit.name: limit.shown for limit in verdict.limits}
    recorded = (verdict.recorded or {}).get(name)
    return limits.get(name, "" if recorded is None else f"{recorded:g}")


def _microseconds(interval: Interval | None) -> str:
    return "" if interval is None else f"{_three_digits(interval.value)} µs"


def _three_digits(number: float) -> str:
    return f"{number:.2f}" if number < 10 else f"{number:.1f}" if number < 100 else f"{number:.0f}"


def _ratio(interval: Interval | None) -> str:
    if interval is None:
        return ""
    wide = max(interval.high - interval.value, interval.value - interval.low)
    return (
        f"{interval.value:.3f} ±{wide:.3f}" if math.isfinite(wide) else f"{interval.value:.3f} ±?"
    )


def _counter_columns(verdicts: Sequence[Verdict]) -> list[Column]:
    names = list(dict.fromkeys(name for verdict in verdicts for name in verdict.counters))
    limited = {limit.name for verdict in verdicts for limit in verdict.limits}
    columns: list[Column] = []
    for name in names:
        if name in _OF_COMPILING and name not in limited:
            continue
        cells = []
        for verdict in verdicts:
            most = {limit.name: f" / {limit.shown}" for limit in verdict.limits}
            cells.append(str(verdict.counters.get(name, "")) + most.get(name, ""))
        columns.append((_SHORT.get(name, name), cells))
    return columns


def _moved(verdict: Verdict) -> str:
    """Counters that differ from the base, or from the budget file."""
    before = verdict.base.counters if verdict.base else verdict.recorded or {}
    return ", ".join(
        f"{name} {before[name]} → {number}"
        for name, number in verdict.counters.items()
        if has_moved(name, before.get(name, number), number)
    )


def _dearest(verdict: Verdict) -> tuple[bool, float, int, str, str]:
    cost = verdict.counters.get("instructions", 0)
    ratio = verdict.measured.ratio if verdict.measured else None
    slowness = ratio.value if ratio else 0.0
    return (
        verdict.verdict in ("pass", "skipped"),
        -slowness,
        -cost,
        verdict.node_id,
        verdict.subject,
    )


def _name(verdict: Verdict, verdicts: Sequence[Verdict]) -> str:
    """The test, with the subject if it has several."""
    several = sum(other.node_id == verdict.node_id for other in verdicts) > 1
    return f"{verdict.node_id} ({verdict.subject})" if several else verdict.node_id


def _line(row: Sequence[str], widths: Sequence[int], figures: int) -> str:
    cells = [
        cell.rjust(width) if 0 < i <= figures else cell.ljust(width)
        for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def explained(verdict: Verdict) -> str:
    """A verdict that is not a pass, as the text of a failure: what was allowed, what was measured, with
    what confidence, and where the cost is."""
    lines = _lines(verdict.lines) if verdict.counters else []
    return without_commands(visible("\n".join([reasons(verdict), *lines])))


def reasons(verdict: Verdict) -> str:
    """The same without the source lines."""
    if not verdict.counters:
        return verdict.reason
    undecided = verdict.verdict == "undecided"
    lines = [
        f"{verdict.subject} may cost more than its budget allows: times are too uncertain to decide"
        if undecided
        else f"{verdict.subject} costs more than its budget allows"
    ]
    lines += [f"  {part}" for part in verdict.reason.split("; ")]
    if verdict.measured is not None:
        lines.append(f"  {_measured(verdict.measured)}")
        pace = paces.of_base(verdict.base)
        lines += [f"  {pace}"] if pace else []
    return "\n".join([*lines, *_blamed(verdict), *_compiled(verdict)])


def _slower_layers(verdict: Verdict) -> list[Slower]:
    """The layers that take longer than in the base or reference."""
    other = compared_layers(verdict)
    return slower_layers(verdict.layers, other[0]) if verdict.layers and other else []


def _blamed(verdict: Verdict) -> list[str]:
    """The layers of a call that take longer than in the base or reference; without one, all layers."""
    if verdict.layers is None:
        return []
    other = compared_layers(verdict)
    if other is None:
        return ["  where its time goes:", *_waterfall(verdict.layers)]
    there, whose = other
    rows = _slower_layers(verdict)
    if verdict.layers.whole_us.value <= there.whole_us.value:
        return []
    asked = Counter[str](verdict.layers.torch_calls) - Counter[str](there.torch_calls)
    if not rows:
        return []
    total = verdict.layers.whole_us.value - there.whole_us.value
    lines = [f"  most of the {total:+.2f} µs that it takes beyond {whose} is spent here:"]
    width = max(len(row.layer.called) for row in rows)
    for row in rows:
        before = _before(row, there)
        place = _place(row.layer.path, row.layer.line) if row.layer.line else row.layer.note
        lines.append(
            f"  {row.more:>+7.2f} µs  {row.layer.called:<{width}}  {before:<20}  {place}".rstrip()
        )
    if asked and there.torch_calls:
        told = ", ".join(name if n == 1 else f"{name} ({n} times)" for name, n in asked.items())
        lines.append(f"  it calls torch more than {whose}: {told}")
    return lines


def _before(row: Slower, there: Layers) -> str:
    """What a layer takes there, and here."""
    if row.there:
        return f"{row.there:.2f} → {row.here.value:.2f} µs"
    return "not measured separately there" if row.layer.name in there.functions else "new"


def _waterfall(layers: Layers) -> list[str]:
    return ["    " + "".join(text for text, _ in line).rstrip() for line in waterfall(layers)]


def _compiled(verdict: Verdict) -> list[str]:
    """The compiled code, if that is what costs more: guards, graph breaks, recompiles."""
    made = verdict.compiled
    if made is None:
        return []
    about = {part.partition(":")[0] for part in verdict.reason.split("; ")}
    slower = bool(about & _OF_TIME)
    by_guards = slower and any(row.layer.kind == "guards" for row in _slower_layers(verdict))
    before = verdict.base.compiled if verdict.base else None
    lines = _guards(made.guards) if by_guards or about & {"guards", "guard_us"} else []
    if lines and made.guard_us is not None:
        took = made.guard_us
        lines.append(
            f"  checking them takes {took.value:.2f} µs ({took.low:.2f} to {took.high:.2f})"
        )
    for names, title, events, known in (
        ({"graph_breaks", "graphs"}, "graph breaks", made.breaks, before and before.breaks),
        (
            {"recompiles", "cache_size", "graphs"},
            "recompiles",
            made.recompiles,
            before and before.recompiles,
        ),
    ):
        if events and (about & names or (slower and events != known)):
            shown = [f"    {event.place}: {event.reason}" for event in events[:_MOST_LINES]]
            lines += [f"  {title}:", *shown]
            lines += [f"    and {len(events) - len(shown)} more"] if events[_MOST_LINES:] else []
    if made.compile_s and about & {*_OF_COMPILING, "graphs", "graph_breaks", "recompiles"}:
        parts = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in made.compile_s.items())
        lines.append(f"  compiling takes: {parts}")
    return lines


def _guards(groups: Sequence[Guards]) -> list[str]:
    """Guards by kind and source: only those that the base does not have, if it lacks any."""
    new = sorted((g for g in groups if g.extra), key=lambda g: -(g.extra or 0))
    shown = (new or groups)[:_MOST_LINES]
    if not shown:
        return []
    left = sum(g.extra or 0 if new else g.number for g in (new or groups)[_MOST_LINES:])
    return [
        "  guards that the base does not have:" if new else "  its guards, by kind and source:",
        *(f"  {f'+{g.extra}' if new else g.number:>7}  {_guard(g)}" for g in shown),
        *([f"  {f'+{left}' if new else left:>7}  others"] if left else []),
    ]


def _guard(group: Guards) -> str:
    source = group.source or "the ambient state: grad mode, threads, default device and the like"
    to = f" … {group.last}" if group.last else ""
    line = f"  {group.text}" if group.text else ""
    return f"{group.kind} of {source}{to}{line}{f'  ({group.place})' if group.place else ''}"


def costly(lines: Sequence[CostlyLine]) -> tuple[str, list[tuple[str, str, CostlyLine]]]:
    """Where instructions run: a title, and for each line the count and the place. Only lines that the
    base does not run, if there are any."""
    extra = [line for line in lines if line.extra]
    more = (
        "most of the extra instructions run here" if extra else "most of its instructions run here"
    )
    return more, [
        (
            f"+{line.extra}" if extra else str(line.instructions),
            _place(line.path, line.line),
            line,
        )
        for line in (extra or lines)[:_MOST_LINES]
    ]


def _lines(lines: Sequence[CostlyLine]) -> list[str]:
    more, shown = costly(lines)
    width = max((len(place) for _, place, _ in shown), default=0)
    rows = [
        f"  {number:>7}  {place:<{width}}  {line.text}".rstrip() for number, place, line in shown
    ]
    return [f"  {more}:", *rows] if rows else []


def advice(findings: Sequence[Finding]) -> str:
    """The linter's findings on the costly lines."""
    lines = (
        one_line(f"{_place(finding.path, finding.span.line)}: {finding.code} {finding.message}")
        for finding in findings
    )
    return "\n".join(dict.fromkeys(lines))


def _measured(measured: Measurement) -> str:
    took = f"a call takes {_microseconds(measured.subject_us)}"
    if measured.reference_us is not None:
        took += f", its reference {_microseconds(measured.reference_us)}"
    if measured.device_us is not None:
        took += f", the device works {_microseconds(measured.device_us)} on it"
    processes = "1 process" if measured.processes == 1 else f"{measured.processes} processes"
    return (
        f"{took}: medians of {measured.pairs} blocks each in {processes}; "
        f"control: the reference against itself is {measured.control:.4f} (ideally 1)"
    )


def _place(path: str, line: int) -> str:
    return f"{relative(path)}:{line}"


def as_json(
    verdicts: Sequence[Verdict],
    machine: Mapping[str, str],
    missing: Sequence[Missing] = (),
    traces: Sequence[Mapping[str, Any]] | None = None,
) -> str:
    """All verdicts as one object, with what is missing of the run, and the traces that were checked."""
    tests = [_row(v) for v in sorted(verdicts, key=lambda v: (v.node_id, v.subject))]
    found = {"schema": SCHEMA, "machine": dict(machine), "tests": tests}
    if missing:
        found["missing"] = [asdict(one) for one in missing]
    if traces is not None:
        found["traces"] = list(traces)
    return json.dumps(found, indent=1) + "\n"


def _row(verdict: Verdict) -> dict[str, Any]:
    measured = verdict.measured
    return {
        "nodeid": verdict.node_id,
        "subject": verdict.subject,
        "verdict": verdict.verdict,
        "ratio": _figure(measured.ratio if measured else None),
        "extra_us": _figure(measured.extra_us if measured else None),
        "reference_us": measured.reference_us.value if measured and measured.reference_us else None,
        "subject_us": measured.subject_us.value if measured else None,
        "host_us": _figure(measured.subject_us if measured else None),
        "device_us": _figure(measured.device_us if measured else None),
        "control": measured.control if measured else None,
        "pairs": measured.pairs if measured else None,
        "processes": measured.processes if measured else None,
        "counters": dict(verdict.counters),
        "limits": {
            limit.name: [limit.value, limit.tolerance] if limit.tolerance else limit.value
            for limit in verdict.limits
        },
        "recorded": None if verdict.recorded is None else dict(verdict.recorded),
        "varying": list(verdict.varying),
        "form": verdict.form,
        "layers": as_object(verdict.layers),
        "reference_layers": as_object(verdict.reference_layers),
        "compiled": _compiled_row(verdict.compiled),
        "lines": [{**asdict(line), "path": relative(line.path)} for line in verdict.lines],
        "base": _base(verdict.base),
        "reason": verdict.reason,
    }


def _compiled_row(made: Compiled | None) -> dict[str, Any] | None:
    return None if made is None else {**asdict(made), "guard_us": _figure(made.guard_us)}


def _base(base: Base | None) -> dict[str, Any] | None:
    if base is None:
        return None
    measured = base.measured
    return {
        "name": base.name,
        "ratio": _figure(measured.ratio if measured else None),
        "subject_us": measured.subject_us.value if measured else None,
        "counters": dict(base.counters),
        "change": _figure(base.change),
        "implied_us": _figure(base.implied_us),
        "reason": base.note,
        "reference_us": measured.reference_us.value if measured and measured.reference_us else None,
        "extra_us": _figure(measured.extra_us if measured else None),
        "host_us": _figure(measured.subject_us if measured else None),
        "device_us": _figure(measured.device_us if measured else None),
        "layers": as_object(base.layers),
        "compiled": _compiled_row(base.compiled),
        "earlier": base.earlier,
        "pace": paces.as_object(base.pace, _figure),
        "other": list(base.other),
    }


def _figure(interval: Interval | None) -> dict[str, float | None] | None:
    """A figure with its interval; an unknown end is null."""
    if interval is None:
        return None
    return {
        name: number if math.isfinite(number) else None for name, number in asdict(interval).items()
    }
