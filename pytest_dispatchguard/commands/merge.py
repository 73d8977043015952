"""`dispatchguard merge`: joins what the shards of a CI job wrote."""

from __future__ import annotations

import argparse
import sys

from pytest_dispatchguard.commands import CLEAN
from pytest_dispatchguard.commands.options import named_path, working_folder
from pytest_dispatchguard.commands.output import put


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.description = (
        "Joins files that `pytest --overhead-json` wrote, as from the shards of a CI job, into "
        "one of the same layout, or with --history keeps them as one run."
    )
    parser.add_argument("files", nargs="+", type=named_path, metavar="FILE", help="what to join")
    parser.add_argument(
        "--output",
        type=named_path,
        metavar="FILE",
        help="write to a file, whole or not at all (default: standard output, or nowhere with --history)",
    )
    parser.add_argument(
        "--history",
        nargs="?",
        const="",
        metavar="URL|FILE",
        help="keep them as one run in this history; where none is named, as for `history`",
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs it, and gives the exit status."""
    from pytest_dispatchguard.report.verdicts import as_json
    from pytest_dispatchguard.trends import Began, keep, merged, place_of

    cwd = working_folder()
    verdicts, machine = merged(arguments.files, cwd)
    if arguments.output is not None or arguments.history is None:
        put(arguments, as_json(verdicts, machine), sys.stdout)
    if arguments.history is not None:
        keep(verdicts, machine, Began.now(cwd), place_of(arguments.history, cwd))
    return CLEAN
