"""What `--overhead-json` writes, read back: as runs of the history, and several files as one."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pytest_dispatchguard.model import Interval, Kept, Outcome, UserError

SCHEMA = 1
"""The number of the layout that is read."""


def read(text: str | bytes, name: str) -> dict[str, Any]:
    """The object in a file of that name, of the layout that is known here."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name}: is no JSON: {str(error) or type(error).__name__}") from None
    if not (isinstance(whole, dict) and "schema" in whole and "tests" in whole):
        raise UserError(f"{name}: is no file that --overhead-json has written")
    if whole["schema"] != SCHEMA:
        raise UserError(
            f"{name}: is of schema {whole['schema']!r}, and this dispatchguard knows {SCHEMA}; "
            "use the one that wrote it"
        )
    kept_in(whole, name)
    machine_in(whole, name)
    return whole


def kept_in(whole: Mapping[str, Any], name: str) -> list[Kept]:
    """What the history keeps of such an object."""
    try:
        return [_kept(row) for row in _typed(whole, "tests", list)]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{name}: is not as --overhead-json writes it: {_said(error)}") from None


def machine_in(whole: Mapping[str, Any], name: str) -> dict[str, str]:
    """The machine that such an object is from."""
    machine = whole.get("machine")
    if not isinstance(machine, dict) or not all(isinstance(v, str) for v in machine.values()):
        raise UserError(f"{name}: is not as --overhead-json writes it: machine")
    return machine


def joined(files: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Files, each with its name, as one. A test may be in several only where all say the same of it."""
    machine: dict[str, str] = {}
    rows: dict[tuple[str, str], tuple[str, Any]] = {}
    for name, whole in files:
        machine = _machine(machine, machine_in(whole, name), files[0][0], name)
        for row in whole["tests"]:
            key = (row["nodeid"], row["subject"])
            other, known = rows.setdefault(key, (name, row))
            if known != row:
                where = f"{other} and {name}" if other != name else name
                raise UserError(
                    f"{key[0]} ({key[1]}) is in {where}, with different figures; "
                    "have each test run in one shard"
                )
    tests = [rows[key][1] for key in sorted(rows)]
    return {"schema": SCHEMA, "machine": machine, "tests": tests}


def _machine(known: dict[str, str], other: dict[str, str], first: str, name: str) -> dict[str, str]:
    """One machine of two: counters are of one Python and torch, the processors may differ."""
    both = {**known, **other}
    if not known:
        return both
    for part in both:
        if part != "cpu" and known.get(part) != other.get(part):
            raise UserError(
                f"{first} and {name} were measured with different versions: {part} "
                f"{known.get(part, 'missing')} and {other.get(part, 'missing')}; merge them apart"
            )
    if "cpu" in both:
        cpus = [cpu for said in (known, other) for cpu in said.get("cpu", "").split(", ") if cpu]
        both["cpu"] = ", ".join(dict.fromkeys(cpus))
    return both


def _kept(row: Mapping[str, Any]) -> Kept:
    node_id, subject, verdict, reason = (
        _typed(row, name, str) for name in ("nodeid", "subject", "verdict", "reason")
    )
    if verdict not in get_args(Outcome):
        raise ValueError(f"verdict {verdict!r}")
    counters = _typed(row, "counters", dict)
    if not all(type(number) is int for number in counters.values()):
        raise ValueError("counters")
    figures = {name: _interval(row[name]) for name in ("ratio", "host_us", "extra_us", "device_us")}
    reference = row["reference_us"]
    us = None if reference is None else float(reference)
    return Kept(node_id, subject, verdict, counters, reason, **figures, reference_us=us)


def _typed(row: Mapping[str, Any], name: str, kind: type) -> Any:
    if not isinstance(row[name], kind):
        raise ValueError(name)
    return row[name]


def _interval(figure: Mapping[str, float | None] | None) -> Interval | None:
    if figure is None:
        return None
    value, low, high = (figure[end] for end in ("value", "low", "high"))
    if value is None:
        return None
    return Interval(
        float(value),
        -math.inf if low is None else float(low),
        math.inf if high is None else float(high),
    )


def _said(error: Exception) -> str:
    return f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
