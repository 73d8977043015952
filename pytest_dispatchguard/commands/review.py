"""`dispatchguard review`: tells what a change adds and takes away."""

from __future__ import annotations

import argparse
import os
import sys

from pytest_dispatchguard.commands import CLEAN, FAILED, FOUND
from pytest_dispatchguard.commands.options import (
    given_settings,
    how_read,
    levels,
    named_path,
    positive_seconds,
    which_rules,
    working_folder,
)
from pytest_dispatchguard.commands.output import put, say
from pytest_dispatchguard.model import UserError


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.description = (
        "Holds the project against its merge base with a revision: new findings, with their "
        "fixes as suggestions, findings that are gone, and with --budgets the counters that moved. The whole "
        "project is read, so what a change makes hot elsewhere is told too, at the call that does."
    )
    parser.epilog = (
        "Exit status: 0, 1 where there is a new finding or a budget fails, 2 for usage, configuration "
        "or internal errors, and where it could not be posted."
    )
    parser.add_argument(
        "--base", required=True, metavar="REV", help="what the change is held against"
    )
    parser.add_argument(
        "--budgets",
        nargs="*",
        metavar="TEST",
        help="also count what budgets' subjects do, here and there: of these tests, or all marked ones",
    )
    parser.add_argument(
        "--post",
        action="store_true",
        help="comment on the pull or merge request that the CI job runs for",
    )
    parser.add_argument(
        "--post-timeout",
        type=positive_seconds,
        metavar="SECONDS",
        help="what all of --post may take (default: 60)",
    )
    which = which_rules(parser)
    levels(which)
    parser.add_argument(
        "--baseline", type=named_path, metavar="FILE", help="accept the findings in FILE"
    )
    parser.add_argument(
        "--format",
        choices=("markdown", "json", "github", "gitlab"),
        default="markdown",
        help="markdown (default), json, or the JSON that the APIs of GitHub and GitLab take",
    )
    parser.add_argument(
        "--output", type=named_path, metavar="FILE", help="write to a file, whole or not at all"
    )
    parser.add_argument("--exit-zero", action="store_true", help="exit with 0 whatever is found")
    how_read(parser)


def run(arguments: argparse.Namespace) -> int:
    """Runs it, and gives the exit status."""
    from pytest_dispatchguard.lint.pool import default_jobs
    from pytest_dispatchguard.lint.review import Asked
    from pytest_dispatchguard.progress import progress
    from pytest_dispatchguard.reviewing import SECONDS, posted, review, written

    if arguments.post_timeout is not None and not arguments.post:
        raise UserError("--post-timeout goes with --post")

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
    put(arguments, written(found, arguments.format), sys.stdout)
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
