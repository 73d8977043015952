"""`dispatchguard server`: runs the language server."""

from __future__ import annotations

import argparse

from pytest_dispatchguard.commands import CLEAN
from pytest_dispatchguard.model.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Run the language server on standard input and output, until the editor ends the session."
    )


def run(_: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    try:
        from pytest_dispatchguard.server.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise UserError(
            "the server needs pygls 2: pip install pytest-dispatchguard[server]"
        ) from None
    serve()
    return CLEAN
