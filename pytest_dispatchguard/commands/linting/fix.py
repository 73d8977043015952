"""`dispatchguard fix`: makes fixes that are selected one by one, or proven by tests and measurements."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_dispatchguard.commands import CLEAN, FAILED, FOUND
from pytest_dispatchguard.commands.options import (
    PLACE,
    chosen_format,
    color_option,
    format_and_file,
    how_read,
    named_path,
    paths_argument,
    working_folder,
)
from pytest_dispatchguard.commands.output import put, say
from pytest_dispatchguard.model.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dispatchguard.lint.check import Checked
    from pytest_dispatchguard.lint.request import Request
    from pytest_dispatchguard.model.findings import Finding

_FORMATS = ("text", "json", "markdown")
"""What a verification is told in."""
_CODE = re.compile(r"[A-Z]+[0-9]*")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Apply fixes: all safe ones, or those that are selected. With --verify, try each fix in a copy of "
        "the work tree, run tests and measure a call before and after, and report what it gains; nothing "
        "is changed without --apply."
    )
    parser.epilog = (
        "Exit status: 0 all selected fixes were made (with --verify: kept), 1 some were not (or a non-empty "
        "diff), 2 usage, configuration or internal error."
    )
    paths_argument(parser)
    which = parser.add_argument_group("selection")
    which.add_argument(
        "--select",
        action="append",
        default=[],
        metavar="CODES|PATH:LINE",
        help="make only the fixes of these codes or prefixes (DG1,DG609), or at this line; repeatable",
    )
    which.add_argument("--unsafe-fixes", action="store_true", help="include unsafe fixes")
    which.add_argument(
        "--ask", action="store_true", help="show each fix, and ask whether to make it"
    )
    which.add_argument(
        "--diff", action="store_true", help="show fixes as a diff instead of applying them"
    )
    _verify_options(parser.add_argument_group("verification"))
    output = parser.add_argument_group("output")
    format_and_file(output, _FORMATS)
    color_option(output)
    how_read(parser.add_argument_group("miscellaneous"))


def _verify_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--verify",
        action="store_true",
        help="keep only fixes that pass tests and measurably pay, and report what each gains",
    )
    group.add_argument(
        "--patch",
        action="append",
        default=[],
        type=named_path,
        metavar="FILE",
        help="with --verify: verify this unified diff instead of the linter's fixes; repeatable",
    )
    for name, what in (
        ("test", "run this test, file or directory before and after; repeatable"),
        ("budget", "measure this budget test before and after; repeatable"),
    ):
        group.add_argument(
            f"--{name}", action="append", default=[], metavar="NODE", help=f"with --verify: {what}"
        )
    group.add_argument(
        "--call", metavar="EXPR", help="with --verify: measure this call before and after"
    )
    group.add_argument(
        "--setup", default="", metavar="CODE", help="with --call: Python code to run before EXPR"
    )
    group.add_argument(
        "--apply", action="store_true", help="with --verify: write what is kept to the work tree"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    _refuse(arguments)
    request = _request(arguments)
    if arguments.verify:
        from pytest_dispatchguard.commands.linting.fix_verified import verify

        return verify(arguments, request, chosen_format(arguments, _FORMATS))
    if arguments.ask:
        from pytest_dispatchguard.commands.linting.asking import asked

        chosen = asked(request)
        if chosen is None:
            write_line(arguments, "no fixes")
            return CLEAN
        request = replace(request, only=chosen)
    return _fixed(arguments, request)


def write_line(arguments: argparse.Namespace, line: str) -> None:
    """Write one line of the report."""
    put(arguments, f"{line}\n", sys.stdout)


def _refuse(arguments: argparse.Namespace) -> None:
    """Refuse options that contradict each other."""
    for name in ("patch", "test", "budget", "call", "setup", "apply", "format"):
        if getattr(arguments, name) and not arguments.verify:
            raise UserError(f"--{name} requires --verify")
    if arguments.verify and (arguments.ask or arguments.diff):
        raise UserError("--verify cannot be combined with --ask or --diff")
    if arguments.ask and arguments.diff:
        raise UserError("--ask cannot be combined with --diff, which changes nothing")
    if arguments.setup and not arguments.call:
        raise UserError("--setup requires --call")
    if arguments.patch and (arguments.select or arguments.unsafe_fixes or arguments.paths):
        raise UserError(
            "--patch cannot be combined with PATH, --select or --unsafe-fixes: it replaces the linter's fixes"
        )
    if Path("-") in arguments.paths:
        raise UserError("standard input cannot be fixed here; use `dispatchguard check - --fix`")
    if arguments.ask and not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError(
            "--ask requires a terminal; use --diff to see the fixes, --select to choose"
        )


def _request(arguments: argparse.Namespace) -> Request:
    from pytest_dispatchguard.lint.processes.workers import default_jobs
    from pytest_dispatchguard.lint.request import Request
    from pytest_dispatchguard.lint.results.selection import Selection

    codes, places = _selected(arguments.select)
    settings = {}
    if codes:
        # Beside places, the configured rules run too, as a place may have any code.
        settings["extend_select" if places else "select"] = codes
    return Request(
        paths=tuple(arguments.paths)
        or (tuple(dict.fromkeys(path for path, _ in places)) if places and not codes else ())
        or (Path(),),
        cwd=working_folder(),
        config_file=arguments.config,
        settings={**settings, "notes": True},
        fix="unsafe" if arguments.unsafe_fixes else "safe",
        write=not arguments.diff,
        only=Selection(codes, places) if places else None,
        jobs=arguments.jobs or default_jobs(),
        cache=not arguments.no_cache,
    )


def _selected(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[tuple[Path, int], ...]]:
    codes: list[str] = []
    places: list[tuple[Path, int]] = []
    for word in words:
        place = PLACE.fullmatch(word)
        if place is not None:
            places.append((Path(place["path"]), int(place["line"])))
            continue
        for code in filter(None, map(str.strip, word.split(","))):
            if not _CODE.fullmatch(code):
                raise UserError(
                    f"--select {code}: neither a code such as DG609 nor a place such as src/model.py:12"
                )
            codes.append(code)
    return tuple(codes), tuple(places)


def _fixed(arguments: argparse.Namespace, request: Request) -> int:
    """Make the fixes, or show them as a diff."""
    from pytest_dispatchguard.lint.check import check

    checked = check(request)
    for problem in checked.problems:
        say(problem)
    if arguments.diff:
        from pytest_dispatchguard.commands.linting.check import tell_diff

        found = bool(tell_diff(arguments, checked))
        return FAILED if checked.problems else FOUND if found else CLEAN
    left = _left(request, checked)
    put(arguments, _report(checked, left), sys.stdout)
    return FAILED if checked.problems else FOUND if left else CLEAN


def _left(request: Request, checked: Checked) -> list[Finding]:
    """The findings with a fix that was selected, and not made."""
    if request.only is not None:
        return []
    kinds = ("safe",) if request.fix == "safe" else ("safe", "unsafe")
    return [f for f in checked.report.findings if f.fix is not None and f.fix.safety in kinds]


def _report(checked: Checked, left: Sequence[Finding]) -> str:
    from pytest_dispatchguard.report.diff import heading_of

    made = [heading_of(f).removeprefix("# ") for one in checked.rounds for f in one.made]
    lines = made + [f"not made: {heading_of(f).removeprefix('# ')}" for f in left]
    files = len({one.path for one in checked.rounds})
    told = f"{len(made)} fix{'' if len(made) == 1 else 'es'} made in {files} file{'' if files == 1 else 's'}"
    return "".join(f"{line}\n" for line in [*lines, told if made else _none_made(checked, left)])


def _none_made(checked: Checked, left: Sequence[Finding]) -> str:
    """Why no fix was made."""
    from pytest_dispatchguard.model.findings import tally

    findings = checked.report.findings
    if left or not findings:
        return "no fixes made" if left else "no fixes made: nothing was found"
    unsafe = sum(f.fix is not None for f in findings)
    if not unsafe:
        return f"no fixes made: there is none for {tally(findings)}"
    return f"no fixes made: none is safe; --unsafe-fixes has {unsafe}"
