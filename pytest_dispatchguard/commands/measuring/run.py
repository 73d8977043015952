"""`dispatchguard run`: runs a program and reports its device syncs and repeated work."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from pytest_dispatchguard.commands import CLEAN, FOUND
from pytest_dispatchguard.commands.options import (
    baseline_option,
    config_option,
    given_settings,
    output_options,
    which_rules,
    working_folder,
)
from pytest_dispatchguard.commands.output import render_report, say

_VALUED = tuple(
    f"--{name}"
    for name in (
        *("select", "extend-select", "ignore"),
        *("format", "output-format", "output", "color", "baseline", "config"),
    )
)
"""Options that take a value as the next argument."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = "dispatchguard run [OPTIONS] (SCRIPT | -m MODULE | -- COMMAND) [ARGUMENTS]"
    parser.description = (
        "Run a program and report work that its hot code repeats on every call. Report where the host waits "
        "for the device, too, if there is one, or with --ghost. Arguments after the program are passed to it."
    )
    parser.epilog = (
        "Exit status: the program's own if that is not 0; otherwise 0 clean, 1 findings, "
        "2 usage or configuration error."
    )
    parser.add_argument(
        "--ghost",
        action="store_true",
        help="run code that uses cuda on a machine without a GPU; it computes on the CPU",
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help="record calls and argument types for `dispatchguard check` to use",
    )
    parser.add_argument(
        "--ops",
        action="store_true",
        help="also report the lines that dispatch the most operations, and redundant operations",
    )
    which_rules(parser)
    output_options(parser)
    baseline_option(parser)
    config_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from pytest_dispatchguard.commands.measuring.run_program import Wishes, watched

    if arguments.program is None:
        arguments.parser.error("nothing to run: name a script, -m MODULE, or -- COMMAND")
    given = given_settings(arguments)
    wishes = Wishes(
        arguments.ghost, arguments.ops, arguments.record, arguments.config, given, working_folder()
    )
    status, found = watched(
        arguments.program,
        wishes,
        lambda report, sources, root: render_report(arguments, report, sources, sys.stdout, root),
        say,
    )
    return status or (FOUND if found and not arguments.exit_zero else CLEAN)


def own_words(given: Sequence[str]) -> tuple[list[str], Any]:
    """The arguments of the command, and those of the program."""
    from pytest_dispatchguard.runtime.program import words

    return words(given, _VALUED)
