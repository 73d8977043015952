"""The `dispatchguard` command: arguments in, text and an exit status out, and nothing else."""

from __future__ import annotations

import _thread
import argparse
import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from pytest_dispatchguard import __version__
from pytest_dispatchguard.model import UserError

if TYPE_CHECKING:
    from pytest_dispatchguard.lint.check import Checked, Request

CLEAN, FOUND, FAILED = 0, 1, 2
"""Exit statuses: nothing found; findings, or a diff that is not empty; usage, configuration or
internal error."""

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and gives its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    collecting = gc.isenabled()
    try:
        arguments = _arguments(sys.argv[1:] if argv is None else argv)
        # Facts and trees are many, long-lived and without cycles: collecting finds nothing in them.
        gc.disable()
        status: int = arguments.run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return _interrupted()
    except UserError as error:
        if _by_interrupt(error):
            return _interrupted()
        print(f"dispatchguard: {error}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        # Whoever read our output has had enough (`| head`): no news.
        _give_up_output()
        return FAILED
    except _OutputError as error:
        _give_up_output()
        print(f"dispatchguard: the report cannot be written: {error}", file=sys.stderr)
        return FAILED
    except Exception as error:  # noqa: BLE001 - the last resort: one line, and the trace on request
        if _by_interrupt(error):
            return _interrupted()
        if os.environ.get("DISPATCHGUARD_TRACEBACK"):
            traceback.print_exc()
        print(
            f"dispatchguard: internal error: {type(error).__name__}: {error} "
            "(set DISPATCHGUARD_TRACEBACK=1 for the trace, and please report it)",
            file=sys.stderr,
        )
        return FAILED
    finally:
        if collecting:
            gc.enable()


def _interrupted() -> int:
    print("dispatchguard: interrupted; nothing was half-written", file=sys.stderr)
    return _INTERRUPTED


def _by_interrupt(error: BaseException | None) -> bool:
    """Whether an error only passes on a Ctrl-C: before Python 3.12, one that falls into the making of a class
    comes out as a RuntimeError."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def command() -> NoReturn:
    """Runs the command and ends the process. What a check or a server held is left to the system: to take it
    apart, piece by piece, would take longer than to tell the findings."""
    if sys.argv[1:2] != ["run"]:
        sys.unraisablehook = _send_again
    status = main()
    if sys.argv[1:2] in (["check"], ["server"]):
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                with suppress(OSError, ValueError):
                    stream.flush()
        os._exit(status)
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


class _OutputError(Exception):
    """Standard output takes no more, for a reason other than that nobody reads it."""


def _give_up_output() -> None:
    """Lets what is left in the buffer of standard output go nowhere when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = _parser()
    program = None
    if argv[:1] == ["run"]:
        from pytest_dispatchguard.runtime.program import words

        # What follows the program's name is for the program.
        before, program = words(argv[1:], _VALUED)
        argv = ["run", *before]
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        from pytest_dispatchguard.config import did_you_mean

        word = unknown[0].partition("=")[0]
        options: list[str] = [o for a in arguments.parser._actions for o in a.option_strings]
        if word.startswith("-"):
            arguments.parser.error(f"unknown option {word}; {did_you_mean(word, options)}")
        arguments.parser.error(f"unexpected argument {word!r}")
    arguments.program = program
    return arguments


class _Parser(argparse.ArgumentParser):
    def __init__(self, **settings: Any) -> None:
        # An option has one spelling: a cut-off one may mean another option in the next release.
        super().__init__(**settings, allow_abbrev=False)
        self.set_defaults(parser=self)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            from pytest_dispatchguard.config import did_you_mean

            advice = did_you_mean(str(value), list(action.choices))
            raise argparse.ArgumentError(action, f"{value!r} is not there to choose; {advice}")

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}; see `{self.prog} --help`", file=sys.stderr)
        raise SystemExit(FAILED)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="dispatchguard",
        description="Finds what makes calls of code built on PyTorch dear on the host: "
        "reads code, never runs it.",
        epilog="Exit status: 0 clean, 1 findings (or a diff that is not empty), 2 usage, configuration "
        "or internal errors, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"dispatchguard {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _check_parser(commands)
    _run_parser(commands)
    _guards_parser(commands)
    rule = commands.add_parser("rule", help="explain one rule, or list those of a prefix (DG4)")
    rule.add_argument("code", metavar="CODE")
    rule.set_defaults(run=_rule)
    rules = commands.add_parser("rules", help="list all rules")
    rules.add_argument(
        "--format", choices=("text", "json"), default="text", help="text (default) or json"
    )
    rules.set_defaults(run=_rules)
    hot = commands.add_parser("hot", help="list hot functions, with the path from their root")
    hot.add_argument(
        "paths", nargs="*", type=_path, metavar="PATH", help="files and folders (default: .)"
    )
    hot.add_argument(
        "--format", choices=("text", "json"), default="text", help="text (default) or json"
    )
    _how(hot)
    hot.set_defaults(run=_hot)
    _layers_parser(commands)
    _price_parser(commands)
    _review_parser(commands)
    _report_parser(commands)
    _history_parser(commands)
    _merge_parser(commands)
    server = commands.add_parser(
        "server",
        help="answer an editor in the Language Server Protocol",
        description="Answers an editor in the Language Server Protocol, on standard input and output, until "
        "it ends the conversation.",
    )
    server.set_defaults(run=_server)
    daemon = commands.add_parser(
        "daemon", help="tell of the process that does what `check --daemon` asks, or end it"
    )
    daemon.add_argument("--stop", action="store_true", help="end it")
    daemon.set_defaults(run=_daemon)
    clean = commands.add_parser("clean", help="drop the cache")
    clean.add_argument(
        "paths", nargs="*", type=_path, metavar="PATH", help="the project (default: .)"
    )
    clean.set_defaults(run=_clean)
    return parser


def _check_parser(commands: Any) -> None:
    check = commands.add_parser(
        "check",
        help="lint files and folders",
        description="Lints files and folders; hotness always comes from the whole project around them.",
    )
    check.add_argument(
        "paths",
        nargs="*",
        type=_path,
        metavar="PATH",
        help="files and folders (default: .), - for standard input",
    )
    which = _which(check)
    which.add_argument(
        "--pedantic", action="store_true", default=None, help="show what is only maybe so, too"
    )
    fixes = check.add_argument_group("fixes")
    fixes.add_argument("--fix", action="store_true", help="make safe fixes")
    fixes.add_argument(
        "--unsafe-fixes", action="store_true", help="with --fix or --diff: unsafe fixes as well"
    )
    fixes.add_argument(
        "--diff", action="store_true", help="show what fixes would change, and change nothing"
    )
    output = _output(check)
    output.add_argument(
        "--min-cost",
        type=_microseconds,
        default=0.0,
        metavar="TIME",
        help="leave out what costs less in a call of its root: 1us, 0.5µs, 2ms",
    )
    output.add_argument(
        "--statistics", action="store_true", help="count findings by rule instead of listing them"
    )
    old = check.add_argument_group("old code")
    old.add_argument(
        "--diff-base",
        metavar="REV",
        help="only findings on lines changed since the merge base with REV",
    )
    old.add_argument(
        "--baseline", type=_path, metavar="FILE", help="accept the findings listed in FILE"
    )
    old.add_argument(
        "--write-baseline", action="store_true", help="list all present findings in the baseline"
    )
    old.add_argument(
        "--prune-baseline", action="store_true", help="remove baseline entries that no longer match"
    )
    how = check.add_argument_group("how")
    how.add_argument(
        "--stdin-filename",
        type=_path,
        metavar="FILE",
        help="the name of standard input, with the path -",
    )
    how.add_argument(
        "--daemon",
        action="store_true",
        help="have a process in the background do it, which has everything imported; it begins at the first "
        "such run, and ends when nobody has asked for half an hour",
    )
    _how(how)
    check.set_defaults(run=_check)


def _guards_parser(commands: Any) -> None:
    guards = commands.add_parser(
        "guards",
        help="tell what compiled code checks at every call, what that takes, and how to have less of it",
        description="Evaluates TARGET once, after the setup, and tells the guards of all compiled code "
        "that it runs, by what of yours makes torch check them. The working folder is importable.",
        epilog='Example: dispatchguard guards "model(x)" --setup "import torch, net; '
        'model = torch.compile(net.Net()); x = torch.ones(4)"',
    )
    guards.add_argument("target", metavar="TARGET", help="an expression that calls compiled code")
    guards.add_argument("--setup", default="", metavar="CODE", help="what to run before")
    guards.add_argument(
        "--format", choices=("text", "json"), default="text", help="text (default) or json"
    )
    guards.set_defaults(run=_guards)


def _run_parser(commands: Any) -> None:
    run = commands.add_parser(
        "run",
        help="run a program and tell what it does at every call though once would do, where it waits for the "
        "device, or record what it calls",
        usage="dispatchguard run [OPTIONS] (SCRIPT | -m MODULE | -- COMMAND) [ARGUMENTS]",
        description="Runs a program and tells what its hot code does at every call though once would do, and "
        "with --ghost where its host waits for the device. What follows the program is for the program.",
        epilog="Exit status: that of the program where it is not 0; else 1 where anything was found, "
        "0 where nothing was, 2 for usage and configuration errors.",
    )
    run.add_argument(
        "--ghost",
        action="store_true",
        help="let code for cuda run here, on a machine without a GPU: it computes on the CPU",
    )
    run.add_argument(
        "--record",
        action="store_true",
        help="record which functions run, what they call and what they are given, for `check` to read",
    )
    run.add_argument(
        "--ops",
        action="store_true",
        help="tell as well which lines ask most of torch's dispatcher, and what they do in vain or twice",
    )
    _which(run)
    _output(run)
    run.add_argument(
        "--baseline", type=_path, metavar="FILE", help="accept the findings listed in FILE"
    )
    run.add_argument(
        "--config", type=_path, metavar="FILE", help="configuration file in place of pyproject.toml"
    )
    run.set_defaults(run=_run)


def _layers_parser(commands: Any) -> None:
    layers = commands.add_parser(
        "layers",
        help="tell where the time of one call goes: Python, binding, autograd, dispatcher, kernels",
        description="Takes one call apart: what its Python functions take, torch's binding, autograd, the "
        "dispatcher, allocation, kernels; each measured by turns with the others in one run.",
        epilog='Example: dispatchguard layers "torch.add(x, x)" --setup "import torch; x = torch.ones(4)"',
    )
    layers.add_argument(
        "target",
        metavar="TARGET",
        help="an expression such as 'f(x)', or a test with the fixture overhead: "
        "tests/test_add.py::test_wide",
    )
    layers.add_argument(
        "--setup",
        default="",
        metavar="CODE",
        help="Python that is run first, for the names in TARGET",
    )
    layers.add_argument(
        "--sizes",
        type=_sizes,
        metavar="N,N,...",
        help="at each of these sizes, which --setup and TARGET know as n: what grows with it",
    )
    layers.add_argument(
        "--against", metavar="EXPRESSION", help="with --sizes: what to hold the call against"
    )
    layers.add_argument(
        "--mode", choices=("grad", "no_grad", "inference"), help="torch's grad mode (default: grad)"
    )
    layers.add_argument(
        "--seconds", type=_seconds, default=2.0, metavar="S", help="for each call (default: 2)"
    )
    layers.add_argument(
        "--format",
        choices=("text", "json", "markdown", "svg"),
        default="text",
        help="default: text",
    )
    layers.add_argument(
        "--output", type=_path, metavar="FILE", help="write to a file, whole or not at all"
    )
    layers.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="default: auto"
    )
    layers.set_defaults(run=_layers)


