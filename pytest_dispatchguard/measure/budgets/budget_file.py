"""Reads and writes `overhead-budgets.toml`: the reviewed counts, a table for each test, a line for each
version."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.model.verdicts import Verdict
from pytest_dispatchguard.runtime.counters import counters

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]  # there before 3.11 only

NAME = "overhead-budgets.toml"
_HEADER = """\
# What one call of each subject costs. Written by `pytest --overhead-budget=update`: review changes as those
# of code. `pytest --overhead-budget=count` fails where a call does more than is counted here,
# `pytest --overhead-budget` also where it takes longer, as a ratio to its reference.
"""

_MARGIN = 0.05
"""The margin of a recorded ratio over the measured one, for differences between machines."""

NAMES = ("ratio", *(name for name in counters.NAMES if name not in counters.OF_PROCESSOR))
"""The recorded values. Native instructions depend on the processor, and are not recorded."""

Recorded = dict[str, dict[str, dict[str, float]]]
"""Values by test (and subject) and version."""


def load(path: Path) -> Recorded:
    """The content of the file; empty if there is none."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise UserError(f"{path.name}: cannot be read: {reason}") from None
    try:
        data: Recorded = tomllib.loads(text.replace("\r\n", "\n"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        said = str(error).splitlines()[0]
        raise UserError(
            f"{path.name}: not valid TOML: {said}; correct it, or remove it and run --overhead-budget=update"
        ) from None
    for key, versions in data.items():
        if not (isinstance(versions, dict) and all(map(_are_figures, versions.values()))):
            raise UserError(
                f'{path.name}: "{key}" holds no figures; remove it and run --overhead-budget=update'
            )
    return data


def _are_figures(value: object) -> bool:
    return isinstance(value, dict) and all(
        not isinstance(number, bool)
        and (
            (isinstance(number, int) and name in NAMES)
            or (isinstance(number, int | float) and name == "ratio" and math.isfinite(number))
        )
        for name, number in value.items()
    )


def key_of(node_id: str, subject: str, several: bool) -> str:
    """The key of a subject: its test, with its own name if the test has several."""
    return f"{node_id} ({subject})" if several else node_id


def version_of(machine: Mapping[str, str]) -> str:
    """The minor versions of Python and torch, which counts are valid for."""
    parts = [f"{name} {'.'.join(number.split('.')[:2])}" for name, number in machine.items()]
    return ", ".join(parts)


def updated(
    recorded: Recorded,
    verdicts: Iterable[tuple[str, Verdict]],
    version: str,
    gone: Callable[[str], bool],
) -> Recorded:
    """The record with the new results, and without what is `gone`."""
    found = {key: dict(versions) for key, versions in recorded.items() if not gone(key)}
    for key, verdict in verdicts:
        figures: dict[str, float] = {n: v for n, v in verdict.counters.items() if n in NAMES}
        before = found.get(key, {}).get(version, {}).get("ratio")
        ratio = verdict.measured.ratio if verdict.measured is not None else None
        if ratio is not None and math.isfinite(ratio.high):
            figures["ratio"] = _ratio(ratio, before)
        elif verdict.measured is None and before is not None:
            figures["ratio"] = before
        found.setdefault(key, {})[version] = figures
    return found


def _ratio(measured: Interval, before: float | None) -> float:
    """The ratio to record. The old one stays if it still holds and is not much too high, so that the file
    does not change with every run; else the upper bound with a margin, rounded up."""
    wanted = measured.high * (1 + _MARGIN)
    if before is not None and measured.high <= before <= wanted * (1 + 2 * _MARGIN):
        return before
    step = 0.01 if wanted < 2 else 0.05 if wanted < 5 else 0.1 if wanted < 20 else 1.0
    return round(math.ceil(wanted / step - 1e-9) * step, 2)


def as_text(recorded: Recorded) -> str:
    """The file's text: sorted, so that the same record gives the same bytes."""
    lines = [_HEADER]
    for key in sorted(recorded):
        lines.append(f"[{_quoted(key)}]")
        for version in sorted(recorded[key]):
            figures = recorded[key][version]
            inside = ", ".join(f"{n} = {figures[n]}" for n in NAMES if n in figures)
            lines.append(f"{_quoted(version)} = {{ {inside} }}")
        lines.append("")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """A TOML string: JSON's, but for DEL, which TOML wants escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
