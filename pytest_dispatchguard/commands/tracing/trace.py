"""`dispatchguard trace`: tells what traces of PyTorch's profiler say of waits and of what keeps the device
idle."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_dispatchguard.commands import CLEAN, FAILED, FOUND
from pytest_dispatchguard.commands.options import (
    chosen_format,
    color_option,
    format_and_file,
    how_read,
    map_option,
    named_path,
    positive_number,
    working_folder,
)
from pytest_dispatchguard.commands.output import colored, put, say
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.traces import Told, Trace

if TYPE_CHECKING:
    from pytest_dispatchguard.lint.pipeline.progress import Progress
    from pytest_dispatchguard.report.traces.options import Options
    from pytest_dispatchguard.traces.replay import Watch

_FORMATS = ("text", "json", "markdown", "html", "perfetto")


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.description = (
        "Read traces of PyTorch's profiler: where the host waits for the device, what keeps the device idle, "
        "and what host time goes into, by line, with what the linter says of that line. Two traces of one "
        "rank are compared, traces of several ranks are added up."
    )
    parser.epilog = (
        "Exit status: 0, or 1 if waits came or grew surely between two traces, 2 usage or configuration "
        "error, or a trace that could be read in part."
    )
    parser.add_argument(
        "files",
        nargs="+",
        type=named_path,
        metavar="FILE",
        help="files of `prof.export_chrome_trace(...)`, packed with gzip or not",
    )
    map_option(parser)
    parser.add_argument(
        "--project",
        type=named_path,
        metavar="DIR",
        help="the project that was traced (default: the one around the current directory)",
    )
    parser.add_argument(
        "--lint",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="tell what the linter says of each place (default: yes)",
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help="also record which functions of the project ran, and how often per step, in "
        ".dispatchguard/profile.json, for `dispatchguard check` to use",
    )
    parser.add_argument(
        "--compare",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="compare two files, or take them for ranks (default: compare them unless their ranks differ)",
    )
    parser.add_argument(
        "--top",
        type=positive_number,
        default=10,
        metavar="N",
        help="places to show in each table (default: 10)",
    )
    format_and_file(parser, _FORMATS)
    color_option(parser)
    how_read(parser)


def run(arguments: argparse.Namespace) -> int:
    """Runs it, and gives the exit status."""
    files: Sequence[Path] = arguments.files
    if arguments.compare and len(files) != 2:
        raise UserError(f"--compare takes two files, not {len(files)}")
    if arguments.record and not arguments.lint:
        raise UserError("--record goes without --no-lint: it needs the files of the project")
    if arguments.format == "perfetto":
        return _on_a_timeline(arguments)
    from pytest_dispatchguard.report.progress import progress

    with progress() as tell:
        found = _told(arguments, tell)
    comparison = None
    traces = [one.trace for one in found]
    if _compares(arguments, traces):
        from pytest_dispatchguard.traces.comparing import compared

        comparison = compared(traces[0], traces[1])
    from pytest_dispatchguard.report.traces import render

    form = chosen_format(arguments, _FORMATS)
    put(arguments, render(found, comparison, form, _options(arguments)), sys.stdout)
    if _damaged(traces):
        return FAILED
    return FOUND if comparison is not None and comparison.worse else CLEAN


def _told(
    arguments: argparse.Namespace, tell: Progress | None, watch: Watch | None = None
) -> tuple[Told, ...]:
    from pytest_dispatchguard.lint.processes.workers import default_jobs
    from pytest_dispatchguard.traced.told import told

    project = _project(arguments)
    found = told(
        arguments.files,
        project if arguments.lint else None,
        arguments.map,
        config=arguments.config,
        jobs=arguments.jobs or default_jobs(),
        cache=not arguments.no_cache,
        tell=tell,
        watch=watch,
    )
    if arguments.record:
        from pytest_dispatchguard.commands.tracing.recording import record

        say(record((one.trace for one in found), project, arguments.config))
    return found


def _project(arguments: argparse.Namespace) -> Path:
    project: Path = arguments.project or Path()
    if not (working_folder() / project).is_dir():
        raise UserError(f"{project}: there is no such folder")
    return project


def _compares(arguments: argparse.Namespace, traces: Sequence[Trace]) -> bool:
    if arguments.compare is not None or len(traces) != 2:
        return bool(arguments.compare)
    before, after = traces
    return before.rank == after.rank or before.rank is None or after.rank is None


def _options(arguments: argparse.Namespace) -> Options:
    from pytest_dispatchguard.commands.places import from_here
    from pytest_dispatchguard.config.project_root import find_root
    from pytest_dispatchguard.lint.sources.files import Source, read_source
    from pytest_dispatchguard.paths import absolute
    from pytest_dispatchguard.report.traces.options import Options

    cwd = working_folder()
    config = None if arguments.config is None else absolute(cwd / arguments.config)
    root = find_root([absolute(cwd / (arguments.project or Path()))], config)

    def text_of(path: str) -> str | None:
        found = read_source(root / path, path)
        return found.text if isinstance(found, Source) else None

    return Options(
        color=arguments.output is None and colored(arguments.color),
        top=arguments.top,
        linted=arguments.lint,
        root=str(root),
        shown=from_here(root),
        sources=text_of,
    )


def _damaged(traces: Sequence[Trace]) -> bool:
    """Says which files are damaged."""
    for trace in traces:
        if trace.damage:
            say(f"{trace.path}: the trace is damaged: {trace.damage}")
    return any(trace.damage for trace in traces)


def _on_a_timeline(arguments: argparse.Namespace) -> int:
    from pytest_dispatchguard.commands.tracing.timeline import written
    from pytest_dispatchguard.report.progress import progress
    from pytest_dispatchguard.traces.marking import Marks

    if len(arguments.files) != 1 or arguments.output is None:
        raise UserError(
            "--format perfetto writes one trace again: name one FILE, and --output FILE"
        )
    marks = Marks()
    with progress() as tell:
        (found,) = _told(arguments, tell, marks)
        written(found, marks.found, arguments.files[0], arguments.output, tell)
    if marks.left_out:
        say(f"note: the last {marks.left_out} events have no marks: there are too many")
    return FAILED if _damaged([found.trace]) else CLEAN
