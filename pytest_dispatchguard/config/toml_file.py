"""Reads pyproject.toml and its `[tool.dispatchguard]`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_dispatchguard.model.errors import UserError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]  # there before 3.11 only


def read_toml(path: Path, shown: str) -> dict[str, Any]:
    """The content of a TOML file; errors call it `shown`."""
    try:
        text = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
        data: dict[str, Any] = tomllib.loads(text)
    except OSError as error:
        raise UserError(f"{shown}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{shown}: not valid TOML: not UTF-8 at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{shown}: not valid TOML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise UserError(f"{shown}: cannot be read: nested too deeply") from None
    return data


def own_table(data: Mapping[str, Any], shown: str, *, bare: bool) -> Mapping[str, Any]:
    """The `[tool.dispatchguard]` table; of a `bare` file without one, the whole file."""
    tool = data.get("tool")
    if isinstance(tool, dict) and "dispatchguard" in tool:
        table = tool["dispatchguard"]
        if not isinstance(table, dict):
            raise UserError(f"{shown}: [tool.dispatchguard] must be a table")
        return table
    return data if bare else {}


def has_own_table(pyproject: Path) -> bool:
    """Whether a pyproject.toml configures dispatchguard. A broken one does not."""
    try:
        data = pyproject.read_bytes()
        if b"dispatchguard" not in data:
            return False
        return "dispatchguard" in tomllib.loads(data.decode("utf-8-sig")).get("tool", {})
    except (OSError, ValueError, TypeError, RecursionError):
        return False
