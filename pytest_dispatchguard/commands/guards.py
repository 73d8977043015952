"""`dispatchguard guards`: tells what compiled code checks at every call."""

from __future__ import annotations

import argparse
import sys

from pytest_dispatchguard.commands import CLEAN
from pytest_dispatchguard.commands.options import working_folder
from pytest_dispatchguard.commands.output import write


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.description = (
        "Evaluates TARGET once, after the setup, and tells the guards of all compiled code "
        "that it runs, by what of yours makes torch check them. The working folder is importable."
    )
    parser.epilog = (
        'Example: dispatchguard guards "model(x)" --setup "import torch, net; '
        'model = torch.compile(net.Net()); x = torch.ones(4)"'
    )
    parser.add_argument("target", metavar="TARGET", help="an expression that calls compiled code")
    parser.add_argument("--setup", default="", metavar="CODE", help="what to run before")
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="text (default) or json"
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs it, and gives the exit status."""
    from pytest_dispatchguard.measure.guard_costs import guarded
    from pytest_dispatchguard.report import guards

    found = guarded(arguments.target, arguments.setup, working_folder())
    told = guards.as_json if arguments.format == "json" else guards.as_text
    write(told(arguments.target, found), sys.stdout)
    return CLEAN
