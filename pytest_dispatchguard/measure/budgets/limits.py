"""The limits of a test, from its markers and the project's settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pytest_dispatchguard.measure.timing.measurements import AGAINST_BASE, OF_GUARDS, OF_TIME
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.verdicts import Limit
from pytest_dispatchguard.runtime.counters import counters
from pytest_dispatchguard.spelling import did_you_mean

NAMES = (*OF_TIME, OF_GUARDS, AGAINST_BASE, *counters.NAMES)
"""All names that can have a limit."""

Marker = tuple[tuple[Any, ...], Mapping[str, Any]]
"""The positional and the named arguments of a marker."""


def limits_of(given: Mapping[str, Any], where: str) -> dict[str, Limit]:
    """The limits of one marker or table: a number, or a number and a tolerance that may be added to it."""
    found = {}
    for name, value in given.items():
        if name not in NAMES:
            raise UserError(f'{where}: unknown limit "{name}"; {did_you_mean(name, NAMES)}')
        parts = tuple(value) if isinstance(value, list | tuple) else (value, 0)
        if len(parts) != 2 or not all(_is_number(part) for part in parts):
            raise UserError(
                f"{where}: {name} must be a number, or a number and a tolerance such as (400, 10), "
                f"not {value!r}"
            )
        found[name] = Limit(name, parts[0], parts[1])
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 10**15


def limits_for(
    node_id: str,
    markers: Iterable[Marker],
    settings: Iterable[tuple[str, Mapping[str, Any]]],
    where: str,
) -> dict[str, Limit]:
    """The limits of a test: of its markers, the nearest last, then of the settings whose glob matches."""
    found: dict[str, Limit] = {}
    for positional, given in markers:
        if positional:
            raise UserError(f"{where}: limits are given by name, such as {where}(dispatches=1)")
        found |= limits_of(given, where)
    for glob, table in settings:
        if _node_glob(glob).fullmatch(node_id):
            found |= limits_of(table, _where(glob))
    return found


def check_settings(settings: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Validates the limits in the settings, also those that match no test."""
    for glob, table in settings:
        limits_of(table, _where(glob))


def _where(glob: str) -> str:
    return f'[tool.dispatchguard.budgets] "{glob}"'


def _node_glob(glob: str) -> re.Pattern[str]:
    """Matches `*` and `?` only, as brackets belong to the names of parametrized tests."""
    words = {"*": ".*", "?": "."}
    return re.compile("".join(words.get(c, re.escape(c)) for c in glob), re.DOTALL)
