"""`dispatchguard layers`: tells where the time of one call goes."""

from __future__ import annotations

import argparse
import sys

from pytest_dispatchguard.commands import CLEAN
from pytest_dispatchguard.commands.options import named_path, seconds, size_list, working_folder
from pytest_dispatchguard.commands.output import colored, expect, put, put_in, width
from pytest_dispatchguard.model import UserError


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.description = (
        "Takes one call apart: what its Python functions take, torch's binding, autograd, the "
        "dispatcher, allocation, kernels; each measured by turns with the others in one run."
    )
    parser.epilog = (
        'Example: dispatchguard layers "torch.add(x, x)" --setup "import torch; x = torch.ones(4)"'
    )
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="an expression such as 'f(x)', or a test with the fixture overhead: "
        "tests/test_add.py::test_wide",
    )
    parser.add_argument(
        "--setup",
        default="",
        metavar="CODE",
        help="Python that is run first, for the names in TARGET",
    )
    parser.add_argument(
        "--sizes",
        type=size_list,
        metavar="N,N,...",
        help="at each of these sizes, which --setup and TARGET know as n: what grows with it",
    )
    parser.add_argument(
        "--against", metavar="EXPRESSION", help="with --sizes: what to hold the call against"
    )
    parser.add_argument(
        "--mode", choices=("grad", "no_grad", "inference"), help="torch's grad mode (default: grad)"
    )
    parser.add_argument(
        "--seconds", type=seconds, default=2.0, metavar="S", help="for each call (default: 2)"
    )
    parser.add_argument(
        "--format",
        choices=("text", "json", "markdown", "svg"),
        default="text",
        help="default: text",
    )
    parser.add_argument(
        "--output", type=named_path, metavar="FILE", help="write to a file, whole or not at all"
    )
    parser.add_argument(
        "--flame",
        type=named_path,
        metavar="FILE",
        help="write a flame graph to FILE as well, which https://www.speedscope.app shows",
    )
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="default: auto"
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs it, and gives the exit status."""
    from pytest_dispatchguard.apart import Asked, flame, taken_apart, written
    from pytest_dispatchguard.progress import progress

    if arguments.against and not arguments.sizes:
        raise UserError("--against goes with --sizes: it is drawn as a ratio over the size")
    if arguments.flame and arguments.sizes:
        raise UserError("--flame shows one call, and --sizes many: leave one of them out")
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
    put(arguments, written(found, arguments.format, color=color, width=width()), sys.stdout)
    return CLEAN
