"""Validates the values of settings; every error says where the value is and what to write instead."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from pytest_dispatchguard.config.globs import glob_pattern
from pytest_dispatchguard.config.settings import ALL
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.paths import absolute
from pytest_dispatchguard.spelling import did_you_mean, nearest


def string_list(value: object, where: str) -> tuple[str, ...]:
    """A list of strings that are not empty."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UserError(f'{where} must be a list of strings, such as ["…"]')
    if not all(item.strip() for item in value):
        raise UserError(f"{where} contains an empty string; remove it")
    return tuple(item.strip() for item in value)


def code_list(value: object, where: str, known_codes: Collection[str]) -> tuple[str, ...]:
    """A list of rule codes or prefixes; letter case does not matter."""
    written = string_list(value, where)
    codes = tuple(w if "-" in w else w.upper() for w in written)
    for code in codes:
        complaint = unknown_code(code, known_codes)
        if complaint is not None:
            raise UserError(f"{where}: {complaint}")
    return codes


def unknown_code(code: str, known_codes: Collection[str]) -> str | None:
    """The error for a code or prefix that matches no rule; None if one matches. If `known_codes` maps codes
    to names, a rule's name is answered with its code."""
    if code == ALL or (code and any(known.startswith(code) for known in known_codes)):
        return None
    names = known_codes if isinstance(known_codes, Mapping) else {}
    near_name = nearest(code, names.values()) if "-" in code else None
    if near_name is not None:
        named = next(known for known, name in names.items() if name == near_name)
        return f'"{code}" is not a code; for {near_name}, write "{named}"'
    stem = next(
        code[:n] for n in range(len(code), -1, -1) if _having(code[:n], known_codes) or not n
    )
    if 4 <= len(stem) < len(code) and (same := _having(stem, known_codes)) and stem not in same:
        return f'unknown code "{code}"; the codes in {stem} are: {", ".join(same)}'
    families = sorted({known[:-2] for known in known_codes})
    if code[-1:].isdigit() and stem == code[:-1] and any(f[:-1] == stem for f in families):
        return f'unknown code "{code}"; the families are: {", ".join(_having(stem, families))}'
    return (
        f'unknown code "{code}"; {did_you_mean(code, known_codes if len(code) > 3 else families)}'
    )


def _having(prefix: str, words: Iterable[str]) -> list[str]:
    return sorted(word for word in words if word.startswith(prefix))


def glob_list(value: object, where: str) -> tuple[str, ...]:
    """A list of globs."""
    globs = string_list(value, where)
    for glob in globs:
        _check_glob(glob, where)
    return globs


def _check_glob(glob: str, where: str) -> None:
    if glob.startswith("!"):
        raise UserError(
            f'{where}: "{glob}": negation is not supported; write a glob of what to match'
        )
    if not glob.strip("./"):
        raise UserError(f'{where}: "{glob}" matches the whole project; name a part of it')
    try:
        glob_pattern(glob)
    except re.error as error:
        raise UserError(f'{where}: "{glob}" is not a valid glob: {error.msg}') from None


def name_list(value: object, where: str) -> tuple[str, ...]:
    """A list of dotted names."""
    names = string_list(value, where)
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise UserError(f'{where}: "{name}" is not a dotted name such as "package.Name"')
    return names


def codes_by_glob(
    value: object, where: str, known_codes: Collection[str]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """A table from globs to lists of codes."""
    if not isinstance(value, dict):
        raise UserError(
            f'{where} must be a table of globs to lists of codes, such as {{"tests/*" = ["DG4"]}}'
        )
    for glob in value:
        _check_glob(glob, where)
    return tuple(
        (glob, code_list(codes, f'{where} "{glob}"', known_codes)) for glob, codes in value.items()
    )


def budget_table(value: object, where: str) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """A table from test IDs to limits. The limits themselves are checked when the tests run."""
    if not isinstance(value, dict) or not all(isinstance(table, dict) for table in value.values()):
        raise UserError(
            f"{where} must be a table of test IDs to limits, such as "
            '{"tests/test_ops.py::*" = {dispatches = 1}}'
        )
    return tuple(value.items())


_TRACE_LIMITS: Mapping[str, float] = {"waits_per_step": math.inf, "idle_share": 1}
"""The limits that a trace may have, and the highest of each."""


def trace_limits(value: object, where: str) -> tuple[tuple[str, float], ...]:
    """A table of limits for traces."""
    if not isinstance(value, dict):
        raise UserError(
            f"{where} must be a table of limits, such as {{waits_per_step = 2, idle_share = 0.1}}"
        )
    for name, limit in value.items():
        if name not in _TRACE_LIMITS:
            raise UserError(f'{where}: unknown limit "{name}"; {did_you_mean(name, _TRACE_LIMITS)}')
        most = _TRACE_LIMITS[name]
        # The comparison is false for what is not a number.
        number = isinstance(limit, (int, float)) and not isinstance(limit, bool)
        if not number or not 0 <= limit <= most or math.isinf(limit):
            wanted = "a share from 0 to 1" if most == 1 else "a number from 0"
            raise UserError(f"{where}: {name} must be {wanted}")
    return tuple(value.items())


def boolean(value: object, where: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise UserError(f"{where} must be true or false")
    return value


def file_path(value: object, where: str, folder: Path) -> Path:
    """A path, relative to the folder of the file or command line that names it."""
    if not isinstance(value, (str, os.PathLike)) or not str(value):
        raise UserError(f"{where} must be a file path")
    return absolute(folder / value)
