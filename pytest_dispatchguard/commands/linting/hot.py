"""`dispatchguard hot`: lists hot functions."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pytest_dispatchguard.commands import CLEAN
from pytest_dispatchguard.commands.options import (
    format_option,
    how_read,
    paths_argument,
    working_folder,
)
from pytest_dispatchguard.commands.output import say, write


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = "List hot functions, each with its call path from an entry point."
    paths_argument(parser)
    format_option(parser, ("text", "json"))
    how_read(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from pytest_dispatchguard.commands.places import from_here
    from pytest_dispatchguard.config.project_root import find_root
    from pytest_dispatchguard.lint.hot import hot_functions
    from pytest_dispatchguard.lint.processes.workers import default_jobs
    from pytest_dispatchguard.lint.sources.files import require
    from pytest_dispatchguard.paths import absolute
    from pytest_dispatchguard.report.hot import listing
    from pytest_dispatchguard.report.progress import progress

    cwd, paths = working_folder(), tuple(arguments.paths) or (Path(),)
    require(paths, cwd)
    config_file = None if arguments.config is None else absolute(cwd / arguments.config)
    shown = from_here(find_root([absolute(cwd / path) for path in paths], config_file))
    notes: list[str] = []
    with progress() as tell:
        found = hot_functions(
            paths,
            cwd=cwd,
            config_file=arguments.config,
            jobs=arguments.jobs or default_jobs(),
            cached=not arguments.no_cache,
            progress=tell,
            note=notes.append,
            shown=shown,
        )
    for note in notes:
        say(f"note: {note}")
    write(listing(found, arguments.format, shown), sys.stdout)
    return CLEAN
