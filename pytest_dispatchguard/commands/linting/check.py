"""`dispatchguard check`: lints files and directories."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_dispatchguard.commands import CLEAN, FAILED, FOUND
from pytest_dispatchguard.commands.options import (
    baseline_option,
    chosen_format,
    given_settings,
    how_read,
    levels,
    microseconds,
    named_path,
    output_options,
    paths_argument,
    report_formats,
    trace_options,
    which_rules,
    working_folder,
)
from pytest_dispatchguard.commands.output import put, render_report, say, write_bytes
from pytest_dispatchguard.model.errors import UserError

if TYPE_CHECKING:
    from pytest_dispatchguard.lint.check import Checked
    from pytest_dispatchguard.lint.request import Request


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Lint files and directories. Which code is hot is always determined from the whole project, "
        "even if only some files are linted."
    )
    paths_argument(parser, "; - reads standard input")
    which = which_rules(parser)
    levels(which)
    _fix_options(parser.add_argument_group("fixes and suppressions"))
    _output_options(output_options(parser))
    _baseline_options(parser.add_argument_group("existing findings"))
    how = parser.add_argument_group("miscellaneous")
    how.add_argument(
        "--watch", action="store_true", help="check again whenever a file changes, until Ctrl-C"
    )
    how.add_argument(
        "--stdin-filename",
        type=named_path,
        metavar="FILE",
        help="the file that standard input is treated as, if PATH is -",
    )
    how.add_argument(
        "--daemon",
        action="store_true",
        help="run in a background process that keeps the linter imported; it starts on first use and "
        "exits after half an hour without work",
    )
    how_read(how)
    trace_options(parser.add_argument_group("traces"))


def _fix_options(fixes: argparse._ArgumentGroup) -> None:
    fixes.add_argument(
        "--fix",
        action="store_true",
        help="apply safe fixes; to choose fixes by code or line, use dispatchguard fix --select",
    )
    fixes.add_argument(
        "--unsafe-fixes", action="store_true", help="with --fix or --diff: include unsafe fixes"
    )
    fixes.add_argument(
        "--diff", action="store_true", help="show fixes as a diff instead of applying them"
    )
    fixes.add_argument(
        "--add-ignore",
        action="store_true",
        help="add a suppression comment for every finding that fails the run",
    )


def _output_options(output: argparse._ArgumentGroup) -> None:
    output.add_argument(
        "--min-cost",
        type=microseconds,
        default=0.0,
        metavar="TIME",
        help="hide findings that cost less than TIME (1us, 0.5µs, 2ms) per call of the entry point that "
        "reaches them",
    )
    output.add_argument(
        "--statistics", action="store_true", help="show counts per rule instead of findings"
    )
    output.add_argument(
        "--show-files", action="store_true", help="list the files that would be checked, and exit"
    )
    output.add_argument(
        "--show-settings", action="store_true", help="show the settings in effect, and exit"
    )


def _baseline_options(old: argparse._ArgumentGroup) -> None:
    old.add_argument(
        "--diff-base",
        metavar="REV",
        help="report only on lines changed since the merge base with REV",
    )
    baseline_option(old)
    old.add_argument(
        "--write-baseline", action="store_true", help="record all current findings in the baseline"
    )
    old.add_argument(
        "--prune-baseline",
        action="store_true",
        help="remove baseline entries that no longer match anything",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    request = _request(arguments)
    if arguments.show_files or arguments.show_settings:
        from pytest_dispatchguard.commands.linting.show import files_in, settings_in

        put(arguments, (files_in if arguments.show_files else settings_in)(request), sys.stdout)
        return CLEAN
    if arguments.watch:
        from pytest_dispatchguard.commands.linting.watch import watch

        return watch(request, lambda: _once(arguments, request))
    return _once(arguments, request)


def _once(arguments: argparse.Namespace, request: Request) -> int:
    from pytest_dispatchguard.lint.check import check
    from pytest_dispatchguard.report.progress import progress

    with progress() as tell:
        checked = check(_with_progress(request, tell))
    for problem in checked.problems:
        say(problem)
    found = _tell(arguments, checked)
    if checked.problems:
        return FAILED
    return CLEAN if arguments.exit_zero or not found else FOUND


def _with_progress(request: Request, tell: Any) -> Request:
    from dataclasses import replace

    return replace(request, progress=tell)


def _request(arguments: argparse.Namespace) -> Request:
    from pytest_dispatchguard.lint.processes.workers import default_jobs
    from pytest_dispatchguard.lint.request import Request

    _refuse(arguments)
    paths = tuple(arguments.paths) or (Path(),)
    stdin = None
    if Path("-") in paths:
        if len(paths) > 1:
            raise UserError("- (standard input) cannot be combined with other paths")
        stdin = sys.stdin.buffer.read()
        paths = (arguments.stdin_filename or Path("stdin.py"),)
    elif arguments.stdin_filename:
        raise UserError("--stdin-filename requires the path -")
    traces = None
    if arguments.trace:
        from pytest_dispatchguard.traced.measured import reader

        traces = reader(arguments.trace, arguments.map)
    given = given_settings(arguments)
    mode = "unsafe" if arguments.unsafe_fixes else "safe"
    return Request(
        paths=paths,
        cwd=working_folder(),
        config_file=arguments.config,
        settings=given,
        fix=mode if arguments.fix or arguments.diff else "no",  # type: ignore[arg-type]  # one of the modes
        write=not arguments.diff,
        diff_base=arguments.diff_base,
        add_ignores=arguments.add_ignore,
        write_baseline=arguments.write_baseline,
        prune_baseline=arguments.prune_baseline,
        jobs=arguments.jobs or default_jobs(),
        cache=not arguments.no_cache,
        stdin=stdin,
        min_cost=arguments.min_cost,
        traces=traces,
    )


def _refuse(arguments: argparse.Namespace) -> None:
    """Refuse options that contradict each other."""
    if arguments.fix and arguments.diff:
        raise UserError("--fix cannot be combined with --diff, which shows what --fix would do")
    if arguments.add_ignore and (arguments.fix or arguments.diff or arguments.write_baseline):
        raise UserError("--add-ignore cannot be combined with --fix, --diff or --write-baseline")
    if arguments.unsafe_fixes and not (arguments.fix or arguments.diff):
        raise UserError("--unsafe-fixes requires --fix or --diff")
    if arguments.diff and (arguments.format or arguments.statistics):
        raise UserError("--diff cannot be combined with --format or --statistics: it prints a diff")
    if arguments.statistics and arguments.format not in (None, "text", "json"):
        raise UserError(
            f"--statistics cannot be combined with --format {arguments.format}; use text or json"
        )
    if arguments.map and not arguments.trace:
        raise UserError("--map requires --trace")
    if arguments.show_files and arguments.show_settings:
        raise UserError("--show-files cannot be combined with --show-settings")
    if arguments.watch and (
        arguments.daemon or arguments.write_baseline or Path("-") in arguments.paths
    ):
        raise UserError("--watch cannot be combined with --daemon, --write-baseline or the path -")
    if arguments.prune_baseline and arguments.diff:
        raise UserError("--prune-baseline cannot be combined with --diff, which changes nothing")
    if arguments.write_baseline and (
        arguments.fix or arguments.diff or arguments.prune_baseline or arguments.diff_base
    ):
        raise UserError(
            "--write-baseline cannot be combined with --fix, --diff, --diff-base or --prune-baseline"
        )


def _tell(arguments: argparse.Namespace, checked: Checked) -> bool:
    """Write the report; return whether the run fails."""
    if arguments.diff:
        text = tell_diff(arguments, checked)
        unread = [f for f in checked.report.findings if f.code == "DG001"]
        for finding in unread:
            place = f"{finding.path}:{finding.span.line}:{finding.span.column}"
            say(f"{place}: {finding.code} {finding.message}")
        return bool(text or unread)
    stream = sys.stdout
    if (arguments.fix or arguments.add_ignore) and Path("-") in arguments.paths:
        # The changed standard input goes to standard output, as editors expect from a filter.
        write_bytes(checked.stdin_after or b"")
        stream = sys.stderr
    if arguments.statistics:
        from pytest_dispatchguard.report.statistics import statistics

        form = chosen_format(arguments, report_formats())
        text = statistics(checked.report, "json" if form == "json" else "text")
    else:
        render_report(arguments, checked.report, checked.reader, stream, checked.config.root)
        return checked.failing
    put(arguments, text, stream)
    return checked.failing


def tell_diff(arguments: argparse.Namespace, checked: Checked) -> str:
    """Write the fixes as a diff, finding by finding; return it."""
    from pytest_dispatchguard.report.diff import by_finding
    from pytest_dispatchguard.visible import visible

    text = "".join(by_finding(one.path, one.before, one.made) for one in checked.rounds)
    if arguments.output is None and sys.stdout is not None and sys.stdout.isatty():
        # Only on a terminal: a program that applies the diff needs it unchanged.
        text = visible(text.replace("\r\n", "\n"))
    put(arguments, text, sys.stdout)
    return text
