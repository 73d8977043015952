"""`dispatchguard history`: shows the results of budgets over time."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pytest_dispatchguard.commands import CLEAN
from pytest_dispatchguard.commands.options import (
    format_option,
    positive_number,
    working_folder,
)
from pytest_dispatchguard.commands.output import colored, width, write
from pytest_dispatchguard.model.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Show the results that `pytest --overhead-budget --overhead-history` kept: the latest result of "
        "every test, or those of TEST over time. With --bisect, find the commit that changed a counter "
        "of TEST or the time of its calls."
    )
    parser.epilog = "Exit status: 0 success, 2 usage error or no results."
    parser.add_argument(
        "test",
        nargs="?",
        metavar="TEST",
        help="a test ID or part of one; if the test measures several calls, add the name of one in "
        "parentheses "
        "(default: list all tests)",
    )
    parser.add_argument(
        "--history",
        metavar="URL|FILE",
        help="where results are kept (default: pytest's overhead_history setting, or "
        ".dispatchguard/history.sqlite)",
    )
    parser.add_argument(
        "--last", type=positive_number, metavar="N", help="number of runs to show (default: 30)"
    )
    format_option(parser, ("text", "json"))
    bisect = parser.add_argument_group("bisecting")
    bisect.add_argument(
        "--bisect",
        action="store_true",
        help="find the commit that changed a counter of TEST, or the time of its calls",
    )
    bisect.add_argument(
        "--good",
        metavar="REV",
        help="with --bisect: a commit before the change (default: from history)",
    )
    bisect.add_argument(
        "--bad",
        metavar="REV",
        help="with --bisect: a commit with the change (default: from history)",
    )
    bisect.add_argument(
        "--counter",
        metavar="NAME",
        help="the counter to follow, or `time` for the time of a call (default: the first counter "
        "that moved)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from pytest_dispatchguard.history.trends import place_of, told

    cwd = working_folder()
    place = place_of(arguments.history, cwd)
    if arguments.bisect:
        return _bisect(arguments, place, cwd)
    for option in ("good", "bad", "counter"):
        if getattr(arguments, option) is not None:
            raise UserError(f"--{option} requires --bisect")
    if arguments.last is not None and arguments.test is None:
        raise UserError("--last requires a test: dispatchguard history TEST --last N")
    last = arguments.last or 30
    text = told(place, arguments.test, last, arguments.format, color=colored("auto"), width=width())
    write(text, sys.stdout)
    return CLEAN


def _bisect(arguments: argparse.Namespace, place: str, cwd: Path) -> int:
    from pytest_dispatchguard.history.bisect import Asked, bisected, written
    from pytest_dispatchguard.report.progress import progress

    if arguments.test is None:
        raise UserError("--bisect needs a test: dispatchguard history --bisect TEST")
    if arguments.last is not None:
        raise UserError("--last cannot be combined with --bisect, which uses all runs")
    asked = Asked(arguments.test, arguments.good, arguments.bad, arguments.counter, place, cwd)
    with progress() as tell:
        found = bisected(asked, tell or (lambda what, done, of: None))
    write(written(found, arguments.format), sys.stdout)
    return CLEAN