def _price_parser(commands: Any) -> None:
    price = commands.add_parser(
        "price",
        help="measure what the pattern of each rule costs over its fix, on this machine",
        description="Times the bad form of every specimen against its good form, in processes of their own, "
        "and counts how often each makes the host wait for a device. Findings are told with these prices "
        "from then on: they are kept in .dispatchguard/prices.json.",
        epilog="Exit status: 0, or 1 where the good form of a specimen does not surely cost less.",
    )
    price.add_argument("codes", nargs="*", metavar="CODE", help="codes or prefixes (default: all)")
    price.add_argument(
        "--seconds",
        type=_seconds,
        default=1.0,
        metavar="S",
        help="for each specimen, more where that leaves it open (default: 1)",
    )
    price.add_argument(
        "--format", choices=("text", "json", "markdown"), default="text", help="default: text"
    )
    price.add_argument(
        "--output", type=_path, metavar="FILE", help="write to a file, whole or not at all"
    )
    price.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="default: auto"
    )
    price.set_defaults(run=_price)


def _review_parser(commands: Any) -> None:
    review = commands.add_parser(
        "review",
        help="tell what a change adds to the findings and budgets of a project, and takes from them",
        description="Holds the project against its merge base with a revision: new findings, with their "
        "fixes as suggestions, findings that are gone, and with --budgets the counters that moved. The whole "
        "project is read, so what a change makes hot elsewhere is told too, at the call that does.",
        epilog="Exit status: 0, 1 where there is a new finding or a budget fails, 2 for usage, configuration "
        "or internal errors, and where it could not be posted.",
    )
    review.add_argument(
        "--base", required=True, metavar="REV", help="what the change is held against"
    )
    review.add_argument(
        "--budgets",
        nargs="*",
        metavar="TEST",
        help="also count what budgets' subjects do, here and there: of these tests, or all marked ones",
    )
    review.add_argument(
        "--post",
        action="store_true",
        help="comment on the pull or merge request that the CI job runs for",
    )
    which = _which(review)
    which.add_argument(
        "--pedantic", action="store_true", default=None, help="tell what is only maybe so, too"
    )
    review.add_argument(
        "--baseline", type=_path, metavar="FILE", help="accept the findings in FILE"
    )
    review.add_argument(
        "--format",
        choices=("markdown", "json", "github", "gitlab"),
        default="markdown",
        help="markdown (default), json, or the JSON that the APIs of GitHub and GitLab take",
    )
    review.add_argument(
        "--output", type=_path, metavar="FILE", help="write to a file, whole or not at all"
    )
    review.add_argument("--exit-zero", action="store_true", help="exit with 0 whatever is found")
    _how(review)
    review.set_defaults(run=_review)


