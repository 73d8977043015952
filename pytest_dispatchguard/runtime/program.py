"""Runs a user's program in this process, as Python would run it."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.metadata import entry_points
from pathlib import Path
from typing import Literal

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.visible import one_line

_OUR_HOME = str(Path(__file__).parents[1]) + os.sep
Form = Literal["script", "module", "command"]


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run."""

    form: Form
    name: str
    """A file, a module, or a console script."""
    arguments: tuple[str, ...] = ()


def check(program: Program) -> None:
    """Raises if a program cannot be run."""
    if program.form == "script" and not Path(program.name).is_file():
        module = not program.name.endswith(".py") and "/" not in program.name
        hint = f"; for a module say -m {program.name}" if module else ""
        raise UserError(f"{program.name}: no such file{hint}")
    if program.form == "module" and not _is_there(program.name.partition(".")[0]):
        raise UserError(f"{program.name}: no module of that name can be found from here")
    if program.form == "command" and _command(program.name) is None:
        raise UserError(f"{program.name}: no package here installs a command of that name")


def run(program: Program, before_exit: Callable[[], None]) -> int:
    """Runs it and returns its exit status. `before_exit` is called if it ends this process by `os._exit`."""
    with _as_main(program), _told_of_exit(before_exit):
        try:
            _start(program)
        except SystemExit as ended:
            return _status(ended.code)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it dies of is its own
            _show(error)
            return 1
    return 0


def _start(program: Program) -> None:
    if program.form == "script":
        runpy.run_path(
            str(Path.cwd() / program.name), run_name="__main__"
        )  # as Python sets `__file__`
    elif program.form == "module":
        runpy.run_module(program.name, run_name="__main__", alter_sys=True)
    else:
        command = _command(program.name)
        assert command is not None
        sys.exit(command())


def _is_there(module: str) -> bool:
    path = [str(Path.cwd()), *sys.path]
    return module in sys.builtin_module_names or PathFinder.find_spec(module, path) is not None


def _command(name: str) -> Callable[[], int | str | None] | None:
    for point in entry_points(group="console_scripts", name=name):
        loaded: Callable[[], int | str | None] = point.load()
        return loaded
    return None


@contextmanager
def _as_main(program: Program) -> Iterator[None]:
    """Sets `sys.argv` and `sys.path` as for the main program."""
    arguments, path, main = sys.argv, sys.path[:], sys.modules.get("__main__")
    sys.argv = [program.name, *program.arguments]
    if program.form == "script":
        sys.path.insert(0, str(Path(program.name).resolve().parent))
    elif program.form == "module":
        sys.path.insert(0, str(Path.cwd()))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = arguments, path
        if main is not None:
            sys.modules["__main__"] = main


@contextmanager
def _told_of_exit(before_exit: Callable[[], None]) -> Iterator[None]:
    """Makes `os._exit`, which runs no exit handlers, call `before_exit` first."""
    real, process = os._exit, os.getpid()

    def leave(status: int) -> None:
        try:
            if os.getpid() == process:
                before_exit()
                sys.stdout.flush()
        except UserError as error:
            print(f"dispatchguard: {one_line(str(error))}", file=sys.stderr, flush=True)
            status = status or 2
        finally:
            real(status)

    os._exit = leave  # type: ignore[assignment]  # which never comes back either
    try:
        yield
    finally:
        os._exit = real


def _status(code: object) -> int:
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1


def _show(error: BaseException) -> None:
    """Prints the program's traceback, without the frames of this package."""
    told = traceback.TracebackException.from_exception(error)
    _take_ours_out(told)
    print("".join(told.format()), end="", file=sys.stderr)


def _take_ours_out(told: traceback.TracebackException) -> None:
    told.stack = traceback.StackSummary.from_list(
        [frame for frame in told.stack if not _is_ours(frame.filename)]
    )
    for before in (told.__cause__, told.__context__):
        if before is not None:
            _take_ours_out(before)


def _is_ours(path: str) -> bool:
    return path.startswith((_OUR_HOME, "<frozen runpy")) or path == runpy.__file__


def words(given: Sequence[str], valued: Sequence[str]) -> tuple[list[str], Program | None]:
    """Splits a command line into options, of which `valued` take a value, and the program that follows."""
    options: list[str] = []
    rest = list(given)
    while rest:
        word = rest.pop(0)
        if word == "-m":
            return options, Program("module", rest[0], tuple(rest[1:])) if rest else None
        if word == "--":
            return options, Program("command", rest[0], tuple(rest[1:])) if rest else None
        if not word.startswith("-"):
            return options, Program("script", word, tuple(rest))
        options.append(word)
        if word in valued and rest:
            options.append(rest.pop(0))
    return options, None
