"""The `dispatchguard` command: arguments in, text and an exit status out, and nothing else."""

from __future__ import annotations

import _thread
import argparse
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from pytest_dispatchguard import __version__
from pytest_dispatchguard.commands import COMMANDS, FAILED, module_of
from pytest_dispatchguard.commands.output import (
    OutputError,
    complain,
    expect,
    give_up,
    say,
    width,
    write,
)
from pytest_dispatchguard.model.errors import UserError, pass_interrupt_on

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and gives its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    collecting = gc.isenabled()
    try:
        return _run(argv)
    except KeyboardInterrupt:
        say("interrupted; nothing was half-written")
        return _INTERRUPTED
    except UserError as error:
        say(str(error))
        return FAILED
    except BrokenPipeError:
        # Whoever read our output has had enough (`| head`): no news.
        give_up(sys.stdout)
        return FAILED
    except OutputError as error:
        give_up(sys.stdout)
        say(f"the report cannot be written: {error}")
        return FAILED
    except Exception as error:  # noqa: BLE001 - the last resort: one line, and the trace on request
        if os.environ.get("DISPATCHGUARD_TRACEBACK"):
            import traceback  # a millisecond of each run

            traceback.print_exc()
        say(
            f"internal error: {type(error).__name__}: {error} "
            "(set DISPATCHGUARD_TRACEBACK=1 for the trace, and please report it)"
        )
        return FAILED
    finally:
        if collecting:
            gc.enable()


def _run(argv: Sequence[str] | None) -> int:
    try:
        arguments = _arguments(sys.argv[1:] if argv is None else argv)
        expect(getattr(arguments, "output", None))
        # Facts and trees are many, long-lived and without cycles: collecting finds nothing in them.
        gc.disable()
        status: int = arguments.run(arguments)
        write("", sys.stdout)
    except Exception as error:
        pass_interrupt_on(error)
        raise
    return status


def command(then: Callable[[], object] = lambda: None) -> NoReturn:
    """Runs the command, does what comes `then`, and ends the process. What a check or a server held is left
    to the system: to take it apart, piece by piece, would take longer than to tell the findings."""
    if sys.argv[1:2] != ["run"]:
        sys.unraisablehook = _send_again
    status = main()
    if sys.argv[1:2] in (["check"], ["server"], ["mcp"]):
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                with suppress(OSError, ValueError):
                    stream.flush()
        then()
        os._exit(status)
    then()
    sys.exit(status)


def _send_again(lost: Any) -> None:
    """A Ctrl-C that falls where Python passes no exception on (a finalizer, the callback of an import lock)
    comes once more, a moment later."""
    if not isinstance(lost.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return

    losing = _thread.get_ident()

    def send() -> None:
        time.sleep(0.01)
        while _is_told(losing):  # in here it would be lost once more
            time.sleep(0.005)
        if os.name == "posix":
            os.kill(os.getpid(), signal.SIGINT)  # this one also ends a wait
        else:
            _thread.interrupt_main()

    _thread.start_new_thread(send, ())


def _is_told(thread: int) -> bool:
    """Whether a thread is being told of a lost Ctrl-C."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_code is _send_again.__code__:
            return True
        frame = frame.f_back
    return False


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    name, words = (argv[0], list(argv[1:])) if argv else ("", [])
    if name not in COMMANDS:
        parser = _top()
        _, unknown = parser.parse_known_args(argv)
        _refuse(parser, unknown)
        parser.error("name the command first")
    module = import_module(module_of(name))
    parser = _Parser(prog=f"dispatchguard {name}")
    module.add(parser)
    program = None
    if name == "run":
        words, program = module.own_words(words)
    arguments, unknown = parser.parse_known_args(words)
    _refuse(parser, unknown)
    arguments.program, arguments.run = program, module.run
    return arguments


def _refuse(parser: argparse.ArgumentParser, unknown: Sequence[str]) -> None:
    if not unknown:
        return
    from pytest_dispatchguard.spelling import did_you_mean

    word = unknown[0].partition("=")[0]
    options: list[str] = [o for a in parser._actions for o in a.option_strings]
    if word.startswith("-"):
        parser.error(f"unknown option {word}; {did_you_mean(word, options)}")
    parser.error(f"unexpected argument {word!r}")


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, width=width(80) - 2)


class _Parser(argparse.ArgumentParser):
    def __init__(self, **settings: Any) -> None:
        # An option has one spelling: a cut-off one may mean another option in the next release.
        super().__init__(**settings, allow_abbrev=False, formatter_class=_formatter)
        self.set_defaults(parser=self)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            from pytest_dispatchguard.spelling import did_you_mean

            advice = did_you_mean(str(value), list(action.choices))
            raise argparse.ArgumentError(action, f"{value!r} is not a valid choice; {advice}")

    def error(self, message: str) -> NoReturn:
        complain(f"{self.prog}: {message}; see `{self.prog} --help`")
        raise SystemExit(FAILED)

    def _print_message(self, message: str, file: Any = None) -> None:
        # Help and version; argparse would pass over that they cannot be written.
        write(message, sys.stdout)


def _top() -> _Parser:
    """The parser of what stands before any command."""
    parser = _Parser(
        prog="dispatchguard",
        description="Find and prevent host-side overhead in code built on PyTorch. "
        "`dispatchguard COMMAND --help` describes a command.",
        epilog="Exit status: 0 clean, 1 findings (or a non-empty diff), 2 usage, configuration "
        "or internal error, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"dispatchguard {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, told in COMMANDS.items():
        commands.add_parser(name, help=told)
    return parser


if __name__ == "__main__":
    command()
