"""`dispatchguard merge`: merges the files written by the shards of a CI job."""

from __future__ import annotations

import argparse
import sys

from pytest_dispatchguard.commands import CLEAN
from pytest_dispatchguard.commands.options import (
    named_path,
    output_file,
    working_folder,
)
from pytest_dispatchguard.commands.output import put


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Merge files written by `pytest --overhead-json`, for example by the shards of a CI job, into one "
        "file of the same layout, or with --history into one run of a history."
    )
    parser.add_argument("files", nargs="+", type=named_path, metavar="FILE", help="files to merge")
    output_file(parser, "standard output, or nowhere with --history")
    parser.add_argument(
        "--history",
        nargs="?",
        const="",
        metavar="URL|FILE",
        help="store the result as one run (default: where `dispatchguard history` looks)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from pytest_dispatchguard.history.trends import Began, keep, merged, place_of
    from pytest_dispatchguard.report.budgets.read_json import traces_in
    from pytest_dispatchguard.report.budgets.verdicts import as_json

    cwd = working_folder()
    verdicts, machine = merged(arguments.files, cwd)
    if arguments.output is not None or arguments.history is None:
        traces = [row for file in arguments.files for row in traces_in(cwd / file)]
        put(arguments, as_json(verdicts, machine, traces=traces or None), sys.stdout)
    if arguments.history is not None:
        keep(verdicts, machine, Began.now(cwd), place_of(arguments.history, cwd))
    return CLEAN
