"""`overhead-budgets.toml`: what was counted when it was last reviewed, a table a test, a line a version."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from pytest_dispatchguard.model import UserError, Verdict
from pytest_dispatchguard.runtime.counters import NAMES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]  # there before 3.11 only

NAME = "overhead-budgets.toml"
_HEADER = """\
# What one call of each subject does, counted. Written by `pytest --overhead-budget=update`: review changes
# as those of code. `pytest --overhead-budget=count` fails where a call does more than is recorded here.
"""

Recorded = dict[str, dict[str, dict[str, int]]]
"""Test (and subject) to versions to counters."""


def load(path: Path) -> Recorded:
    """What the file records; empty where there is none."""
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
            f"{path.name}: not valid TOML: {said}; mend it, or remove it and run --overhead-budget=update"
        ) from None
    for key, versions in data.items():
        if not (isinstance(versions, dict) and all(map(_is_counters, versions.values()))):
            raise UserError(
                f'{path.name}: "{key}" holds no counters; remove it and run --overhead-budget=update'
            )
    return data


def _is_counters(value: object) -> bool:
    return isinstance(value, dict) and all(
        name in NAMES and isinstance(number, int) and not isinstance(number, bool)
        for name, number in value.items()
    )


def key_of(node_id: str, subject: str, several: bool) -> str:
    """What a subject is recorded under: its test, and its own name where the test has several."""
    return f"{node_id} ({subject})" if several else node_id


def version_of(machine: Mapping[str, str]) -> str:
    """What counts hold for: the minor versions of Python and torch."""
    parts = [f"{name} {'.'.join(number.split('.')[:2])}" for name, number in machine.items()]
    return ", ".join(parts)


def updated(
    recorded: Recorded,
    verdicts: Iterable[tuple[str, Verdict]],
    version: str,
    gone: Callable[[str], bool],
) -> Recorded:
    """The record with what was counted now, and without what is `gone`."""
    found = {key: dict(versions) for key, versions in recorded.items() if not gone(key)}
    for key, verdict in verdicts:
        found.setdefault(key, {})[version] = dict(verdict.counters)
    return found


def as_text(recorded: Recorded) -> str:
    """The file's text: sorted, so that the same record gives the same bytes."""
    lines = [_HEADER]
    for key in sorted(recorded):
        lines.append(f"[{_quoted(key)}]")
        for version in sorted(recorded[key]):
            counters = recorded[key][version]
            inside = ", ".join(f"{n} = {counters[n]}" for n in NAMES if n in counters)
            lines.append(f"{_quoted(version)} = {{ {inside} }}")
        lines.append("")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """A TOML string: JSON's, but for DEL, which TOML wants escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