def _report_parser(commands: Any) -> None:
    report = commands.add_parser(
        "report",
        help="make one HTML page of findings, waits and budgets",
        description="Lints files and folders, and makes a page of what is found and of what budgets came to. "
        "The page is one file, which asks nothing of any network.",
        epilog="Exit status: 0 where the page was written, whatever is in it; 2 for usage and configuration "
        "errors.",
    )
    report.add_argument(
        "paths", nargs="*", type=_path, metavar="PATH", help="files and folders (default: .)"
    )
    report.add_argument(
        "--output",
        type=_path,
        metavar="FILE",
        help="where the page goes, whole or not at all",
    )
    report.add_argument(
        "--badge",
        type=_path,
        metavar="FILE",
        help="also a badge: a drawing (.svg), or what shields.io makes one of (.json)",
    )
    report.add_argument(
        "--figures", type=_path, metavar="FILE", help="also figures for dashboards, as JSON"
    )
    report.add_argument(
        "--history",
        metavar="URL|FILE",
        help="earlier runs, which are drawn beside budgets (default: those of the project, if it keeps any)",
    )
    report.add_argument(
        "--budgets",
        type=_path,
        metavar="FILE",
        help="what `pytest --overhead-budget --overhead-json FILE` wrote",
    )
    report.add_argument(
        "--pedantic", action="store_true", default=None, help="show what is only maybe so, too"
    )
    _how(report)
    report.set_defaults(run=_report)


