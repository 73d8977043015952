"""`dispatchguard hot`: lists hot functions."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pytest_dispatchguard.commands import CLEAN
from pytest_dispatchguard.commands.options import how_read, named_path, working_folder
from pytest_dispatchguard.commands.output import say, write


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument(
        "paths", nargs="*", type=named_path, metavar="PATH", help="files and folders (default: .)"
    )
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="text (default) or json"
    )
    how_read(parser)


def run(arguments: argparse.Namespace) -> int:
    """Runs it, and gives the exit status."""
    from pytest_dispatchguard.lint.hot import hot_functions
    from pytest_dispatchguard.lint.pool import default_jobs
    from pytest_dispatchguard.progress import progress
    from pytest_dispatchguard.report.hot import listing

    notes: list[str] = []
    with progress() as tell:
        found = hot_functions(
            tuple(arguments.paths) or (Path(),),
            cwd=working_folder(),
            config_file=arguments.config,
            jobs=arguments.jobs or default_jobs(),
            cached=not arguments.no_cache,
            progress=tell,
            note=notes.append,
        )
    for note in notes:
        say(f"note: {note}")
    write(listing(found, arguments.format), sys.stdout)
    return CLEAN
