"""`dispatchguard report`: writes an HTML page of findings and budgets."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_dispatchguard.commands import CLEAN, FAILED
from pytest_dispatchguard.commands.options import (
    how_read,
    levels,
    named_path,
    paths_argument,
    working_folder,
)
from pytest_dispatchguard.commands.output import expect, put_in, say
from pytest_dispatchguard.model.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Lint files and directories and write a self-contained HTML page of findings and budgets."
    )
    parser.epilog = "Exit status: 0 if the files were written, 2 usage or configuration error."
    paths_argument(parser)
    parser.add_argument(
        "--output", type=named_path, metavar="FILE", help="write the page to FILE, atomically"
    )
    parser.add_argument(
        "--badge",
        type=named_path,
        metavar="FILE",
        help="write a badge: an image (.svg), or an endpoint for shields.io (.json)",
    )
    parser.add_argument(
        "--figures", type=named_path, metavar="FILE", help="write figures for dashboards as JSON"
    )
    parser.add_argument(
        "--history",
        metavar="URL|FILE",
        help="draw earlier runs next to budgets (default: the project's own history, if any)",
    )
    parser.add_argument(
        "--budgets",
        type=named_path,
        metavar="FILE",
        help="include the results in FILE, written by `pytest --overhead-budget --overhead-json FILE`",
    )
    levels(parser, strict=False)
    how_read(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from pytest_dispatchguard.commands.measuring.build_report import made
    from pytest_dispatchguard.lint.processes.workers import default_jobs
    from pytest_dispatchguard.lint.request import Request
    from pytest_dispatchguard.report.progress import progress

    files = [f for f in (arguments.output, arguments.badge, arguments.figures) if f is not None]
    if not files:
        raise UserError("nothing to write: pass --output FILE for the page, --badge or --figures")
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