def _history_parser(commands: Any) -> None:
    history = commands.add_parser(
        "history",
        help="tell what budgets came to from run to run, and which commit moved a counter",
        description="Tells what `pytest --overhead-budget --overhead-history` has kept: all tests as they "
        "came out last; one test from run to run; with --bisect the commit that moved a counter of it, which "
        "git finds in a worktree of its own.",
        epilog="Exit status: 0, or 2 for usage errors and where there is nothing to tell.",
    )
    history.add_argument(
        "test",
        nargs="?",
        metavar="TEST",
        help="a test or a part of its name, with the subject in parentheses behind it where it has several "
        "(default: list all)",
    )
    history.add_argument(
        "--history",
        default="",
        metavar="URL|FILE",
        help="where it is kept (default: .dispatchguard/history.sqlite)",
    )
    history.add_argument(
        "--last", type=_positive, metavar="N", help="only so many runs (default: 30)"
    )
    history.add_argument(
        "--format", choices=("text", "json"), default="text", help="text (default) or json"
    )
    bisect = history.add_argument_group("which commit")
    bisect.add_argument(
        "--bisect", action="store_true", help="find the commit that moved a counter of TEST"
    )
    bisect.add_argument(
        "--good", metavar="REV", help="a commit before it (default: by the history)"
    )
    bisect.add_argument("--bad", metavar="REV", help="a commit after it (default: by the history)")
    bisect.add_argument("--counter", metavar="NAME", help="which (default: the first that moved)")
    history.set_defaults(run=_history)


def _merge_parser(commands: Any) -> None:
    merge = commands.add_parser(
        "merge",
        help="join files of --overhead-json, as from shards of a CI job, into one",
        description="Joins files that `pytest --overhead-json` wrote, as from the shards of a CI job, into "
        "one of the same layout, or with --history keeps them as one run.",
    )
    merge.add_argument("files", nargs="+", type=_path, metavar="FILE", help="what to join")
    merge.add_argument(
        "--output",
        type=_path,
        metavar="FILE",
        help="write to a file, whole or not at all (default: standard output, or nowhere with --history)",
    )
    merge.add_argument(
        "--history",
        nargs="?",
        const="",
        metavar="URL|FILE",
        help="keep them as one run in this history; in .dispatchguard/history.sqlite where none is named",
    )
    merge.set_defaults(run=_merge)


def _which(command: argparse.ArgumentParser) -> Any:
    which = command.add_argument_group("which rules")
    which.add_argument(
        "--select", type=_codes, metavar="CODES", help="only these codes or prefixes: DG1,DG401"
    )
    which.add_argument("--extend-select", type=_codes, metavar="CODES", help="these as well")
    which.add_argument("--ignore", type=_codes, metavar="CODES", help="not these")
    return which


def _output(command: argparse.ArgumentParser) -> Any:
    output = command.add_argument_group("output")
    output.add_argument("--format", choices=_formats(), help="default: text")
    output.add_argument(
        "--output",
        type=_path,
        metavar="FILE",
        help="write the report to a file, whole or not at all",
    )
    output.add_argument("--exit-zero", action="store_true", help="exit with 0 whatever is found")
    output.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="default: auto"
    )
    return output


