"""`dispatchguard mcp`: runs the server for coding agents."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_dispatchguard.commands import CLEAN
from pytest_dispatchguard.commands.options import named_path, working_folder
from pytest_dispatchguard.model.errors import UserError

_EXTRA = ("mcp", "mcp_types", "pydantic", "anyio")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Run a server of the Model Context Protocol on standard input and output, until the client ends the "
        "session: tools for coding agents to check code, explain findings, run budgets and verify patches."
    )
    parser.add_argument(
        "--project",
        type=named_path,
        metavar="DIR",
        help="the project to work on (default: the one around the current directory); paths outside "
        "it are refused",
    )
    parser.add_argument(
        "--allow-edits",
        action="store_true",
        help="offer a tool that writes patches to the project; without it nothing is written there",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from pytest_dispatchguard.config.project_root import find_root
    from pytest_dispatchguard.paths import absolute, is_folder

    project = absolute(working_folder() / (arguments.project or Path()))
    if not is_folder(project):
        raise UserError(f"{arguments.project}: there is no such folder")
    try:
        from pytest_dispatchguard.agents.serving import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise UserError('the server needs mcp 2: pip install "pytest-dispatchguard[mcp]"') from None
    except ImportError:
        raise UserError(
            'the server needs mcp 2, and an older one is installed: pip install "pytest-dispatchguard[mcp]"'
        ) from None
    serve(find_root([project]), edits=arguments.allow_edits)
    return CLEAN
