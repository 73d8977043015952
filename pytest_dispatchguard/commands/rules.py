"""`dispatchguard rules`: lists all rules."""

from __future__ import annotations

import argparse
import sys

from pytest_dispatchguard.commands import CLEAN
from pytest_dispatchguard.commands.output import write


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="text (default) or json"
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs it, and gives the exit status."""
    from pytest_dispatchguard.lint import packs
    from pytest_dispatchguard.report.rules import listing

    write(listing(packs.catalog().infos, arguments.format), sys.stdout)
    return CLEAN
