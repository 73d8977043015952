"""Options that several commands have, and what their words mean."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pytest_dispatchguard.model import UserError


def which_rules(command: argparse.ArgumentParser) -> Any:
    """Which rules may speak; gives the group, for more options."""
    which = command.add_argument_group("which rules")
    which.add_argument(
        "--select", type=code_list, metavar="CODES", help="only these codes or prefixes: DG1,DG401"
    )
    which.add_argument("--extend-select", type=code_list, metavar="CODES", help="these as well")
    which.add_argument("--ignore", type=code_list, metavar="CODES", help="not these")
    return which


def levels(group: Any, *, strict: bool = True) -> None:
    """What beside findings is told: notes, and what is only maybe so."""
    group.add_argument(
        "--notes",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="show all notes, or none (default: those that cost most)",
    )
    group.add_argument(
        "--pedantic", action="store_true", default=None, help="show what is only maybe so, too"
    )
    if strict:
        group.add_argument(
            "--strict", action="store_true", default=None, help="notes fail the run as well"
        )


def output_options(command: argparse.ArgumentParser) -> Any:
    """What becomes of findings; gives the group, for more options."""
    output = command.add_argument_group("output")
    output.add_argument("--format", choices=_formats(), help="default: text")
    output.add_argument(
        "--output",
        type=named_path,
        metavar="FILE",
        help="write the report to a file, whole or not at all",
    )
    output.add_argument("--exit-zero", action="store_true", help="exit with 0 whatever is found")
    output.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="default: auto"
    )
    return output


def how_read(command: Any) -> None:
    """How the project is read: by every command that reads it all."""
    command.add_argument(
        "--config",
        type=named_path,
        metavar="FILE",
        help="configuration file in place of pyproject.toml",
    )
    command.add_argument(
        "--jobs", type=positive_number, metavar="N", help="processes (default: one a processor)"
    )
    command.add_argument("--no-cache", action="store_true", help="neither read nor write the cache")


def given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the command line says in place of the configuration."""
    names = ("select", "extend_select", "ignore", "pedantic", "notes", "strict", "baseline")
    return {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}


def named_path(text: str) -> Path:
    """A path; the empty word names none."""
    if not text:
        raise argparse.ArgumentTypeError("an empty name; leave it out, or name a path")
    return Path(text)


def working_folder() -> Path:
    """The folder that the command is run in."""
    try:
        return Path.cwd()
    except OSError as error:
        said = error.strerror or error
        raise UserError(f"the working folder cannot be found: {said}; change to another") from None


def _formats() -> tuple[str, ...]:
    from pytest_dispatchguard.report import FORMATS

    return tuple(FORMATS)


def code_list(text: str) -> tuple[str, ...]:
    """Codes and prefixes, parted by commas."""
    codes = tuple(word.strip() for word in text.split(",") if word.strip())
    if not codes:
        raise argparse.ArgumentTypeError("names no code")
    return codes


def positive_number(text: str) -> int:
    """A number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)


def positive_seconds(text: str) -> float:
    """Seconds, up to a day."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, up to 86400")
    return number


def size_list(text: str) -> tuple[int, ...]:
    """Numbers from 1, parted by commas."""
    return tuple(positive_number(word.strip()) for word in text.split(",") if word.strip())


def microseconds(text: str) -> float:
    """A time with its unit, in microseconds."""
    units = {"us": 1.0, "µs": 1.0, "μs": 1.0, "ms": 1e3, "ns": 1e-3}
    unit = next((unit for unit in units if text.endswith(unit)), "")
    try:
        number = float(text.removesuffix(unit))
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write it as 1us or 0.5us")
    return number * units.get(unit, 1.0)


def seconds(text: str) -> float:
    """A number of seconds that something may take."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.05 <= number <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.05 to 3600")
    return number
