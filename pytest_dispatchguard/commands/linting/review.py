"""`dispatchguard review`: reports the findings and budget changes that a branch introduces."""

from __future__ import annotations

import argparse
import os
import sys

from pytest_dispatchguard.commands import CLEAN, FAILED, FOUND
from pytest_dispatchguard.commands.options import (
    baseline_option,
    chosen_format,
    color_option,
    format_and_file,
    given_settings,
    how_read,
    levels,
    positive_seconds,
    which_rules,
    working_folder,
)
from pytest_dispatchguard.commands.output import colored, on_terminal, put, say, width
from pytest_dispatchguard.model.errors import UserError

_FORMATS = ("markdown", "text", "json", "github", "gitlab", "prompt")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Report what has changed since the merge base with REV: new findings (their fixes as suggestions), "
        "resolved findings and, with --budgets, counters. The whole project is analyzed: if a new call makes "
        "unchanged code hot, the findings in that code are reported at the call."
    )
    parser.epilog = (
        "Exit status: 0 clean, 1 new findings or a failing budget, 2 usage, configuration or internal "
        "error, or a comment that could not be posted."
    )
    parser.add_argument(
        "--base",
        required=True,
        metavar="REV",
        help="the revision whose merge base with HEAD to compare with",
    )
    parser.add_argument(
        "--budgets",
        nargs="*",
        metavar="TEST",
        help="also compare the counters of these tests, or of all tests marked overhead_budget",
    )
    parser.add_argument(
        "--post",
        action="store_true",
        help="comment on the pull or merge request of the CI job",
    )
    parser.add_argument(
        "--post-timeout",
        type=positive_seconds,
        metavar="SECONDS",
        help="time limit for all of --post (default: 60)",
    )
    which = which_rules(parser)
    levels(which)
    baseline_option(parser)
    format_and_file(parser, _FORMATS, "text on a terminal, markdown elsewhere")
    color_option(parser)
    parser.add_argument(
        "--exit-zero", action="store_true", help="exit with 0 even if there are findings"
    )
    how_read(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from pytest_dispatchguard.commands.linting.review_change import (
        SECONDS,
        posted,
        review,
        written,
    )
    from pytest_dispatchguard.lint.processes.workers import default_jobs
    from pytest_dispatchguard.lint.review import Asked
    from pytest_dispatchguard.report.progress import progress

    if arguments.post_timeout is not None and not arguments.post:
        raise UserError("--post-timeout requires --post")

    given = given_settings(arguments)
    jobs = arguments.jobs or default_jobs()
    with progress() as tell:
        asked = Asked(
            arguments.base,
            working_folder(),
            arguments.config,
            given,
            jobs,
            cache=not arguments.no_cache,
            progress=tell,
        )
        found = review(asked, arguments.budgets, say)
    form = chosen_format(arguments, _FORMATS)
    if arguments.format is None and arguments.output is None and on_terminal():
        form = "text"
    color = arguments.output is None and colored(arguments.color)
    put(arguments, written(found, form, color=color, width=width()), sys.stdout)
    if arguments.post:
        done = posted(found, os.environ, arguments.post_timeout or SECONDS)
        say(
            f"{done.new} comments posted, {done.there} there already; summary: {done.address or 'none'}"
        )
        if done.note:
            say(f"note: {done.note}")
    for problem in found.problems:
        say(problem)
    if found.problems:
        return FAILED
    return FOUND if found.review.bad and not arguments.exit_zero else CLEAN
