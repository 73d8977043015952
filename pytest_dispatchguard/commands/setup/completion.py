"""`dispatchguard completion`: prints the completion script for a shell."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from pytest_dispatchguard.commands import CLEAN, COMMANDS, module_of
from pytest_dispatchguard.commands.output import write
from pytest_dispatchguard.commands.setup.completion_scripts import SHELLS, command, script


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Print the completion script for a shell. For bash, load it with: "
        'eval "$(dispatchguard completion bash)"'
    )
    parser.add_argument("shell", choices=tuple(SHELLS), metavar="SHELL", help="bash, zsh or fish")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    found = []
    for name, help in COMMANDS.items():
        parser = argparse.ArgumentParser()
        import_module(module_of(name)).add(parser)
        found.append(command(name, help, parser))
    write(script(arguments.shell, found), sys.stdout)
    return CLEAN
