"""Builds a Config from pyproject.toml and the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_dispatchguard.config.config import DEFAULT_SRC, Config
from pytest_dispatchguard.config.project_root import find_root, nested_roots
from pytest_dispatchguard.config.settings import SETTINGS, Kind
from pytest_dispatchguard.config.toml_file import own_table, read_toml
from pytest_dispatchguard.config.validation import (
    boolean,
    budget_table,
    code_list,
    codes_by_glob,
    file_path,
    glob_list,
    name_list,
    string_list,
    trace_limits,
)
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.paths import absolute, is_file, is_folder
from pytest_dispatchguard.spelling import did_you_mean


def load_config(
    paths: Sequence[Path],
    *,
    cwd: Path,
    config_file: Path | None = None,
    known_codes: Collection[str],
    **overrides: Any,
) -> Config:
    """The settings for a run over paths: those of the file, overridden by the command line.

    ``overrides`` are fields of Config from the command line; None means not given.
    `select` and `baseline` replace the file's values, the other lists extend them.
    """
    asked = [absolute(cwd / path) for path in paths] or [cwd]
    given = {key: value for key, value in overrides.items() if value is not None}
    chosen = None if config_file is None else absolute(cwd / config_file)
    if chosen is not None and not is_file(chosen):
        raise UserError(f"{config_file}: {_why_no_file(chosen)}")
    root = find_root(asked, chosen)
    file = chosen or next((f for f in (root / "pyproject.toml",) if is_file(f)), None)
    shown = "" if file is None else _shown(file, cwd)
    data: Mapping[str, Any] = {} if file is None else read_toml(file, shown)
    table = own_table(data, shown, bare=file is not None and file.name != "pyproject.toml")
    settings = _from_table(table, shown, known_codes, file.parent if file else root)
    _override(settings, given, known_codes, cwd)
    owner = root / "pyproject.toml"
    if owner != file:
        data = read_toml(owner, _shown(owner, cwd)) if is_file(owner) else {}
    project = data.get("project")
    metadata: Mapping[str, Any] = project if isinstance(project, dict) else {}
    requires = metadata.get("requires-python")
    return Config(
        root=root,
        file=file,
        nested=nested_roots(root),
        requires_python=requires if isinstance(requires, str) else None,
        torch_requirement=_torch_requirement(metadata),
        **settings,
    )


def budgets_of(pyproject: Path | None) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """`[tool.dispatchguard.budgets]`: globs of test IDs, and limits."""
    if pyproject is None or not is_file(pyproject):
        return ()
    table = own_table(read_toml(pyproject, pyproject.name), pyproject.name, bare=False)
    where = f"{pyproject.name}: [tool.dispatchguard] budgets"
    return budget_table(table["budgets"], where) if "budgets" in table else ()


def trace_limits_of(pyproject: Path) -> tuple[tuple[str, float], ...]:
    """`[tool.dispatchguard.trace]`: limits for traces."""
    if not is_file(pyproject):
        return ()
    table = own_table(read_toml(pyproject, pyproject.name), pyproject.name, bare=False)
    where = f"{pyproject.name}: [tool.dispatchguard] trace"
    return trace_limits(table["trace"], where) if "trace" in table else ()


def _from_table(
    table: Mapping[str, Any], shown: str, known_codes: Collection[str], folder: Path
) -> dict[str, Any]:
    readers: dict[Kind, Callable[[object, str], object]] = {
        "codes": lambda value, where: code_list(value, where, known_codes),
        "codes by glob": lambda value, where: codes_by_glob(value, where, known_codes),
        "globs": glob_list,
        "patterns": string_list,
        "folders": string_list,
        "names": name_list,
        "file": lambda value, where: file_path(value, where, folder),
        "flag": boolean,
        "budgets": budget_table,
        "trace": trace_limits,
    }
    kinds = {setting.key: setting.kind for setting in SETTINGS}
    settings = {}
    where = f"{shown}: [tool.dispatchguard]"
    for key, value in table.items():
        if key not in kinds:
            advice = did_you_mean(key, kinds)
            raise UserError(f'{where}: unknown key "{key}"; {advice}')
        settings[key.replace("-", "_")] = readers[kinds[key]](value, f"{where} {key}")
    return settings


def _override(
    settings: dict[str, Any], given: Mapping[str, Any], known_codes: Collection[str], cwd: Path
) -> None:
    """Applies the command line to the file's settings, in place."""
    for key, value in given.items():
        option = "--" + key.replace("_", "-")
        if key in ("pedantic", "strict"):
            settings[key] = bool(value) or settings.get(key, False)
        elif key == "notes":
            settings[key] = settings.get(key) if value is None else value
        elif key == "baseline":
            settings[key] = file_path(value, option, cwd)
        elif key in ("select", "extend_select", "ignore"):
            codes = code_list(list(value), option, known_codes)
            settings[key] = codes if key == "select" else (*settings.get(key, ()), *codes)
            if key != "ignore":
                # A code on the command line wins over the file's `ignore`.
                own = given.get("ignore") or ()
                settings["ignore"] = tuple(
                    code for code in settings.get("ignore", ()) if code in own or code not in codes
                )
        else:
            raise TypeError(f"{key} cannot be set on the command line")


def _shown(path: Path, cwd: Path) -> str:
    return str(path.relative_to(cwd)) if cwd in path.parents else str(path)


def _why_no_file(path: Path) -> str:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        pass
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    return "no such configuration file"


_TORCH = re.compile(r"\s*torch\s*(?:\[[^\]]*\]\s*)?(?P<specifier>(?![\w.-])[^;@]*)", re.IGNORECASE)


def _torch_requirement(project: Mapping[str, Any]) -> str | None:
    extras = project.get("optional-dependencies")
    groups = [project.get("dependencies"), *(extras.values() if isinstance(extras, dict) else ())]
    found = None
    for group in groups:
        for requirement in group if isinstance(group, list) else ():
            match = _TORCH.match(requirement) if isinstance(requirement, str) else None
            if match is None:
                continue
            specifier = match["specifier"].strip().strip("()").replace(" ", "")
            if specifier:
                return specifier
            found = ""
    return found


def idle_folders(config: Config) -> Iterator[str]:
    """A warning for each `src` folder that does not exist."""
    if config.src == DEFAULT_SRC:
        return
    for folder in config.src:
        if not is_folder(config.root / folder):
            yield f'src: "{folder}" is not a directory in the project'


_VERSIONS = re.compile(
    r"\s*(?:~=|===?|!=|<=?|>=?)\s*v?(?:\d+!)?\d+(?:\.\d+)*(?:\.\*)?"
    r"(?:[-_.]?(?:a|b|c|rc|alpha|beta|pre|preview|post|rev|r|dev)[-_.]?\d*)*(?:\+[\w.]+)?\s*",
    re.IGNORECASE,
)


def unread_python(config: Config) -> Iterator[str]:
    """A warning if `requires-python` is not a list of version specifiers; rules then assume any Python."""
    requires = config.requires_python or ""
    if not all(_VERSIONS.fullmatch(part) for part in requires.split(",") if part.strip()):
        yield f'requires-python: "{requires}" is not a version specifier; assuming any Python'
