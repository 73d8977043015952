"""Sorts and groups verdicts for the table, with pytest-benchmark's names for the columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from pytest_dispatchguard.model.verdicts import Verdict

Key = Callable[[Verdict], str]


def _name(verdict: Verdict) -> str:
    """The name of a test; its parameters may contain colons."""
    before, bracket, params = verdict.node_id.partition("[")
    return before.rpartition("::")[2] + bracket + params


def _func(verdict: Verdict) -> str:
    return _name(verdict).partition("[")[0]


def _param(verdict: Verdict) -> str:
    return verdict.node_id.partition("[")[2].removesuffix("]")


GROUPS: Mapping[str, Key] = {
    "name": _name,
    "func": _func,
    "fullname": lambda verdict: verdict.node_id,
    "fullfunc": lambda verdict: verdict.node_id.partition("[")[0],
    "file": lambda verdict: verdict.node_id.partition("::")[0],
    "param": _param,
    "subject": lambda verdict: verdict.subject,
}
"""What tests can be grouped by."""

NAMED: Mapping[str, Key] = {name: GROUPS[name] for name in ("name", "fullname")}
_OF_TIME = {
    "ratio": "ratio",
    "extra_us": "extra_us",
    "device_us": "device_us",
    "reference_us": "reference_us",
    "subject_us": "subject_us",
    "host_us": "subject_us",
}
TIMES = (*_OF_TIME, "guard_us", "regression")
"""The measured figures; rows can also be sorted by counters."""


def in_order(verdicts: Sequence[Verdict], by: str) -> list[Verdict]:
    """Sorted by a name, or by a figure, the highest first and missing ones last."""
    named = NAMED.get(by)
    if named is not None:
        return sorted(verdicts, key=lambda verdict: (_natural(named(verdict)), verdict.subject))

    def place(verdict: Verdict) -> tuple[bool, float, str, str]:
        value = _figure(verdict, by)
        return value is None, -(value or 0.0), verdict.node_id, verdict.subject

    return sorted(verdicts, key=place)


def _figure(verdict: Verdict, name: str) -> float | None:
    if name not in TIMES:
        return verdict.counters.get(name)
    if name == "guard_us":
        found = verdict.compiled.guard_us if verdict.compiled else None
    elif name == "regression":
        found = verdict.base.change if verdict.base else None
    else:
        found = getattr(verdict.measured, _OF_TIME[name], None)
    return None if found is None else found.value


def in_groups(verdicts: Sequence[Verdict], by: Sequence[str]) -> list[tuple[str, list[Verdict]]]:
    """Verdicts grouped by their labels, ``func=test_add param=4``, in the order of the labels."""
    groups: dict[tuple[str, ...], list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault(tuple(GROUPS[name](verdict) for name in by), []).append(verdict)
    return [
        (
            " ".join(f"{name}={label}" for name, label in zip(by, labels, strict=True)),
            groups[labels],
        )
        for labels in sorted(groups, key=lambda labels: [_natural(label) for label in labels])
    ]


def _natural(text: str) -> str:
    """A sort key by which `n4` comes before `n256`."""
    return re.sub("[0-9]+", lambda digits: digits[0].zfill(20), text)
