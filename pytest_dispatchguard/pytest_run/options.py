"""What the command line and pytest's settings may say of budgets. Every pytest run reads this module, so it
imports nothing of ours before it must.

PYTEST_DONT_REWRITE: as in `plugin`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from pytest_dispatchguard.measure.workers.sources import Options as HowToMeasure

MODES = ("check", "update", "count")
UNDECIDED = ("warn", "fail", "pass")


class Options(NamedTuple):
    """What a run was asked for. (A dataclass takes ten times as long to make.)"""

    mode: str | None
    """None where budgets are not asked for."""
    against: str | None
    save: str | None
    compare: str | None
    json: Path | None
    report: Path | None
    histogram: Path | None
    sort: str | None
    group_by: tuple[str, ...]
    history: str | None
    """A URL or a file; empty for the project's own, None where nothing is kept."""
    confidence: float
    max_time: float
    timeout: float
    precision: float | None
    """How large a part of its value half an interval between two revisions may be."""
    workers: int
    undecided: str
    device: tuple[str, ...] | None
    lint: str | None
    """The format to tell in what was seen running; None where nobody watches."""
    lint_output: Path | None
    ops: bool
    """Whether operations are to be told line by line."""
    record: bool
    """Whether what runs is to be recorded."""
    native: bool
    """Whether native instructions are counted, also where they have no limit."""
    traces: tuple[Path, ...]
    """Traces to hold against their limits when the tests have run."""
    worker: str | None
    """The ends of pipes, in a worker of another run."""

    @property
    def by_workers(self) -> bool:
        """Whether workers measure: where times are asked for, or a base, whose code is not this process's."""
        return self.mode in ("check", "update") or (self.mode == "count" and bool(self.against))

    def measuring(self) -> HowToMeasure:
        """How tests are measured."""
        from pytest_dispatchguard.measure.workers.sources import Options as HowToMeasure

        kept = self.mode == "update" or self.save is not None or self.histogram is not None
        seconds = 0.0 if self.mode == "count" else self.max_time  # none: counters alone
        saved = self.save is not None
        return HowToMeasure(
            self.confidence, seconds, self.workers, self.timeout, kept, saved, self.precision
        )


class _Option(NamedTuple):
    name: str
    metavar: str
    help: str
    read: Callable[[str], Any] = str
    otherwise: Any = None
    more: Mapping[str, Any] | None = None


def _mode(word: str) -> str:
    return _one_of(word, MODES)


def _one_of(word: str, known: Collection[str]) -> str:
    """A word of these; what names tests is left to `with_paths`, which sees the command line as a whole."""
    if word not in known and not _names_tests(word):
        raise argparse.ArgumentTypeError(
            f"{word!r} is neither a mode ({', '.join(known)}) nor a path"
        )
    return word


def _names_tests(word: str) -> bool:
    """Whether a word is a path or a node id."""
    return "::" in word or word.endswith(".py") or os.sep in word or Path(word).exists()


def _undecided(word: str) -> str:
    if word not in UNDECIDED:
        raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(UNDECIDED)}")
    return word


def _confidence(word: str) -> float:
    return _number(word, lambda n: 0.5 <= n < 1, "a level such as 0.999, from 0.5 to below 1")


def _seconds(word: str) -> float:
    return _number(word, lambda n: 0 < n <= 86400, "seconds, more than 0")


def _percent(word: str) -> float:
    number = _number(
        word.removesuffix("%"), lambda n: 0 < n < 100, "a percentage such as 2%, more than 0"
    )
    return number / 100


def _count(word: str) -> int:
    return int(_number(word, lambda n: n in range(1, 65), "a whole number from 1 to 64"))


def _number(word: str, fits: Callable[[float], bool], wanted: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = float("nan")
    if not fits(number):
        raise argparse.ArgumentTypeError(f"{word!r} is not {wanted}")
    return number


def _format(word: str) -> str:
    from pytest_dispatchguard.report import FORMATS

    return _one_of(word, FORMATS)


def _keeps_no_history(word: str) -> bool:
    """Whether a word is no file to keep a history in, but names tests: a new file has any name."""
    return "://" not in word and (word.endswith(".py") or "::" in word or Path(word).is_dir())


def _sort(word: str) -> str:
    from pytest_dispatchguard.measure.budgets.limits import NAMES
    from pytest_dispatchguard.report.budgets.sorting import NAMED, TIMES

    known = dict.fromkeys((*NAMED, *TIMES, *NAMES))
    if word not in known:
        raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(known)}")
    return word


