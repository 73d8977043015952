"""`dispatchguard daemon`: shows or stops the background process of `check --daemon`."""

from __future__ import annotations

import argparse
import sys
import time

from pytest_dispatchguard.commands import CLEAN
from pytest_dispatchguard.commands.output import write
from pytest_dispatchguard.model.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = "Show or stop the background process of `dispatchguard check --daemon`."
    parser.add_argument("--stop", action="store_true", help="stop it")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from pytest_dispatchguard.daemon import asking, wire

    if not wire.POSSIBLE:
        raise UserError("this system has no fork or no Unix sockets; --daemon has no effect")
    if arguments.stop:
        write("stopped\n" if asking.stop() else "none is running\n", sys.stdout)
        return CLEAN
    found = asking.told()
    for one in found:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one["began"]))
        write(f"process {one['process']}, since {since}, runs so far: {one['runs']}\n", sys.stdout)
    if not found:
        write("none is running; the next `dispatchguard check --daemon` starts one\n", sys.stdout)
        complaint = asking.complaint()
        if complaint:
            write(f"the last one did not start: {complaint}\n", sys.stdout)
    return CLEAN
