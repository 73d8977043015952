"""Verdicts as a table for the terminal, as the text of a failure, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_dispatchguard.model import Verdict

SCHEMA = 1
"""The number of the JSON layout. Fields are added, never renamed."""


def table(verdicts: Sequence[Verdict]) -> list[str]:
    """One line a subject: those that fail first, then by their instructions."""
    names = list(dict.fromkeys(name for verdict in verdicts for name in verdict.counters))
    head = ["test", *(name.replace("tensor_allocations", "tensors") for name in names), "verdict"]
    rows = [head]
    order = sorted(verdicts, key=_dearest)
    for verdict in order:
        most = {limit.name: limit.shown for limit in verdict.limits}
        cells = [
            str(verdict.counters.get(name, "")) + (f" / {most[name]}" if name in most else "")
            for name in names
        ]
        rows.append([_name(verdict, verdicts), *cells, verdict.verdict])
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(_cells(rows[0], widths)).rstrip()]
    for row, verdict in zip(rows[1:], order, strict=True):
        lines.append("  ".join(_cells(row, widths)).rstrip())
        if verdict.reason and (verdict.verdict == "pass" or not verdict.counters):
            lines.append(
                f"    {verdict.reason.splitlines()[0]}"
            )  # the failure's own section has the rest
    return lines


def _dearest(verdict: Verdict) -> tuple[bool, int, str, str]:
    cost = verdict.counters.get("instructions", 0)
    return verdict.verdict == "pass", -cost, verdict.node_id, verdict.subject


def _name(verdict: Verdict, verdicts: Sequence[Verdict]) -> str:
    """The test, with the subject where it has several."""
    several = sum(other.node_id == verdict.node_id for other in verdicts) > 1
    return f"{verdict.node_id} ({verdict.subject})" if several else verdict.node_id


def _cells(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    first, *figures, last = zip(row, widths, strict=True)
    return [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in figures), last[0]]


def explained(verdict: Verdict) -> str:
    """A failing verdict as a failure's text: what was allowed, what was counted, and where it goes."""
    if not verdict.counters:
        return verdict.reason
    lines = [f"{verdict.subject} costs more than its budget allows"]
    lines += [f"  {part}" for part in verdict.reason.split("; ")]
    if verdict.lines:
        lines.append("  most of its instructions run here:")
        width = max(len(_place(path, line)) for path, line, _ in verdict.lines)
        for path, line, times in verdict.lines:
            lines.append(
                f"  {times:>7}  {_place(path, line):<{width}}  {_source(path, line)}".rstrip()
            )
    return "\n".join(lines)


def _place(path: str, line: int) -> str:
    try:
        return f"{Path(path).relative_to(Path.cwd())}:{line}"
    except ValueError:
        return f"{Path(*Path(path).parts[-3:])}:{line}"


def _source(path: str, line: int) -> str:
    import linecache

    return linecache.getline(path, line).strip()[:80]


def as_json(verdicts: Sequence[Verdict], machine: Mapping[str, str]) -> str:
    """All verdicts as one object."""
    tests = [
        {
            "nodeid": verdict.node_id,
            "subject": verdict.subject,
            "verdict": verdict.verdict,
            "ratio": None,
            "reference_us": None,
            "subject_us": None,
            "host_us": None,
            "device_us": None,
            "counters": dict(verdict.counters),
            "limits": {
                limit.name: [limit.value, limit.tolerance] if limit.tolerance else limit.value
                for limit in verdict.limits
            },
            "base": None,
            "reason": verdict.reason,
        }
        for verdict in sorted(verdicts, key=lambda v: (v.node_id, v.subject))
    ]
    return json.dumps({"schema": SCHEMA, "machine": dict(machine), "tests": tests}, indent=1) + "\n"
