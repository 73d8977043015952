"""`dispatchguard rules`: lists all rules."""

from __future__ import annotations

import argparse
import sys

from pytest_dispatchguard.commands import CLEAN
from pytest_dispatchguard.commands.options import (
    format_option,
)
from pytest_dispatchguard.commands.output import write


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = "List all rules."
    format_option(parser, ("text", "json"))


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from pytest_dispatchguard.lint.judge import packs
    from pytest_dispatchguard.report.rules import listing

    write(listing(packs.catalog().infos, arguments.format), sys.stdout)
    return CLEAN
