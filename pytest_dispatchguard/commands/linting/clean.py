"""`dispatchguard clean`: deletes the cache."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pytest_dispatchguard.commands import CLEAN
from pytest_dispatchguard.commands.options import (
    named_path,
    working_folder,
)
from pytest_dispatchguard.commands.output import write


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = "Delete the cache of a project."
    parser.add_argument(
        "paths",
        nargs="*",
        type=named_path,
        metavar="PATH",
        help="projects to clean (default: the current one)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from pytest_dispatchguard.config.project_root import find_root
    from pytest_dispatchguard.lint.sources.files import require
    from pytest_dispatchguard.lint.store.cache import cache_path, clean
    from pytest_dispatchguard.paths import absolute

    cwd = working_folder()
    for path in arguments.paths or [Path()]:
        require([path], cwd)
        root = find_root([absolute(cwd / path)])
        gone = clean(root)
        said = f"dropped {cache_path(root)}" if gone else f"no cache at {cache_path(root)}"
        write(said + "\n", sys.stdout)
    return CLEAN
