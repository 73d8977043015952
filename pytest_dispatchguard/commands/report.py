"""`dispatchguard report`: makes one page of it all."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_dispatchguard.commands import CLEAN, FAILED
from pytest_dispatchguard.commands.options import how_read, levels, named_path, working_folder
from pytest_dispatchguard.commands.output import expect, put_in, say
from pytest_dispatchguard.model import UserError


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.description = (
        "Lints files and folders, and makes a page of what is found and of what budgets came to. "
        "The page is one file, which asks nothing of any network."
    )
    parser.epilog = (
        "Exit status: 0 where the page was written, whatever is in it; 2 for usage and configuration "
        "errors."
    )
    parser.add_argument(
        "paths", nargs="*", type=named_path, metavar="PATH", help="files and folders (default: .)"
    )
    parser.add_argument(
        "--output",
        type=named_path,
        metavar="FILE",
        help="where the page goes, whole or not at all",
    )
    parser.add_argument(
        "--badge",
        type=named_path,
        metavar="FILE",
        help="also a badge: a drawing (.svg), or what shields.io makes one of (.json)",
    )
    parser.add_argument(
        "--figures", type=named_path, metavar="FILE", help="also figures for dashboards, as JSON"
    )
    parser.add_argument(
        "--history",
        metavar="URL|FILE",
        help="earlier runs, which are drawn beside budgets (default: those of the project, if it keeps any)",
    )
    parser.add_argument(
        "--budgets",
        type=named_path,
        metavar="FILE",
        help="what `pytest --overhead-budget --overhead-json FILE` wrote",
    )
    levels(parser, strict=False)
    how_read(parser)


def run(arguments: argparse.Namespace) -> int:
    """Runs it, and gives the exit status."""
    from pytest_dispatchguard.lint.check import Request
    from pytest_dispatchguard.lint.pool import default_jobs
    from pytest_dispatchguard.progress import progress
    from pytest_dispatchguard.reporting import made

    files = [f for f in (arguments.output, arguments.badge, arguments.figures) if f is not None]
    if not files:
        raise UserError(
            "report what? --output FILE makes the page, --badge a badge, --figures figures"
        )
    for file in files:
        expect(file)
    with progress() as tell:
        request = Request(
            paths=tuple(arguments.paths) or (Path(),),
            cwd=working_folder(),
            config_file=arguments.config,
            settings={"pedantic": arguments.pedantic, "notes": arguments.notes},
            jobs=arguments.jobs or default_jobs(),
            cache=not arguments.no_cache,
            progress=tell,
        )
        found = made(request, arguments.budgets, arguments.history)
    for problem in found.problems:
        say(problem)
    if arguments.output is not None:
        put_in(arguments.output, found.page())
    if arguments.badge is not None:
        put_in(arguments.badge, found.badge(arguments.badge))
    if arguments.figures is not None:
        put_in(arguments.figures, found.figures())
    return FAILED if found.problems else CLEAN
