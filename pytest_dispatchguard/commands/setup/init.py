"""`dispatchguard init`: sets up a project."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_dispatchguard.commands import CLEAN
from pytest_dispatchguard.commands.options import working_folder
from pytest_dispatchguard.commands.output import write

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_dispatchguard.commands.setup.init_project import Planned, Wishes

_NEXT = """
Next:
  dispatchguard check                  what costs time in hot code
  pytest --overhead-budget=update      record what the test's subject costs in overhead-budgets.toml
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Set up the project in the current directory: [tool.dispatchguard] in pyproject.toml, a pre-commit "
        "hook, a CI job and a first budget test. Asks before each part if run in a terminal. "
        "Existing files "
        "are never overwritten."
    )
    parser.add_argument(
        "--hook",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="write .pre-commit-config.yaml, or not",
    )
    parser.add_argument(
        "--ci",
        choices=("github", "gitlab", "none"),
        metavar="HOST",
        help="write a CI job for github, gitlab or none (default: by the files of the project)",
    )
    parser.add_argument(
        "--test",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="write tests/test_overhead.py, or not",
    )
    parser.add_argument(
        "--subject",
        metavar="NAME",
        help="the function or class to test, such as mylib.ops.add (default: a hot one that takes only "
        "tensors)",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask; write everything")
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be written, and write nothing"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from pytest_dispatchguard.commands.setup import init_project

    root = working_folder()
    planned = init_project.plan(root, _wishes(arguments, root))
    if arguments.dry_run:
        write(_shown(planned), sys.stdout)
        return CLEAN
    init_project.write(root, planned)
    write("".join(map(_said, planned)) + _NEXT, sys.stdout)
    return CLEAN


def _wishes(arguments: argparse.Namespace, root: Path) -> Wishes:
    from pytest_dispatchguard.commands.setup.init_project import CI, HOOKS, Wishes, usual_ci

    asks = not arguments.yes and sys.stdin is not None and sys.stdin.isatty()
    hook, ci, test = arguments.hook, arguments.ci, arguments.test
    usual = usual_ci(root)
    if hook is None:
        hook = not asks or _agreed(f"Write a pre-commit hook ({HOOKS})?")
    if ci is None:
        ci = usual if not asks else _chosen("Write a CI job?", CI, usual)
    if test is None:
        test = bool(arguments.subject) or not asks or _agreed("Write a first budget test?")
    return Wishes(hook, ci, test, arguments.subject)


def _agreed(question: str) -> bool:
    return _chosen(question, ("y", "n"), "y") == "y"


def _chosen(question: str, answers: Sequence[str], usual: str) -> str:
    shown = "/".join(answer.upper() if answer == usual else answer for answer in answers)
    while True:
        print(f"{question} [{shown}] ", end="", flush=True)
        line = sys.stdin.readline()
        said = line.strip().lower() or usual
        for answer in answers:
            if said in (answer, {"y": "yes", "n": "no"}.get(answer)):
                return answer
        if not line:
            return usual


def _said(file: Planned) -> str:
    if file.after is not None:
        return f"{'wrote' if file.before is None else 'added to'} {file.path}\n"
    by_hand = "".join(f"    {line}\n" for line in file.by_hand.splitlines())
    return f"{file.path} {file.said}{':' if by_hand else ''}\n{by_hand}"


def _shown(planned: Sequence[Planned]) -> str:
    from pytest_dispatchguard.report.diff import unified

    texts = []
    for file in planned:
        if file.after is None:
            texts.append(_said(file))
        else:
            before = (file.before or b"").decode("utf-8", "replace")
            texts.append(unified(file.path, before, file.after.decode("utf-8", "replace")))
    return "".join(texts)
