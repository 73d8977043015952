"""What the plugin hands on of one pytest run: the fixture's subjects to verdicts, verdicts to the report."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pytest_dispatchguard.measure.budget_file import (
    Recorded,
    as_text,
    key_of,
    load,
    updated,
    version_of,
)
from pytest_dispatchguard.measure.limits import Marker, limits_for
from pytest_dispatchguard.measure.subject import Overhead
from pytest_dispatchguard.measure.verdicts import agreed, counted
from pytest_dispatchguard.model import Limit, UserError, Verdict


def settle(
    node_id: str,
    overhead: Overhead | None,
    markers: Sequence[Marker],
    settings: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    counting: bool,
    recorded: Recorded | None = None,
) -> tuple[str, list[Verdict]]:
    """Runs what a test named: what is wrong with its budget, empty where nothing is, and the verdicts."""
    __tracebackhide__ = True
    verdicts: list[Verdict] = []
    subjects = overhead.subjects if overhead is not None else []
    several, here = len(subjects) > 1, version_of(machine())
    try:
        limits = limits_for(node_id, markers, settings, "overhead_budget")
    except UserError as error:
        return str(error), []
    if not subjects:
        return _nothing_named(limits), []
    for subject in subjects:
        known = (recorded or {}).get(key_of(node_id, subject.name, several), {}).get(here)
        try:
            differ = agreed(subject)
            if differ:
                said = f"{subject.name} and its reference disagree: {differ}"
                verdicts.append(Verdict(node_id, subject.name, "fail", {}, reason=said))
            elif counting:
                verdicts.append(counted(node_id, subject, limits, known))
        except UserError as error:
            said = f"{subject.name}: {error}"
            verdicts.append(Verdict(node_id, subject.name, "error", {}, reason=said))
    return "", verdicts


def broken(node_id: str, overhead: Overhead, error: BaseException) -> list[Verdict]:
    """The verdicts of a test of which a subject failed by itself."""
    said = f"{type(error).__name__}: {error}"
    return [
        Verdict(node_id, subject.name, "error", {}, reason=said) for subject in overhead.subjects
    ]


def _nothing_named(limits: Mapping[str, Limit]) -> str:
    return "the test has a budget and names no subject: call overhead(...)" if limits else ""


def packed(verdicts: Sequence[Verdict]) -> str:
    """Verdicts as a report's property."""
    return json.dumps([asdict(verdict) for verdict in verdicts])


def unpacked(text: str) -> list[Verdict]:
    """Verdicts from a report's property; none from what a test put there itself."""
    try:
        return [
            Verdict(**{**row, "limits": tuple(Limit(**limit) for limit in row["limits"])})
            for row in json.loads(text)
        ]
    except (ValueError, TypeError, KeyError):
        return []


def machine() -> dict[str, str]:
    """What counts depend on."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    try:
        found["torch"] = version("torch")
    except PackageNotFoundError:
        pass
    return found


def keyed(verdicts: Sequence[Verdict]) -> list[tuple[str, Verdict]]:
    """Verdicts with what they are recorded under."""
    per_test = Counter(verdict.node_id for verdict in verdicts)
    return [(key_of(v.node_id, v.subject, per_test[v.node_id] > 1), v) for v in verdicts]


def rewritten(path: Path, verdicts: Sequence[Verdict], collected: Collection[str]) -> str:
    """The budget file's new text. Of the files that were collected whole, tests that are not there any more
    are taken out."""
    files = {node_id.partition("::")[0] for node_id in collected}

    def gone(key: str) -> bool:
        node_id = key.rpartition(" (")[0] if key.endswith(")") and key not in collected else key
        return key.partition("::")[0] in files and not {key, node_id} & set(collected)

    counted_now = [(key, verdict) for key, verdict in keyed(verdicts) if verdict.counters]
    return as_text(updated(load(path), counted_now, version_of(machine()), gone))


def compared(verdicts: Sequence[Verdict], path: Path) -> list[str]:
    """What to say of the budget file beside failures: what it lacks, and what has got cheaper."""
    if not path.exists():
        return []
    missing = [key for key, v in keyed(verdicts) if v.recorded is None and v.counters]
    cheaper = [
        key
        for key, verdict in keyed(verdicts)
        if verdict.recorded is not None
        and any(verdict.counters.get(n, 0) < number for n, number in verdict.recorded.items())
    ]
    lines = [f"{path.name} has no entry of this Python and torch for {key}" for key in missing]
    lines += [f"{key} does less than {path.name} records" for key in cheaper]
    return [*lines, "`pytest --overhead-budget=update` records what is counted"] if lines else []