def _groups(words: str) -> tuple[str, ...]:
    from pytest_dispatchguard.report.budgets.sorting import GROUPS

    for word in words.split(","):
        if word not in GROUPS:
            raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(GROUPS)}")
    return tuple(words.split(","))


def _devices(words: str) -> tuple[str, ...]:
    from pytest_dispatchguard.measure.timing.devices import named

    try:
        return named(words)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


_ALL = (
    _Option(
        "budget",
        "check|update|count",
        "check the budgets of tests that use the `overhead` fixture: by time and exact counters "
        "(check, the "
        "default), by counters only (count), or record current figures in overhead-budgets.toml (update)",
        _mode,
        more={"nargs": "?", "const": "check"},
    ),
    _Option(
        "against",
        "REV",
        "also measure the tests at git revision REV, and fail those that cost more than there",
    ),
    _Option(
        "save",
        "NAME",
        "save the measurements in .dispatchguard/runs/NAME.json, readable by pyperf",
    ),
    _Option("compare", "NAME|FILE", "fail tests that cost more than in a saved run"),
    _Option("json", "FILE", "write results to FILE as JSON"),
    _Option(
        "report",
        "FILE",
        "write results to FILE: as an HTML page if it ends in .html, otherwise as Markdown",
    ),
    _Option(
        "histogram",
        "FILE",
        "write a histogram of the times of each test to FILE, as SVG",
    ),
    _Option(
        "sort",
        "COLUMN",
        "sort the table by name, fullname, or a figure such as ratio, subject_us or instructions, highest "
        "first (default: failures first)",
        _sort,
    ),
    _Option(
        "group-by",
        "LABEL,LABEL",
        "print one table for each group of tests: by name, func, fullname, fullfunc, file, param or "
        "subject",
        _groups,
        (),
    ),
    _Option(
        "history",
        "URL|FILE",
        "add the figures of this run to a history, for `dispatchguard history`: a file or a database URL "
        "(default: .dispatchguard/history.sqlite)",
        more={"nargs": "?", "const": ""},
    ),
    _Option(
        "confidence",
        "LEVEL",
        "confidence level of verdicts by time (default: 0.999)",
        _confidence,
        0.999,
    ),
    _Option("max-time", "SECONDS", "maximum time to measure one test (default: 5)", _seconds, 5.0),
    _Option(
        "precision",
        "PERCENT",
        "with --overhead-against, time every test until its change is known to within this, such as 2%, or "
        "its time is up (default: until there is a verdict)",
        _percent,
    ),
    _Option(
        "timeout",
        "SECONDS",
        "give up on a test that takes longer (default: 60)",
        _seconds,
        60.0,
    ),
    _Option(
        "workers",
        "NUMBER",
        "number of processes that measure, one after another (default: 2)",
        _count,
        2,
    ),
    _Option(
        "undecided",
        "warn|fail|pass",
        "what to do with a test whose timings are too noisy for a verdict (default: warn)",
        _undecided,
        "warn",
    ),
    _Option(
        "device",
        "KIND,KIND",
        "devices for tests marked `overhead_device`, such as cpu,cuda (default: the CPU and the "
        "accelerator "
        "of this machine); lazy is torch's lazy device, where a call builds its trace",
        _devices,
    ),
    _Option(
        "lint",
        "FORMAT",
        "watch tests run and report what hot code repeats on every call, and with --overhead-ghost "
        "where it "
        "waits for the device; in FORMAT (default: text)",
        _format,
        more={"nargs": "?", "const": "text"},
    ),
    _Option("lint-output", "FILE", "write the report of --overhead-lint to FILE"),
)


