"""What pytest's settings say, read where pytest finds them: for commands that go with a run of pytest, and
neither start it nor import a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_dispatchguard.config.toml_file import read_toml
from pytest_dispatchguard.model.errors import UserError


@dataclass(frozen=True, slots=True)
class Setting:
    """What a setting says, and the folder of the file that says it: pytest's root."""

    value: str
    folder: Path


def setting(name: str, folder: Path) -> Setting | None:
    """What pytest, started in a folder, would find a setting to be; None where it is not set."""
    for here in (folder, *folder.parents):
        for file, read in _FILES.items():
            path = here / file
            said = read(path) if path.is_file() else None
            if said is not None:  # it asks no other file then
                return Setting(str(said[name]), here) if said.get(name) else None
    return None


Said = Mapping[str, Any]


def _own_ini(path: Path) -> Said | None:
    return _ini(path, "pytest") or {}


def _tox_ini(path: Path) -> Said | None:
    return _ini(path, "pytest")


def _setup_cfg(path: Path) -> Said | None:
    return _ini(path, "tool:pytest")


def _ini(path: Path, section: str) -> Said | None:
    from iniconfig import IniConfig, ParseError  # which pytest reads its files with, and brings

    try:
        found = IniConfig(str(path))
    except ParseError as error:  # its message shows the line, which may hold a password
        raise UserError(f"{path}: line {error.lineno + 1} is not valid in an ini file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 at byte {error.start}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    return dict(found[section].items()) if section in found else None


def _own_toml(path: Path) -> Said | None:
    return _table(read_toml(path, str(path)), "pytest") or {}


def _pyproject(path: Path) -> Said | None:
    said = _table(_table(read_toml(path, str(path)), "tool") or {}, "pytest")
    if said is None:
        return None
    # Those of strings beneath, or the settings themselves.
    return _table(said, "ini_options") if "ini_options" in said else said or None


def _table(data: Said, name: str) -> Said | None:
    found = data.get(name)
    return found if isinstance(found, dict) else None


_FILES: Mapping[str, Callable[[Path], Said | None]] = {
    "pytest.toml": _own_toml,
    ".pytest.toml": _own_toml,
    "pytest.ini": _own_ini,
    ".pytest.ini": _own_ini,
    "pyproject.toml": _pyproject,
    "tox.ini": _tox_ini,
    "setup.cfg": _setup_cfg,
}
"""In the order in which pytest asks them."""
