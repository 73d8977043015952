"""`check --show-files` and `check --show-settings`: the files that would be checked, and the settings in
effect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pytest_dispatchguard.commands.places import from_here
from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.config.settings import SETTINGS
from pytest_dispatchguard.lint.request import Request, inputs
from pytest_dispatchguard.lint.session import settings_only


def files_in(request: Request) -> str:
    """The files that would be checked, one per line, relative to the current directory."""
    config = _config(request)
    shown = from_here(config.root)
    discovery, _ = inputs(request, config)
    return "".join(f"{shown(file.rel)}\n" for file in discovery.targets)


def settings_in(request: Request) -> str:
    """The settings in effect, as TOML that would set them; unset ones are commented out."""
    config = _config(request)
    said = config.file if config.file is not None else "none"
    lines = [
        f"# Project root: {config.root}",
        f"# Configuration file: {said}",
        f"# requires-python: {config.requires_python or 'not given'}",
        f"# torch requirement: {config.torch_requirement or 'not given'}",
        "[tool.dispatchguard]",
    ]
    for setting in SETTINGS:
        value = getattr(config, setting.key.replace("-", "_"))
        if value is None:
            lines.append(f"# {setting.key} is not set")
        else:
            pairs = setting.kind in ("codes by glob", "budgets", "trace")
            lines.append(f"{setting.key} = {_toml(dict(value) if pairs else value)}")
    return "\n".join(lines) + "\n"


def _config(request: Request) -> Config:
    return settings_only(
        request.paths, request.cwd, request.config_file, request.settings, request.cache
    )


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        rows = (f"{json.dumps(key, ensure_ascii=False)} = {_toml(v)}" for key, v in value.items())
        return f"{{ {', '.join(rows)} }}" if value else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    # Numbers, booleans and the strings in settings look the same in JSON and TOML.
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
