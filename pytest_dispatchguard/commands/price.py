"""`dispatchguard price`: measures what the patterns of rules cost on this machine."""

from __future__ import annotations

import argparse
import sys

from pytest_dispatchguard.commands import CLEAN, FOUND
from pytest_dispatchguard.commands.options import named_path, seconds, working_folder
from pytest_dispatchguard.commands.output import colored, put, say


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.description = (
        "Times the bad form of every specimen against its good form, in processes of their own, "
        "and counts how often each makes the host wait for a device. Findings are told with these prices "
        "from then on: they are kept in .dispatchguard/prices.json."
    )
    parser.epilog = (
        "Exit status: 0, or 1 where the good form of a specimen does not surely cost less."
    )
    parser.add_argument("codes", nargs="*", metavar="CODE", help="codes or prefixes (default: all)")
    parser.add_argument(
        "--seconds",
        type=seconds,
        default=1.0,
        metavar="S",
        help="for each specimen, more where that leaves it open (default: 1)",
    )
    parser.add_argument(
        "--format", choices=("text", "json", "markdown"), default="text", help="default: text"
    )
    parser.add_argument(
        "--output", type=named_path, metavar="FILE", help="write to a file, whole or not at all"
    )
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="default: auto"
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs it, and gives the exit status."""
    from pytest_dispatchguard.pricing import Asked, priced, written
    from pytest_dispatchguard.progress import progress

    codes = [code.upper() for code in arguments.codes]
    with progress() as tell:
        table, file = priced(
            Asked(codes, arguments.seconds, working_folder()), tell or (lambda what, done, of: None)
        )
    color = arguments.output is None and colored(arguments.color)
    put(arguments, written(table, arguments.format, color=color), sys.stdout)
    say(f"kept in {file}")
    return CLEAN if all(one.proven for one in table.specimens) else FOUND
