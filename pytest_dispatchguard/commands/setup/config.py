"""`dispatchguard config`: lists or describes the settings."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from pytest_dispatchguard.commands import CLEAN
from pytest_dispatchguard.commands.options import format_option
from pytest_dispatchguard.commands.output import write
from pytest_dispatchguard.config.settings import KINDS, SETTINGS, Setting, schema
from pytest_dispatchguard.model.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "List the settings of [tool.dispatchguard], or describe one. "
        "`dispatchguard check --show-settings` shows the values in effect."
    )
    parser.add_argument("key", nargs="?", metavar="KEY", help="a setting (default: list all)")
    format_option(parser, ("text", "json", "schema"))


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    if arguments.format == "schema":
        if arguments.key is not None:
            raise UserError("--format schema describes all settings: leave KEY out")
        write(as_json(schema()), sys.stdout)
        return CLEAN
    shown = SETTINGS if arguments.key is None else (_named(arguments.key),)
    if arguments.format == "json":
        text = as_json({"schema": 1, "settings": [_entry(setting) for setting in shown]})
    else:
        text = _listing(shown) if arguments.key is None else _described(shown[0])
    write(text, sys.stdout)
    return CLEAN


def as_json(data: object) -> str:
    """A document as indented JSON."""
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _named(key: str) -> Setting:
    from pytest_dispatchguard.spelling import did_you_mean

    keys = {setting.key: setting for setting in SETTINGS}
    if key not in keys:
        raise UserError(f"no setting {key!r}; {did_you_mean(key, keys)}")
    return keys[key]


def _entry(setting: Setting) -> dict[str, str | None]:
    return {
        "key": setting.key,
        "type": KINDS[setting.kind],
        "default": setting.default or None,
        "example": setting.example,
        "description": setting.doc,
    }


def _listing(settings: Sequence[Setting]) -> str:
    from textwrap import fill

    from pytest_dispatchguard.commands.output import width

    blocks = []
    for setting in settings:
        doc = fill(
            setting.doc,
            width(),
            initial_indent="  ",
            subsequent_indent="  ",
            break_on_hyphens=False,
        )
        blocks.append(f"{setting.key}  ({KINDS[setting.kind]})\n{doc}\n")
    return "\n".join(blocks)


def _described(setting: Setting) -> str:
    default = f"Default: {setting.default}\n" if setting.default else ""
    return (
        f"{setting.doc}\n\n{default}Type: {KINDS[setting.kind]}\n"
        f"Example:\n\n  [tool.dispatchguard]\n  {setting.example}\n"
    )
