"""The number of findings per rule, highest first, for `--statistics`."""

from __future__ import annotations

import json
from collections import Counter

from pytest_dispatchguard.model.findings import SCHEMA
from pytest_dispatchguard.model.reports import Report
from pytest_dispatchguard.visible import one_line


def statistics(report: Report, format: str) -> str:
    """Counts by rule, as text or as JSON."""
    counts = Counter(f.code for f in report.findings)
    fixable = Counter(f.code for f in report.findings if f.fix is not None)
    noted = Counter(f.code for f in report.of("note"))
    names = {f.code: f.rule for f in report.findings}
    rows = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    if format != "text":
        table = [
            {"code": c, "rule": names[c], "count": n, "fixable": fixable[c], "notes": noted[c]}
            for c, n in rows
        ]
        return json.dumps({"schema": SCHEMA, "statistics": table}, indent=2) + "\n"
    if not rows:
        return "nothing found\n"
    width = len(str(rows[0][1]))
    lines = [f"{n:>{width}}  {c}  {names[c]}{_apart(noted[c], fixable[c])}" for c, n in rows]
    return "\n".join([*map(one_line, lines), f"{sum(counts.values()):>{width}}  in all"]) + "\n"


def _apart(notes: int, fixable: int) -> str:
    parts = [f"{notes} {'note' if notes == 1 else 'notes'}"] if notes else []
    parts += [f"{fixable} fixable"] if fixable else []
    return f"  ({', '.join(parts)})" if parts else ""
