"""Options that several commands share, and how their values are parsed."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pytest_dispatchguard.model.errors import UserError

PLACE = re.compile(r"(?P<path>.+):(?P<line>[1-9][0-9]*)")
"""A line of a file."""


def which_rules(command: argparse.ArgumentParser) -> Any:
    """Add the options that select rules; return the group, for more options."""
    which = command.add_argument_group("rule selection")
    which.add_argument(
        "--select",
        type=code_list,
        metavar="CODES",
        help="run only these codes or prefixes, such as DG1,DG401; ALL runs every rule",
    )
    which.add_argument("--extend-select", type=code_list, metavar="CODES", help="run these as well")
    which.add_argument("--ignore", type=code_list, metavar="CODES", help="skip these")
    return which


def levels(group: Any, *, strict: bool = True) -> None:
    """Add the options for notes and uncertain findings."""
    group.add_argument(
        "--notes",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="show all notes, or none (default: the 20 most expensive)",
    )
    group.add_argument(
        "--pedantic", action="store_true", default=None, help="also show uncertain findings"
    )
    if strict:
        group.add_argument(
            "--strict", action="store_true", default=None, help="let notes fail the run"
        )


def output_options(command: argparse.ArgumentParser) -> Any:
    """Add the output options; return the group, for more options."""
    output = command.add_argument_group("output")
    format_and_file(output, report_formats())
    output.add_argument(
        "--exit-zero", action="store_true", help="exit with 0 even if there are findings"
    )
    color_option(output)
    return output


def format_and_file(command: Any, choices: Sequence[str], usual: str = "") -> None:
    """Add `--format` and `--output FILE`, whose name may choose the format: see `chosen_format`. `usual`
    says which one it is without either, if that is not always the first."""
    format_option(command, choices, None, usual)
    names = [suffix for suffix, form in _SUFFIXES.items() if form in choices]
    output_file(command, names=", ".join(names))


def format_option(
    command: Any, choices: Sequence[str], default: str | None = "text", usual: str = ""
) -> None:
    """Add `--format`, and ruff's spelling of it. If the default is None, no option means the first choice."""
    command.add_argument(
        "--format",
        "--output-format",
        choices=choices,
        default=default,
        metavar="FORMAT",
        help=f"output format: {', '.join(choices)} (default: {usual or default or choices[0]})",
    )


_SUFFIXES = {
    ".html": "html",
    ".json": "json",
    ".md": "markdown",
    ".sarif": "sarif",
    ".svg": "svg",
}


_Form = TypeVar("_Form", bound=str)


def chosen_format(arguments: argparse.Namespace, choices: Sequence[_Form]) -> _Form:
    """The format that `--format` says, or the name of the file of `--output`; the first one otherwise."""
    named = arguments.format
    if named is None and arguments.output is not None:
        named = _SUFFIXES.get(arguments.output.suffix.lower())
    return next((form for form in choices if form == named), choices[0])


def output_file(command: Any, otherwise: str = "standard output", names: str = "") -> None:
    """Add `--output`; `names` are endings of files that choose a format."""
    chosen = f"; {names} choose the format" if names else ""
    command.add_argument(
        "--output",
        type=named_path,
        metavar="FILE",
        help=f"write to FILE, atomically{chosen} (default: {otherwise})",
    )


def color_option(command: Any) -> None:
    """Add `--color`."""
    command.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        metavar="WHEN",
        help="use colors: auto, always or never (default: auto)",
    )


def baseline_option(command: Any) -> None:
    """Add `--baseline`."""
    command.add_argument(
        "--baseline", type=named_path, metavar="FILE", help="ignore the findings listed in FILE"
    )


def config_option(command: Any) -> None:
    """Add `--config`."""
    command.add_argument(
        "--config",
        type=named_path,
        metavar="FILE",
        help="read settings from FILE instead of pyproject.toml",
    )


def paths_argument(command: Any, more: str = "") -> None:
    """Add the paths to work on."""
    command.add_argument(
        "paths",
        nargs="*",
        type=named_path,
        metavar="PATH",
        help=f"files and directories (default: the current directory){more}",
    )


def how_read(command: Any) -> None:
    """Add the options of every command that reads the whole project."""
    config_option(command)
    command.add_argument(
        "--jobs",
        type=positive_number,
        metavar="N",
        help="number of processes (default: one per CPU)",
    )
    command.add_argument("--no-cache", action="store_true", help="do not read or write the cache")


def trace_options(command: Any) -> None:
    """Traces that findings are held against."""
    command.add_argument(
        "--trace",
        action="append",
        default=[],
        type=named_path,
        metavar="FILE",
        help="take costs, and which functions are hot, from a trace of PyTorch's profiler; repeatable",
    )
    map_option(command)


def map_option(command: Any) -> None:
    """Where the files of a trace are."""
    command.add_argument(
        "--map",
        action="append",
        type=_moved,
        default=[],
        metavar="FROM=TO",
        help="paths in the trace that begin with FROM are at TO, relative to the project",
    )


def _moved(text: str) -> tuple[str, str]:
    before, sign, after = text.partition("=")
    if not (before and sign):
        raise argparse.ArgumentTypeError(f"{text!r} is not FROM=TO, such as /workspace/src=src")
    return before, after


def given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings given on the command line."""
    names = ("select", "extend_select", "ignore", "pedantic", "notes", "strict", "baseline")
    return {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}


def named_path(text: str) -> Path:
    """A path, which must not be empty."""
    if not text:
        raise argparse.ArgumentTypeError("an empty path; leave it out, or name a path")
    return Path(text)


def working_folder() -> Path:
    """The current directory."""
    try:
        return Path.cwd()
    except OSError as error:
        said = error.strerror or error
        raise UserError(
            f"the current directory cannot be found: {said}; change to another"
        ) from None


def report_formats() -> tuple[str, ...]:
    """The formats that findings are told in."""
    from pytest_dispatchguard.report import FORMATS

    return tuple(FORMATS)


def code_list(text: str) -> tuple[str, ...]:
    """Codes and prefixes, separated by commas."""
    codes = tuple(word.strip() for word in text.split(",") if word.strip())
    if not codes:
        raise argparse.ArgumentTypeError("names no code")
    if place := next(filter(PLACE.fullmatch, codes), None):
        raise argparse.ArgumentTypeError(
            f"{place} is no code; to fix that line, use dispatchguard fix --select {place}"
        )
    return codes


def positive_number(text: str) -> int:
    """A whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def positive_seconds(text: str) -> float:
    """Seconds, up to a day."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds between 0 and 86400")
    return number


def size_list(text: str) -> tuple[int, ...]:
    """Whole numbers from 1, separated by commas."""
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
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write it as 1us or 0.5us")
    return number * units.get(unit, 1.0)


def seconds(text: str) -> float:
    """A time limit in seconds."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.05 <= number <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.05 to 3600")
    return number
