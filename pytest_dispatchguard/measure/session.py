"""What the plugin hands on of one pytest run: the fixture's subjects to verdicts, verdicts to the report."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pytest_dispatchguard.config import budgets_of
from pytest_dispatchguard.measure.limits import Marker, limits_for
from pytest_dispatchguard.measure.subject import Overhead
from pytest_dispatchguard.measure.verdicts import agreed, counted
from pytest_dispatchguard.model import Limit, UserError, Verdict

PROPERTY = "dispatchguard"
"""The property of a test's report that carries its verdicts to the process that tells them."""


def settle(
    node_id: str,
    overhead: Overhead,
    markers: Sequence[Marker],
    pyproject: Path | None,
    *,
    counting: bool,
) -> tuple[str, list[Verdict]]:
    """Runs what a test named: what is wrong, empty where nothing is, and the verdicts."""
    try:
        limits = limits_for(node_id, markers, budgets_of(pyproject), "overhead_budget")
        if not overhead.subjects:
            return _nothing_named(limits), []
        verdicts: list[Verdict] = []
        for subject in overhead.subjects:
            differ = agreed(subject)
            if differ:
                return f"{subject.name} and its reference disagree: {differ}", verdicts
            if counting:
                verdicts.append(counted(node_id, subject, limits))
    except UserError as error:
        return str(error), []
    failed = [verdict for verdict in verdicts if verdict.verdict == "fail"]
    return "\n\n".join(map(explained, failed)), verdicts


def _nothing_named(limits: Mapping[str, Limit]) -> str:
    return "the test has a budget and names no subject: call overhead(...)" if limits else ""


def explained(verdict: Verdict) -> str:
    """A failing verdict as a failure's text: what was allowed, what was counted, and where it goes."""
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


def packed(verdicts: Sequence[Verdict]) -> str:
    """Verdicts as a report's property."""
    return json.dumps([asdict(verdict) for verdict in verdicts])


def unpacked(text: str) -> list[Verdict]:
    """Verdicts from a report's property."""
    return [
        Verdict(**{**row, "limits": tuple(Limit(**limit) for limit in row["limits"])})
        for row in json.loads(text)
    ]


def machine() -> dict[str, str]:
    """What counts depend on."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    try:
        found["torch"] = version("torch")
    except PackageNotFoundError:
        pass
    return found