def add(parser: pytest.Parser) -> None:
    """Makes the options known, and settings of the same names."""
    group = parser.getgroup("dispatchguard", "host overhead of PyTorch code (dispatchguard)")
    for option in _ALL:
        group.addoption(
            f"--overhead-{option.name}",
            type=option.read,
            metavar=option.metavar,
            help=option.help.replace("%", "%%"),
            **(option.more or {}),
        )
        parser.addini(_key(option), option.help)
    there = "run tests written for cuda without a GPU, computing on the CPU"
    group.addoption("--overhead-ghost", action="store_true", default=None, help=there)
    parser.addini("overhead_ghost", there, type="bool", default=False)
    recorded = (
        "record calls and argument types of the project's functions in .dispatchguard/profile.json, for "
        "`dispatchguard check` to use"
    )
    group.addoption("--overhead-record", action="store_true", default=None, help=recorded)
    parser.addini("overhead_record", recorded, type="bool", default=False)
    by_line = (
        "report the lines of the project that dispatch most operations, and redundant operations, "
        "along with "
        "--overhead-lint"
    )
    group.addoption("--overhead-ops", action="store_true", default=None, help=by_line)
    parser.addini("overhead_ops", by_line, type="bool", default=False)
    natively = (
        "count native instructions of all subjects, not only of those with a limit on native_instructions: "
        "by perf_event_open, or by valgrind, which takes half a minute to import torch"
    )
    group.addoption("--overhead-native", action="store_true", default=None, help=natively)
    parser.addini("overhead_native", natively, type="bool", default=False)
    traces = (
        "when the tests have run, check a trace of PyTorch's profiler against the limits in "
        "[tool.dispatchguard.trace], and fail the run if it exceeds them; repeatable"
    )
    group.addoption("--overhead-trace", action="append", metavar="FILE", help=traces)
    parser.addini("overhead_trace", traces, type="args", default=[])
    group.addoption("--overhead-worker", help=argparse.SUPPRESS)


def with_paths(words: Sequence[str]) -> list[str]:
    """A command line on which paths and node ids that follow an option that needs no value, or stand behind
    its `=`, are paths. A word that the option knows is its value, also where a folder is called so: ./check
    is that folder."""
    found: list[str] = []
    waiting = ""
    for i, word in enumerate(words):
        if word == "--":
            return [*found, *words[i:]]
        name, equals, value = word.partition("=")
        if waiting and _is_path(waiting, word):
            found[-1] = f"{waiting}={_OPTIONAL[waiting]}"
        if equals and name in _OPTIONAL and _is_path(name, value):
            found += [f"{name}={_OPTIONAL[name]}", value]
        else:
            found.append(word)
        waiting = word if word in _OPTIONAL else ""
    return found


_OPTIONAL = {
    f"--overhead-{option.name}": str(option.more["const"]) for option in _ALL if option.more
}
"""Options that need no value, and what is meant without."""


def _is_path(option: str, word: str) -> bool:
    if not word or word.startswith("-"):
        return False
    if option == "--overhead-history":
        return _keeps_no_history(word)
    if option == "--overhead-budget":
        return word not in MODES and _names_tests(word)
    from pytest_dispatchguard.report import FORMATS

    return word not in FORMATS and _names_tests(word)


def ghost_is_wanted(config: pytest.Config) -> bool:
    """Whether a ghost is to be in this process. Can be asked before the command line is read to its end."""
    said = config.known_args_namespace
    if said.overhead_worker is not None:
        return False  # a worker measures, and nothing else
    if getattr(said, "numprocesses", None) and "PYTEST_XDIST_WORKER" not in os.environ:
        return False  # the tests run in other processes
    budgets = said.overhead_budget is not None or config.getini("overhead_budget")
    # A setting waits for a run without budgets.
    return bool(said.overhead_ghost or (config.getini("overhead_ghost") and not budgets))