def _how(command: Any) -> None:
    """How the project is read: by every command that reads it all."""
    command.add_argument(
        "--config", type=_path, metavar="FILE", help="configuration file in place of pyproject.toml"
    )
    command.add_argument(
        "--jobs", type=_positive, metavar="N", help="processes (default: one a processor)"
    )
    command.add_argument("--no-cache", action="store_true", help="neither read nor write the cache")


def _given(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the command line says in place of the configuration."""
    names = ("select", "extend_select", "ignore", "pedantic", "baseline")
    return {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}


def _path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("an empty name; leave it out, or name a path")
    return Path(text)


def _cwd() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        said = error.strerror or error
        raise UserError(f"the working folder cannot be found: {said}; change to another") from None


def _formats() -> tuple[str, ...]:
    from pytest_dispatchguard.report import FORMATS

    return tuple(FORMATS)


def _codes(text: str) -> tuple[str, ...]:
    codes = tuple(word.strip() for word in text.split(",") if word.strip())
    if not codes:
        raise argparse.ArgumentTypeError("names no code")
    return codes


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(_positive(word.strip()) for word in text.split(",") if word.strip())


def _microseconds(text: str) -> float:
    units = {"us": 1.0, "µs": 1.0, "μs": 1.0, "ms": 1e3, "ns": 1e-3}
    unit = next((unit for unit in units if text.endswith(unit)), "")
    try:
        number = float(text.removesuffix(unit))
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write it as 1us or 0.5us")
    return number * units.get(unit, 1.0)


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.05 <= number <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.05 to 3600")
    return number


# -- check -----------------------------------------------------------------------------------------


def _check(arguments: argparse.Namespace) -> int:
    from pytest_dispatchguard.lint.check import check

    request = _request(arguments)
    from pytest_dispatchguard.progress import progress

    with progress() as tell:
        checked = check(_with_progress(request, tell))
    for problem in checked.problems:
        print(f"dispatchguard: {problem}", file=sys.stderr)
    found = _tell(arguments, checked)
    if checked.problems:
        return FAILED
    return CLEAN if arguments.exit_zero or not found else FOUND


def _with_progress(request: Request, tell: Any) -> Request:
    from dataclasses import replace

    return replace(request, progress=tell)


def _request(arguments: argparse.Namespace) -> Request:
    from pytest_dispatchguard.lint.check import Request
    from pytest_dispatchguard.lint.pool import default_jobs

    if arguments.fix and arguments.diff:
        raise UserError("--fix and --diff exclude each other: --diff shows what --fix would do")
    if arguments.unsafe_fixes and not (arguments.fix or arguments.diff):
        raise UserError("--unsafe-fixes goes with --fix or --diff")
    if arguments.diff and (arguments.format or arguments.statistics):
        raise UserError("--diff goes without --format and --statistics: what it shows is the diff")
    if arguments.statistics and arguments.format not in (None, "text", "json"):
        raise UserError(
            f"--statistics goes without --format {arguments.format}; there is text or json"
        )
    if arguments.prune_baseline and arguments.diff:
        raise UserError("--prune-baseline goes without --diff, which changes nothing")
    if arguments.write_baseline and (
        arguments.fix or arguments.diff or arguments.prune_baseline or arguments.diff_base
    ):
        raise UserError(
            "--write-baseline goes without --fix, --diff, --diff-base and --prune-baseline"
        )
    paths = tuple(arguments.paths) or (Path(),)
    stdin = None
    if Path("-") in paths:
        if len(paths) > 1:
            raise UserError("- (standard input) goes alone, without other paths")
        stdin = sys.stdin.buffer.read()
        paths = (arguments.stdin_filename or Path("stdin.py"),)
    elif arguments.stdin_filename:
        raise UserError("--stdin-filename goes with the path -")
    given = _given(arguments)
    mode = "unsafe" if arguments.unsafe_fixes else "safe"
    return Request(
        paths=paths,
        cwd=_cwd(),
        config_file=arguments.config,
        settings=given,
        fix=mode if arguments.fix or arguments.diff else "no",  # type: ignore[arg-type]  # one of the modes
        write=not arguments.diff,
        diff_base=arguments.diff_base,
        write_baseline=arguments.write_baseline,
        prune_baseline=arguments.prune_baseline,
        jobs=arguments.jobs or default_jobs(),
        cache=not arguments.no_cache,
        stdin=stdin,
        min_cost=arguments.min_cost,
    )


def _tell(arguments: argparse.Namespace, checked: Checked) -> bool:
    """Writes the report; True when there is something to answer for."""
    if arguments.diff:
        from pytest_dispatchguard.report.diff import unified

        text = "".join(
            unified(path, checked.before[path], checked.after[path])
            for path in sorted(checked.after)
        )
        _put(arguments, text, sys.stdout)
        unread = [f for f in checked.report.findings if f.code == "DG001"]
        for finding in unread:
            place = f"{finding.path}:{finding.span.line}:{finding.span.column}"
            print(f"dispatchguard: {place}: {finding.code} {finding.message}", file=sys.stderr)
        return bool(text or unread)
    stream = sys.stdout
    if arguments.fix and Path("-") in arguments.paths:
        # Standard input is fixed to standard output, as editors expect of a filter.
        _write_bytes(checked.stdin_after or b"")
        stream = sys.stderr
    if arguments.statistics:
        from pytest_dispatchguard.report.statistics import statistics

        text = statistics(checked.report, arguments.format or "text")
    else:
        _render(arguments, checked.report, checked.reader, stream)
        return bool(checked.report.findings)
    _put(arguments, text, stream)
    return bool(checked.report.findings)


def _render(
    arguments: argparse.Namespace, report: Any, sources: Any, stream: TextIO | None
) -> None:
    from pytest_dispatchguard.report import render

    color = arguments.output is None and _color(arguments.color)
    text = render(report, arguments.format or "text", color=color, width=_width(), sources=sources)
    _put(arguments, text, stream)


def _put(arguments: argparse.Namespace, text: str, stream: TextIO | None) -> None:
    if arguments.output is None:
        _write(text, stream)
    else:
        _put_in(arguments.output, text)


def _put_in(file: Path, text: str) -> None:
    from pytest_dispatchguard.lint.files import write_source

    data = text.encode("utf-8", "backslashreplace")
    try:
        if file.exists() and (not file.is_file() or _names_stream(file)):
            # A device, a pipe, or whatever a stream was led to is written to, never replaced.
            _write_in_place(file, data)
        else:
            write_source(file, data)
    except OSError as error:
        raise UserError(f"{file}: cannot be written: {error.strerror or error}") from None


def _names_stream(path: Path) -> bool:
    """Whether a path stands for an open file of a process, as /dev/stdout does, through links perhaps."""
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
        # Opened anew it would be written from its start, over what is there.
        _write_bytes(data)
        return
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as file:
        file.write(data)


def _write(text: str, stream: TextIO | None) -> None:
    if stream is None:  # closed by whoever started us
        return
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _OutputError(error.strerror or str(error)) from None


def _write_bytes(data: bytes) -> None:
    if sys.stdout is None:
        return
    sys.stdout.flush()
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _OutputError(error.strerror or str(error)) from None


def _color(choice: str) -> bool:
    if choice != "auto":
        return choice == "always"
    return (
        sys.stdout is not None
        and sys.stdout.isatty()
        and "NO_COLOR" not in os.environ
        and os.environ.get("TERM") != "dumb"
    )


def _width() -> int:
    import shutil

    return shutil.get_terminal_size((100, 24)).columns


# -- run -------------------------------------------------------------------------------------------

_VALUED = tuple(
    f"--{name}"
    for name in (
        *("select", "extend-select", "ignore"),
        *("format", "output", "color", "baseline", "config"),
    )
)
"""Options of `run` that take the next word."""


def _run(arguments: argparse.Namespace) -> int:
    from pytest_dispatchguard.running import Wishes, watched

    if arguments.program is None:
        arguments.parser.error("run what? name a script, -m MODULE, or -- COMMAND")
    if arguments.output is not None and not arguments.output.parent.is_dir():
        raise UserError(f"{arguments.output}: there is no such folder; make it first")
    given = _given(arguments)
    wishes = Wishes(
        arguments.ghost, arguments.ops, arguments.record, arguments.config, given, _cwd()
    )
    status, found = watched(
        arguments.program,
        wishes,
        lambda report, sources: _render(arguments, report, sources, sys.stdout),
        lambda line: print(f"dispatchguard: {line}", file=sys.stderr),
    )
    return status or (FOUND if found and not arguments.exit_zero else CLEAN)


# -- layers ----------------------------------------------------------------------------------------


def _layers(arguments: argparse.Namespace) -> int:
    from pytest_dispatchguard.apart import Asked, taken_apart, written
    from pytest_dispatchguard.progress import progress

    if arguments.against and not arguments.sizes:
        raise UserError("--against goes with --sizes: it is drawn as a ratio over the size")
    asked = Asked(
        arguments.target,
        arguments.setup,
        arguments.sizes,
        arguments.against,
        arguments.mode,
        arguments.seconds,
        _cwd(),
    )
    with progress() as tell:
        found = taken_apart(asked, tell or (lambda what, done, of: None))
    color = arguments.output is None and _color(arguments.color)
    _put(arguments, written(found, arguments.format, color=color, width=_width()), sys.stdout)
    return CLEAN


# -- price -----------------------------------------------------------------------------------------


def _price(arguments: argparse.Namespace) -> int:
    from pytest_dispatchguard.pricing import Asked, priced, written
    from pytest_dispatchguard.progress import progress

    codes = [code.upper() for code in arguments.codes]
    with progress() as tell:
        table, file = priced(
            Asked(codes, arguments.seconds, _cwd()), tell or (lambda what, done, of: None)
        )
    color = arguments.output is None and _color(arguments.color)
    _put(arguments, written(table, arguments.format, color=color), sys.stdout)
    print(f"dispatchguard: kept in {file}", file=sys.stderr)
    return CLEAN if all(one.proven for one in table.specimens) else FOUND


# -- review ----------------------------------------------------------------------------------------


def _review(arguments: argparse.Namespace) -> int:
    from pytest_dispatchguard.lint.pool import default_jobs
    from pytest_dispatchguard.lint.review import Asked
    from pytest_dispatchguard.progress import progress
    from pytest_dispatchguard.reviewing import posted, review, written

    given = _given(arguments)
    jobs = arguments.jobs or default_jobs()
    with progress() as tell:
        asked = Asked(
            arguments.base,
            _cwd(),
            arguments.config,
            given,
            jobs,
            cache=not arguments.no_cache,
            progress=tell,
        )
        found = review(asked, arguments.budgets, _say)
    _put(arguments, written(found, arguments.format), sys.stdout)
    if arguments.post:
        done = posted(found, os.environ)
        _say(
            f"{done.new} comments posted, {done.there} there already; summary: {done.address or 'none'}"
        )
        if done.note:
            _say(f"note: {done.note}")
    for problem in found.problems:
        _say(problem)
    if found.problems:
        return FAILED
    return FOUND if found.review.bad and not arguments.exit_zero else CLEAN


def _say(line: str) -> None:
    print(f"dispatchguard: {line}", file=sys.stderr)


# -- report ----------------------------------------------------------------------------------------


def _report(arguments: argparse.Namespace) -> int:
    from pytest_dispatchguard.lint.check import Request
    from pytest_dispatchguard.lint.pool import default_jobs
    from pytest_dispatchguard.progress import progress
    from pytest_dispatchguard.reporting import made

    files = [f for f in (arguments.output, arguments.badge, arguments.figures) if f is not None]
    if not files:
        raise UserError(
            "report what? --output FILE makes the page, --badge a badge, --figures figures"
        )
    for file in files:
        if not file.parent.is_dir():
            raise UserError(f"{file}: there is no such folder; make it first")
    with progress() as tell:
        request = Request(
            paths=tuple(arguments.paths) or (Path(),),
            cwd=_cwd(),
            config_file=arguments.config,
            settings={"pedantic": arguments.pedantic},
            jobs=arguments.jobs or default_jobs(),
            cache=not arguments.no_cache,
            progress=tell,
        )
        found = made(request, arguments.budgets, arguments.history)
    for problem in found.problems:
        _say(problem)
    if arguments.output is not None:
        _put_in(arguments.output, found.page())
    if arguments.badge is not None:
        _put_in(arguments.badge, found.badge(arguments.badge))
    if arguments.figures is not None:
        _put_in(arguments.figures, found.figures())
    return FAILED if found.problems else CLEAN


# -- history ---------------------------------------------------------------------------------------


def _history(arguments: argparse.Namespace) -> int:
    from pytest_dispatchguard.trends import place_of, told

    cwd = _cwd()
    place = place_of(arguments.history, cwd)
    if arguments.bisect:
        return _bisect(arguments, place, cwd)
    for option in ("good", "bad", "counter"):
        if getattr(arguments, option) is not None:
            raise UserError(f"--{option} goes with --bisect")
    if arguments.last is not None and arguments.test is None:
        raise UserError("--last goes with a test: dispatchguard history TEST --last N")
    last = arguments.last or 30
    text = told(place, arguments.test, last, arguments.format, color=_color("auto"), width=_width())
    _write(text, sys.stdout)
    return CLEAN


def _bisect(arguments: argparse.Namespace, place: str, cwd: Path) -> int:
    from pytest_dispatchguard.bisecting import Asked, bisected, written
    from pytest_dispatchguard.progress import progress

    if arguments.test is None:
        raise UserError("--bisect needs a test: dispatchguard history --bisect TEST")
    if arguments.last is not None:
        raise UserError("--last goes without --bisect, which looks at all runs")
    asked = Asked(arguments.test, arguments.good, arguments.bad, arguments.counter, place, cwd)
    with progress() as tell:
        found = bisected(asked, tell or (lambda what, done, of: None))
    _write(written(found, arguments.format), sys.stdout)
    return CLEAN


def _merge(arguments: argparse.Namespace) -> int:
    from pytest_dispatchguard.report.verdicts import as_json
    from pytest_dispatchguard.trends import Began, keep, merged, place_of

    cwd = _cwd()
    verdicts, machine = merged(arguments.files, cwd)
    if arguments.output is not None or arguments.history is None:
        _put(arguments, as_json(verdicts, machine), sys.stdout)
    if arguments.history is not None:
        keep(verdicts, machine, Began.now(cwd), place_of(arguments.history, cwd))
    return CLEAN


# -- guards ----------------------------------------------------------------------------------------


def _guards(arguments: argparse.Namespace) -> int:
    from pytest_dispatchguard.measure.guard_costs import guarded
    from pytest_dispatchguard.report import guards

    found = guarded(arguments.target, arguments.setup, _cwd())
    told = guards.as_json if arguments.format == "json" else guards.as_text
    _write(told(arguments.target, found), sys.stdout)
    return CLEAN


# -- the other commands ----------------------------------------------------------------------------


def _rule(arguments: argparse.Namespace) -> int:
    from pytest_dispatchguard.lint import packs
    from pytest_dispatchguard.report.rules import listing, page

    infos = packs.catalog().infos
    code = arguments.code.upper()
    found = next((i for i in infos if i.code == code or i.name == arguments.code), None)
    family = [i for i in infos if code and i.code.startswith(code)]
    if found is None and family:
        _write(listing(family, "text"), sys.stdout)
        return CLEAN
    if found is None:
        from pytest_dispatchguard.config import nearest

        near = nearest(arguments.code, [w for i in infos for w in (i.code, i.name)])
        told = f"; the nearest is {near}" if near else ""
        raise UserError(f"no rule {arguments.code!r}{told}. `dispatchguard rules` lists them")
    _write(page(found, color=_color("auto"), width=_width()), sys.stdout)
    return CLEAN


def _rules(arguments: argparse.Namespace) -> int:
    from pytest_dispatchguard.lint import packs
    from pytest_dispatchguard.report.rules import listing

    _write(listing(packs.catalog().infos, arguments.format), sys.stdout)
    return CLEAN


def _hot(arguments: argparse.Namespace) -> int:
    from pytest_dispatchguard.lint.hot import hot_functions
    from pytest_dispatchguard.lint.pool import default_jobs
    from pytest_dispatchguard.progress import progress
    from pytest_dispatchguard.report.hot import listing

    notes: list[str] = []
    with progress() as tell:
        found = hot_functions(
            tuple(arguments.paths) or (Path(),),
            cwd=_cwd(),
            config_file=arguments.config,
            jobs=arguments.jobs or default_jobs(),
            cached=not arguments.no_cache,
            progress=tell,
            note=notes.append,
        )
    for note in notes:
        print(f"dispatchguard: note: {note}", file=sys.stderr)
    _write(listing(found, arguments.format), sys.stdout)
    return CLEAN


def _server(_: argparse.Namespace) -> int:
    try:
        from pytest_dispatchguard.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise UserError(
            "the server needs pygls 2: pip install pytest-dispatchguard[server]"
        ) from None
    serve()
    return CLEAN


def _daemon(arguments: argparse.Namespace) -> int:
    from pytest_dispatchguard.daemon import asking, wire

    if not wire.POSSIBLE:
        raise UserError("this system has no fork or no Unix sockets; checks run by themselves")
    if arguments.stop:
        _write("stopped\n" if asking.stop() else "none is running\n", sys.stdout)
        return CLEAN
    told = asking.told()
    if told is None:
        _write("none is running; the next `dispatchguard check --daemon` begins one\n", sys.stdout)
        complaint = asking.complaint()
        if complaint:
            _write(f"the last one ended with: {complaint}\n", sys.stdout)
        return CLEAN
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(told["began"]))
    _write(f"process {told['process']}, since {since}, runs so far: {told['runs']}\n", sys.stdout)
    return CLEAN


def _clean(arguments: argparse.Namespace) -> int:
    from pytest_dispatchguard.config import absolute, find_root
    from pytest_dispatchguard.lint.cache import cache_path, clean
    from pytest_dispatchguard.lint.files import require

    cwd = _cwd()
    for path in arguments.paths or [Path()]:
        require([path], cwd)
        root = find_root([absolute(cwd / path)])
        gone = clean(root)
        said = f"dropped {cache_path(root)}" if gone else f"no cache at {cache_path(root)}"
        _write(said + "\n", sys.stdout)
    return CLEAN


if __name__ == "__main__":
    command()
