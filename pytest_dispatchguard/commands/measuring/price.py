"""`dispatchguard price`: measures what each rule's pattern costs on this machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_dispatchguard.commands import CLEAN, FOUND
from pytest_dispatchguard.commands.options import (
    chosen_format,
    color_option,
    format_and_file,
    seconds,
    working_folder,
)
from pytest_dispatchguard.commands.output import colored, put, say

if TYPE_CHECKING:
    from pytest_dispatchguard.commands.measuring.price_rules import Format

_FORMATS: Sequence[Format] = ("text", "json", "markdown")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Time the example of each rule before and after the fix, in separate processes, and count the "
        "device syncs of both. Findings then show these prices, which are stored in "
        ".dispatchguard/prices.json."
    )
    parser.epilog = "Exit status: 0 every fix is measurably cheaper, 1 one is not, 2 usage error."
    parser.add_argument("codes", nargs="*", metavar="CODE", help="codes or prefixes (default: all)")
    parser.add_argument(
        "--seconds",
        type=seconds,
        default=1.0,
        metavar="S",
        help="time per specimen, extended while the result is unclear (default: 1)",
    )
    format_and_file(parser, _FORMATS)
    color_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from pytest_dispatchguard.commands.measuring.price_rules import Asked, priced, written
    from pytest_dispatchguard.report.progress import progress

    codes = [code.upper() for code in arguments.codes]
    with progress() as tell:
        table, file = priced(
            Asked(codes, arguments.seconds, working_folder()), tell or (lambda what, done, of: None)
        )
    color = arguments.output is None and colored(arguments.color)
    put(arguments, written(table, chosen_format(arguments, _FORMATS), color=color), sys.stdout)
    say(f"kept in {file}")
    return CLEAN if all(one.proven for one in table.specimens) else FOUND
