"""`dispatchguard layers`: breaks down the time of one call."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_dispatchguard.commands import CLEAN
from pytest_dispatchguard.commands.options import (
    chosen_format,
    color_option,
    format_and_file,
    named_path,
    seconds,
    size_list,
    working_folder,
)
from pytest_dispatchguard.commands.output import colored, expect, put, put_in, width
from pytest_dispatchguard.model.errors import UserError

if TYPE_CHECKING:
    from pytest_dispatchguard.commands.measuring.take_apart import Format

_FORMATS: Sequence[Format] = ("text", "json", "markdown", "svg")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Break down the time of one call into its layers: Python functions, torch's bindings, autograd, "
        "dispatcher, allocation and kernels, all measured in turns within one run."
    )
    parser.epilog = (
        'Example: dispatchguard layers "torch.add(x, x)" --setup "import torch; x = torch.ones(4)"'
    )
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="an expression such as 'f(x)', or a test that uses the overhead fixture, such as "
        "tests/test_add.py::test_wide",
    )
    parser.add_argument(
        "--setup", default="", metavar="CODE", help="Python code to run before TARGET"
    )
    parser.add_argument(
        "--sizes",
        type=size_list,
        metavar="N,N,...",
        help="measure at each size, available to --setup and TARGET as n, and show what grows",
    )
    parser.add_argument(
        "--against", metavar="EXPRESSION", help="with --sizes: the call to compare with"
    )
    parser.add_argument(
        "--mode",
        choices=("grad", "no_grad", "inference"),
        metavar="MODE",
        help="grad mode: grad, no_grad or inference (default: grad)",
    )
    parser.add_argument(
        "--seconds", type=seconds, default=2.0, metavar="S", help="time per call (default: 2)"
    )
    parser.add_argument(
        "--flame",
        type=named_path,
        metavar="FILE",
        help="also write a flame graph to FILE, for https://www.speedscope.app",
    )
    format_and_file(parser, _FORMATS)
    color_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from pytest_dispatchguard.commands.measuring.take_apart import (
        Asked,
        flame,
        taken_apart,
        written,
    )
    from pytest_dispatchguard.report.progress import progress

    if arguments.against and not arguments.sizes:
        raise UserError("--against requires --sizes: it is drawn as a ratio over the size")
    if arguments.flame and arguments.sizes:
        raise UserError("--flame cannot be combined with --sizes: it shows one call")
    expect(arguments.flame)
    asked = Asked(
        arguments.target,
        arguments.setup,
        arguments.sizes,
        arguments.against,
        arguments.mode,
        arguments.seconds,
        working_folder(),
    )
    with progress() as tell:
        found = taken_apart(asked, tell or (lambda what, done, of: None))
    if arguments.flame:
        put_in(arguments.flame, flame(found))
    color = arguments.output is None and colored(arguments.color)
    form = chosen_format(arguments, _FORMATS)
    put(arguments, written(found, form, color=color, width=width()), sys.stdout)
    return CLEAN
