"""`dispatchguard run`: runs a program and tells what it does in vain, and where it waits."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from pytest_dispatchguard.commands import CLEAN, FOUND
from pytest_dispatchguard.commands.options import (
    given_settings,
    named_path,
    output_options,
    which_rules,
    working_folder,
)
from pytest_dispatchguard.commands.output import render_report, say

_VALUED = tuple(
    f"--{name}"
    for name in (
        *("select", "extend-select", "ignore"),
        *("format", "output", "color", "baseline", "config"),
    )
)
"""Options that take the next word."""


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.usage = "dispatchguard run [OPTIONS] (SCRIPT | -m MODULE | -- COMMAND) [ARGUMENTS]"
    parser.description = (
        "Runs a program and tells what its hot code does at every call though once would do, and "
        "with --ghost where its host waits for the device. What follows the program is for the program."
    )
    parser.epilog = (
        "Exit status: that of the program where it is not 0; else 1 where anything was found, "
        "0 where nothing was, 2 for usage and configuration errors."
    )
    parser.add_argument(
        "--ghost",
        action="store_true",
        help="let code for cuda run here, on a machine without a GPU: it computes on the CPU",
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help="record which functions run, what they call and what they are given, for `check` to read",
    )
    parser.add_argument(
        "--ops",
        action="store_true",
        help="tell as well which lines ask most of torch's dispatcher, and what they do in vain or twice",
    )
    which_rules(parser)
    output_options(parser)
    parser.add_argument(
        "--baseline", type=named_path, metavar="FILE", help="accept the findings listed in FILE"
    )
    parser.add_argument(
        "--config",
        type=named_path,
        metavar="FILE",
        help="configuration file in place of pyproject.toml",
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs it, and gives the exit status."""
    from pytest_dispatchguard.running import Wishes, watched

    if arguments.program is None:
        arguments.parser.error("run what? name a script, -m MODULE, or -- COMMAND")
    given = given_settings(arguments)
    wishes = Wishes(
        arguments.ghost, arguments.ops, arguments.record, arguments.config, given, working_folder()
    )
    status, found = watched(
        arguments.program,
        wishes,
        lambda report, sources: render_report(arguments, report, sources, sys.stdout),
        say,
    )
    return status or (FOUND if found and not arguments.exit_zero else CLEAN)


def own_words(given: Sequence[str]) -> tuple[list[str], Any]:
    """The words that are for the command, and the program, whose words are its own."""
    from pytest_dispatchguard.runtime.program import words

    return words(given, _VALUED)
