"""Writes the output of a command to a file or to standard output."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from pytest_dispatchguard.commands.options import chosen_format, report_formats
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.visible import one_line


class OutputError(Exception):
    """Writing to standard output failed for a reason other than a closed pipe."""


def say(line: str) -> None:
    """Tell the user something beside the report."""
    complain(f"dispatchguard: {line}")


def complain(line: str) -> None:
    """Write a line to standard error if possible; there is nowhere else to report that it is not."""
    if sys.stderr is None:
        return
    try:
        print(one_line(line), file=sys.stderr)
    except OSError:
        give_up(sys.stderr)


def give_up(stream: TextIO) -> None:
    """Discard what is left in the buffer of a stream when the process exits."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # not a file of this process
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def render_report(
    arguments: argparse.Namespace,
    report: Any,
    sources: Any,
    stream: TextIO | None,
    root: Path,
) -> None:
    """Write a report in the requested format to the requested place. `root` is the project's root."""
    from pytest_dispatchguard.commands.places import OF_HOSTS, below_repository, from_here
    from pytest_dispatchguard.report import render

    form = chosen_format(arguments, report_formats())
    above = below_repository(root) if form in OF_HOSTS else ""
    if above:
        from pytest_dispatchguard.report.placed import placed, sources_of

        report, sources = placed(report, above), sources_of(sources, above)
    color = arguments.output is None and colored(arguments.color)
    text = render(
        report,
        form,
        color=color,
        width=width(_UNCUT) if arguments.output is None else _UNCUT,
        sources=sources,
        shown=from_here(root),
    )
    put(arguments, text, stream)


def expect(file: Path | None) -> None:
    """Check that the requested file can be written, before the work that will fill it."""
    if file is None:
        return
    try:
        if file.is_dir():
            raise UserError(f"{file}: cannot be written: {os.strerror(errno.EISDIR)}")
        if not file.parent.is_dir():
            raise UserError(f"{file}: the directory does not exist; create it first")
    except OSError as error:
        raise UserError(f"{file}: cannot be written: {error.strerror or error}") from None


def put(arguments: argparse.Namespace, text: str, stream: TextIO | None) -> None:
    """Write a text to the requested file, otherwise to a stream."""
    if arguments.output is None:
        write(text, stream)
    else:
        put_in(arguments.output, text)


def put_in(file: Path, text: str) -> None:
    """Write a text to a file, completely or not at all."""
    from pytest_dispatchguard.lint.sources.files import write_source

    data = text.encode("utf-8", "backslashreplace")
    try:
        if file.exists() and (not file.is_file() or _names_stream(file)):
            # A device, a pipe or a redirected stream is written to, never replaced.
            _write_in_place(file, data)
        else:
            write_source(file, data)
    except OSError as error:
        raise UserError(f"{file}: cannot be written: {error.strerror or error}") from None


def _names_stream(path: Path) -> bool:
    """Whether a path refers to an open file of a process, like /dev/stdout, possibly through links."""
    import stat

    for _ in range(40):  # as many links as Linux follows
        path = path.parent.resolve() / path.name
        if path.parts[1:2] in (("dev",), ("proc",)) and path.parts[1:3] != ("dev", "shm"):
            return True
        if not stat.S_ISLNK(path.lstat().st_mode):
            return False
        path = path.parent / path.readlink()
    return False


def _write_in_place(path: Path, data: bytes) -> None:
    try:
        ours = os.path.samestat(path.stat(), os.fstat(1))
    except OSError:  # standard output is closed
        ours = False
    if ours:
        # Opening it again would overwrite it from the start.
        write_bytes(data)
        return
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as file:
        file.write(data)


def write(text: str, stream: TextIO | None) -> None:
    """Write a text to a stream of this process."""
    if stream is None:  # closed by the parent process
        return
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error.strerror or str(error)) from None


def write_bytes(data: bytes) -> None:
    """Write bytes to standard output."""
    if sys.stdout is None:
        return
    sys.stdout.flush()
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error.strerror or str(error)) from None


def colored(choice: str) -> bool:
    """Whether standard output is in color."""
    if choice != "auto":
        return choice == "always"
    return on_terminal() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def on_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


_UNCUT = 1000
"""The width of a report that no terminal shows: nothing of a message is cut."""


def width(otherwise: int = 100) -> int:
    """The width of the terminal in columns, as `shutil` has it; importing that would import archivers,
    too."""
    try:
        columns = int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        columns = 0
    if columns <= 0 and sys.__stdout__ is not None:
        with suppress(OSError, ValueError):
            columns = os.get_terminal_size(sys.__stdout__.fileno()).columns
    return columns if columns > 0 else otherwise
