"""`dispatchguard rule`: explains one rule."""

from __future__ import annotations

import argparse
import sys

from pytest_dispatchguard.commands import CLEAN
from pytest_dispatchguard.commands.output import colored, width, write
from pytest_dispatchguard.model.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = "Explain a rule, or list the rules whose codes start with a prefix."
    parser.add_argument("code", metavar="CODE", help="a code (DG401), a name or a prefix (DG4)")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from pytest_dispatchguard.lint.judge import packs
    from pytest_dispatchguard.report.rules import listing, page

    infos = packs.catalog().infos
    code = arguments.code.upper()
    found = next((i for i in infos if i.code == code or i.name == arguments.code), None)
    family = [i for i in infos if code and i.code.startswith(code)]
    if found is None and family:
        write(listing(family, "text"), sys.stdout)
        return CLEAN
    if found is None:
        from pytest_dispatchguard.spelling import nearest

        near = nearest(arguments.code, [w for i in infos for w in (i.code, i.name)])
        told = f"; the nearest is {near}" if near else ""
        raise UserError(f"no rule {arguments.code!r}{told}. `dispatchguard rules` lists them")
    write(page(found, color=colored("auto"), width=width()), sys.stdout)
    return CLEAN
