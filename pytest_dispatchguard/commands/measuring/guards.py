"""`dispatchguard guards`: shows what compiled code checks on every call."""

from __future__ import annotations

import argparse
import sys

from pytest_dispatchguard.commands import CLEAN
from pytest_dispatchguard.commands.options import (
    format_option,
    working_folder,
)
from pytest_dispatchguard.commands.output import write


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Evaluate TARGET once after the setup code, and show the guards of all compiled code that it runs, "
        "grouped by what makes torch check them. The current directory is importable."
    )
    parser.epilog = (
        'Example: dispatchguard guards "model(x)" --setup "import torch, net; '
        'model = torch.compile(net.Net()); x = torch.ones(4)"'
    )
    parser.add_argument("target", metavar="TARGET", help="an expression that calls compiled code")
    parser.add_argument(
        "--setup", default="", metavar="CODE", help="Python code to run before TARGET"
    )
    format_option(parser, ("text", "json"))


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from pytest_dispatchguard.measure.layers.guards import guarded
    from pytest_dispatchguard.report.budgets import guards

    found = guarded(arguments.target, arguments.setup, working_folder())
    told = guards.as_json if arguments.format == "json" else guards.as_text
    write(told(arguments.target, found), sys.stdout)
    return CLEAN