def read(config: pytest.Config) -> Options:
    """What the command line says, else pytest's settings, else what is usual."""
    found = {option.name.replace("-", "_"): _value(config, option) for option in _ALL}
    worker = config.getoption("--overhead-worker")
    record, ops, native = (
        bool(config.getoption(f"--overhead-{name}") or config.getini(f"overhead_{name}"))
        for name in ("record", "ops", "native")
    )
    traces = _traces(config)
    if worker is not None:  # which measures, and nothing else
        record, ops, traces, found["lint"] = False, False, (), None
    if ops and found["lint"] is None:
        found["lint"] = "text"
    mode = found.pop("budget")
    found |= {"record": record, "ops": ops, "native": native, "traces": traces}
    options = Options(mode=mode, worker=worker, **found)
    for file in (options.json, options.report, options.histogram, options.lint_output):
        # A worker writes none, and may run in another tree.
        asked = options.lint if file is options.lint_output else options.mode or options.traces
        if asked and not worker and file is not None and not file.parent.is_dir():
            raise pytest.UsageError(f"{file}: the directory does not exist; create it first")
    _refuse_unknown("budget", options.mode, MODES)
    if options.lint is not None:
        from pytest_dispatchguard.report import FORMATS

        _refuse_unknown("lint", options.lint, FORMATS)
    _refuse(config, options)
    return options


def _traces(config: pytest.Config) -> tuple[Path, ...]:
    named = config.getoption("--overhead-trace")
    if named:
        return tuple(config.invocation_params.dir / name for name in named)
    return tuple(config.rootpath / name for name in config.getini("overhead_trace"))


def _refuse_unknown(name: str, word: str | None, known: Collection[str]) -> None:
    """What is no path on a command line, such as a setting, is none of ours either."""
    if word is not None and word not in known:
        raise pytest.UsageError(f"overhead_{name}: {word!r} is none of {', '.join(known)}")


def _value(config: pytest.Config, option: _Option) -> Any:
    given, folder = config.getoption(f"--overhead-{option.name}"), config.invocation_params.dir
    if not given and config.getini(_key(option)):  # `--overhead-history` alone names no place
        try:
            given = option.read(str(config.getini(_key(option))))
        except argparse.ArgumentTypeError as error:
            raise pytest.UsageError(f"{_key(option)}: {error}") from None
        folder = config.rootpath if option.name == "history" else folder
    if given is not None and option.name in ("json", "report", "histogram", "lint-output"):
        return folder / given
    if given and option.name == "history" and "://" not in given:
        return str(folder / given)
    return option.otherwise if given is None else given


def _key(option: _Option) -> str:
    return f"overhead_{option.name.replace('-', '_')}"


def _refuse(config: pytest.Config, options: Options) -> None:
    """Options that do not go together. Those of the command line alone: settings wait for their option."""
    given = [
        f"--overhead-{name}"
        for name in (
            *("json", "report", "histogram", "sort", "group-by", "history"),
            *("against", "compare", "save", "precision"),
        )
        if config.getoption(f"--overhead-{name}") is not None
    ]
    given += ["--overhead-native"] if config.getoption("--overhead-native") else []
    if options.traces and given[:1] == ["--overhead-json"]:
        del given[0]  # what traces tell is written there, too
    if given and options.mode is None:
        raise pytest.UsageError(f"{given[0]} needs --overhead-budget: else nothing is measured")
    of_times = ("--overhead-save", "--overhead-compare", "--overhead-histogram")
    timed = [name for name in given if name in of_times]
    if timed and options.mode == "count":
        raise pytest.UsageError(
            f"{timed[0]} needs --overhead-budget=check: count measures no times"
        )
    if config.getoption("--overhead-lint-output") is not None and options.lint is None:
        raise pytest.UsageError("--overhead-lint-output needs --overhead-lint")
    watching = [
        f"--overhead-{name}"
        for name, asked in (("lint", options.lint), ("record", options.record))
        if asked
    ]
    if watching and config.getoption("forked", False):
        raise pytest.UsageError(
            f"{watching[0]} sees nothing of tests that run in processes of their own: leave --forked out"
        )
    haunted = config.getoption("--overhead-ghost") and options.worker is None
    if haunted and options.mode is not None:
        raise pytest.UsageError(
            "--overhead-ghost cannot be combined with --overhead-budget: the ghost's own work would "
            "be in all "
            "figures; in tests that count waits, use the fixture ghost_cuda"
        )
    if "--overhead-precision" in given and (options.against is None or options.mode == "count"):
        raise pytest.UsageError(
            "--overhead-precision needs --overhead-budget=check and --overhead-against: it is of times "
            "that are compared"
        )
    if "--overhead-against" in given and "--overhead-compare" in given:
        raise pytest.UsageError("--overhead-against and --overhead-compare: name one base, not two")
