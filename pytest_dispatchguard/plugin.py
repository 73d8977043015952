"""The pytest hooks and nothing else: every pytest run loads this module, so it imports nothing of ours
before a test or an option asks for it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from pytest_dispatchguard.measure.subject import Overhead

_NAMED: pytest.StashKey[Any] = pytest.StashKey()
_ASKED: pytest.StashKey[Any] = pytest.StashKey()
_SETTINGS: pytest.StashKey[Any] = pytest.StashKey()
_VERDICTS: pytest.StashKey[Any] = pytest.StashKey()
_SAVING: pytest.StashKey[Any] = pytest.StashKey()
_DEVICES: pytest.StashKey[tuple[str, ...] | None] = pytest.StashKey()
_MARKER = (
    "overhead_budget(**limits): what a call may cost on the host: against eager torch (ratio, extra_us), "
    "by itself (host_us, device_us), and in exact counters (instructions, py_calls, c_calls, dispatches, "
    "functions, tensor_allocations)."
)
_MODES = ("check", "update", "count")
_UNDECIDED = ("warn", "fail", "pass")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of budgets, and the settings of the same names."""
    group = parser.getgroup("dispatchguard", "host overhead of PyTorch code (dispatchguard)")
    group.addoption(
        "--overhead-budget",
        nargs="?",
        const="check",
        type=_mode,
        metavar="check|update|count",
        help="hold what tests name with the `overhead` fixture against their budgets, by times and exact "
        "counters (check, which is meant where nothing is said) or by counters alone (count), or record what "
        "is found in overhead-budgets.toml (update)",
    )
    group.addoption(
        "--overhead-against",
        metavar="REV",
        help="measure the same tests in git revision REV beside the work tree, and fail where they cost more",
    )
    group.addoption(
        "--overhead-save",
        metavar="NAME",
        help="keep what is measured in .dispatchguard/runs/NAME.json, which pyperf's commands read",
    )
    group.addoption(
        "--overhead-compare",
        metavar="NAME|FILE",
        help="fail where a subject costs more than in a run that was saved",
    )
    group.addoption("--overhead-json", metavar="FILE", help="write the verdicts to FILE as JSON")
    for name, kind, metavar, said in (
        (
            "confidence",
            _confidence,
            "LEVEL",
            "how sure a verdict by time must be; 0.999 unless said",
        ),
        ("max-time", _seconds, "SECONDS", "time to measure one test for at most; 5 unless said"),
        (
            "timeout",
            _seconds,
            "SECONDS",
            "give a test up that does not end so long after; 60 unless said",
        ),
        ("workers", _count, "NUMBER", "processes that measure, one after another; 2 unless said"),
    ):
        group.addoption(f"--overhead-{name}", type=kind, metavar=metavar, help=said)
        parser.addini(f"overhead_{name.replace('-', '_')}", said)
    said = "what becomes of a test whose times are too unsure to tell: warn unless said"
    group.addoption("--overhead-undecided", choices=_UNDECIDED, help=said)
    parser.addini("overhead_undecided", said)
    said = "devices that tests with `overhead_device` run on, such as cpu,cuda: all that are here unless said"
    group.addoption("--overhead-device", type=_devices, metavar="KIND,KIND", help=said)
    parser.addini("overhead_device", said)
    group.addoption("--overhead-worker", help=argparse.SUPPRESS)


def _mode(word: str) -> str:
    if word not in _MODES:
        raise argparse.ArgumentTypeError(
            f"{word!r} is none of {', '.join(_MODES)}; before paths write --overhead-budget=check"
        )
    return word


def _confidence(word: str) -> float:
    return _number(word, lambda n: 0.5 <= n < 1, "a level such as 0.999, from 0.5 to below 1")


def _seconds(word: str) -> float:
    return _number(word, lambda n: 0 < n <= 86400, "seconds, more than 0")


def _count(word: str) -> int:
    return int(_number(word, lambda n: n in range(1, 65), "a whole number from 1 to 64"))


def _devices(words: str) -> tuple[str, ...]:
    from pytest_dispatchguard.measure.devices import named

    try:
        return named(words)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _number(word: str, fits: Callable[[float], bool], wanted: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = float("nan")
    if not fits(number):
        raise argparse.ArgumentTypeError(f"{word!r} is not {wanted}")
    return number


def _setting(config: pytest.Config, name: str, read: Callable[[str], Any], otherwise: Any) -> Any:
    """What the command line says, else the ini file, else the default."""
    given = config.getoption(f"--overhead-{name}")
    if given is not None:
        return given
    key = f"overhead_{name.replace('-', '_')}"
    written = config.getini(key)
    if not written:
        return otherwise
    try:
        return read(str(written))
    except argparse.ArgumentTypeError as error:
        raise pytest.UsageError(f"{key}: {error}") from None


def _undecided(word: str) -> str:
    if word not in _UNDECIDED:
        raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(_UNDECIDED)}")
    return word


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """A worker keeps other plugins from starting processes and writing files, before they begin."""
    if config.getoption("--overhead-worker") is not None:
        from pytest_dispatchguard.measure.worker import made_quiet

        made_quiet(config)


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, so that ``--strict-markers`` accepts it."""
    config.addinivalue_line("markers", _MARKER)
    ends = config.getoption("--overhead-worker")
    config.stash[_DEVICES] = _setting(config, "device", _devices, None)
    if config.getoption("--overhead-budget") is not None:
        _read_budgets(config)
    else:
        for name in ("json", "against", "save", "compare"):
            if config.getoption(f"--overhead-{name}") is not None:
                raise pytest.UsageError(
                    f"--overhead-{name} needs --overhead-budget: else nothing is measured"
                )
    if ends is not None:
        from pytest_dispatchguard.measure.worker import Worker

        requests, replies = (int(end) for end in ends.split(","))
        config.pluginmanager.register(Worker(config, requests, replies), "dispatchguard-worker")
        return
    if config.getoption("--overhead-budget") in ("check", "update"):
        _measure(config)
    # The processes of pytest-xdist send their reports on.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Gatherer(config), "dispatchguard-verdicts")


def _measure(config: pytest.Config) -> None:
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return  # pytest-xdist runs the tests in other processes
    if sys.platform == "win32":
        raise pytest.UsageError("times are not measured on Windows: use --overhead-budget=count")
    from functools import partial

    from pytest_dispatchguard.measure import measuring, revisions, runs
    from pytest_dispatchguard.model import UserError

    options = measuring.Options(
        _setting(config, "confidence", _confidence, 0.999),
        _setting(config, "max-time", _seconds, 5.0),
        _setting(config, "workers", _count, 2),
        _setting(config, "timeout", _seconds, 60.0),
    )
    launch = measuring.launch_of(config)
    against, compare = (config.getoption(f"--overhead-{name}") for name in ("against", "compare"))
    base = saved = None
    try:
        if against is not None:
            revision = revisions.Revision(revisions.top_of(config.rootpath), against)
            config.add_cleanup(revision.remove)
            base = measuring.Source(partial(revision.launch, launch), options.workers)
        elif compare is not None:
            folder = config.invocation_params.dir
            saved = runs.load(runs.found(config.rootpath, folder, compare), compare)
    except UserError as error:
        raise pytest.UsageError(str(error)) from None
    config.pluginmanager.register(
        measuring.Measuring(
            measuring.Source(lambda: launch, options.workers),
            options,
            complaint=partial(_complaint, config),
            lock=measuring.lock_of(config),
            base=base,
            base_name=against or compare or "",
            saved=saved,
            tell=_progress(config),
        ),
        "dispatchguard-measuring",
    )


def _progress(config: pytest.Config) -> Callable[[str, int, int], None]:
    """What says how far measuring has come, where somebody watches."""
    lines: list[Any] = []

    def tell(what: str, done: int, of: int) -> None:
        reporter = config.pluginmanager.getplugin("terminalreporter")
        if reporter is None or not reporter.isatty or hasattr(config, "workerinput"):
            return
        from pytest_dispatchguard.report.terminal import ProgressLine

        if not lines:
            lines.append(ProgressLine(reporter._tw))
        lines[0].tell(what, done, of)

    return tell


def _complaint(config: pytest.Config, verdicts: Sequence[Any]) -> str:
    """What verdicts fail a test for; empty where they do not."""
    from pytest_dispatchguard.report.verdicts import explained

    failing = _setting(config, "undecided", _undecided, "warn") == "fail"
    fine = ("pass",) if failing else ("pass", "undecided")
    return "\n\n".join(explained(v) for v in verdicts if v.verdict not in fine)


def _read_budgets(config: pytest.Config) -> None:
    from pytest_dispatchguard.config import budgets_of
    from pytest_dispatchguard.measure import budget_file
    from pytest_dispatchguard.measure.session import Asked
    from pytest_dispatchguard.model import UserError

    file = config.getoption("--overhead-json")
    if file is not None and not (config.invocation_params.dir / file).parent.is_dir():
        raise pytest.UsageError(f"--overhead-json {file}: there is no such folder")
    _setting(config, "undecided", _undecided, "warn")
    _refuse_pairs(config)
    try:
        config.stash[_SETTINGS] = budgets_of(config.rootpath / "pyproject.toml")
        recorded = budget_file.load(config.rootpath / budget_file.NAME)
        save = config.getoption("--overhead-save")
        if save is not None:
            from pytest_dispatchguard.measure import runs

            config.stash[_SAVING] = runs.path_of(config.rootpath, save)
    except UserError as error:
        raise pytest.UsageError(str(error)) from None
    updating = config.getoption("--overhead-budget") == "update"
    config.stash[_ASKED] = Asked({} if updating else recorded)


def _refuse_pairs(config: pytest.Config) -> None:
    """Options that do not go together."""
    given = [
        f"--overhead-{name}"
        for name in ("against", "compare", "save")
        if config.getoption(f"--overhead-{name}") is not None
    ]
    if given and config.getoption("--overhead-budget") == "count":
        raise pytest.UsageError(
            f"{given[0]} needs --overhead-budget=check: count measures no times"
        )
    if "--overhead-against" in given and "--overhead-compare" in given:
        raise pytest.UsageError("--overhead-against and --overhead-compare: name one base, not two")


@pytest.fixture
def overhead(request: pytest.FixtureRequest) -> Overhead:
    """Names a callable whose host overhead is under budget: ``overhead(f, x).against(g, x)``."""
    from pytest_dispatchguard.measure.subject import Overhead

    named = Overhead()
    request.node.stash[_NAMED] = named
    return named


@pytest.fixture(scope="session")
def overhead_device(request: pytest.FixtureRequest) -> str:
    """The device a test runs on, usable as ``device=``: the test runs on the CPU and on the accelerator
    that is here, or on those that --overhead-device names."""
    device: str = request.param
    return device


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a device."""
    if "overhead_device" not in metafunc.fixturenames or not _is_ours(metafunc):
        return
    from pytest_dispatchguard.measure.devices import axis

    params = [
        pytest.param(kind, marks=[pytest.mark.skip(reason=why)] if why else [])
        for kind, why in axis(metafunc.config.stash[_DEVICES])
    ]
    metafunc.parametrize("overhead_device", params, indirect=True)


def _is_ours(metafunc: pytest.Metafunc) -> bool:
    """Whether a test gets its `overhead_device` from here: not from a fixture of its own that does not ask
    for ours, nor from a parametrize of its own."""
    for mark in metafunc.definition.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs.get("argnames", "")
        names = names.split(",") if isinstance(names, str) else names
        if "overhead_device" in (name.strip() for name in names):
            return False
    for fixture in reversed(metafunc._arg2fixturedefs.get("overhead_device", ())):
        if fixture.func.__module__ == __name__:
            return True
        if "overhead_device" not in fixture.argnames:
            return False
    return False


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    """After a test that named subjects: run them, compare, count."""
    __tracebackhide__ = True
    item.stash[_VERDICTS] = ()
    outcome = yield
    named = item.stash.get(_NAMED, None)
    marked = any(mark.name == "overhead_budget" for mark in item.own_markers)
    if outcome.excinfo is not None or (named is None and not marked):
        return
    from dataclasses import replace

    from pytest_dispatchguard.measure import session

    asked = item.config.stash.get(_ASKED, None)
    if item.config.getoption("--overhead-worker") is not None:
        from pytest_dispatchguard.measure.worker import REQUEST, SAMPLES

        asked = replace(asked or session.Asked(), request=item.config.stash[REQUEST])
    try:
        settled = session.settle(
            item.nodeid,
            named,
            [(m.args, m.kwargs) for m in reversed(list(item.iter_markers("overhead_budget")))],
            item.config.stash.get(_SETTINGS, ()),
            asked,
            _device_of(item),
        )
    except BaseException as error:  # noqa: BLE001 - what the subject raises is the test's outcome
        item.stash[_VERDICTS] = [] if named is None else session.broken(item.nodeid, named, error)
        outcome.force_exception(error)
        return
    if asked is not None and asked.request is not None:
        item.stash[SAMPLES] = settled.samples
    item.stash[_VERDICTS] = settled.verdicts
    item.user_properties += session.properties(settled.verdicts)
    wrong = settled.wrong or _complaint(item.config, settled.verdicts)
    if wrong:
        outcome.force_exception(pytest.fail.Exception(wrong, pytrace=False))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, None]:
    """The report of a test carries its verdicts to the process that tells them."""
    outcome = yield
    verdicts = item.stash.get(_VERDICTS, None)
    if verdicts and call.when == "call":
        from pytest_dispatchguard.measure.measuring import carry

        carry(outcome.get_result(), verdicts)


def _device_of(item: pytest.Item) -> str | None:
    """The device that a test with `overhead_device` runs on."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    device = params.get("overhead_device")
    return device if isinstance(device, str) else None


class _Gatherer:
    """Takes verdicts from the reports of tests, which also come from the processes of pytest-xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.verdicts: list[Any] = []
        self.collected: set[str] = set()
        self.taken: list[Any] = []
        self.saving: Any = config.stash.get(_SAVING, None)
        """The file that what is measured is saved in."""
        self.shared = False
        """Whether tests were measured in one process."""
        self.whole = not any("::" in str(word) for word in config.args)
        """Whether every test of the files that were collected is run."""

    def _all_tests(self) -> set[str]:
        """Every test of the files that were collected; none where that is not known."""
        return self.collected if self.whole else set()

    def pytest_deselected(self) -> None:
        """Some tests are left out."""
        self.whole = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keeps which tests there are."""
        self.collected = {item.nodeid for item in session.items}

    @pytest.hookimpl(tryfirst=True)  # before the failure is shown
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps what the report of a test carries."""
        self.shared |= getattr(report, "overhead_shared", False)
        if not hasattr(report, "overhead"):
            return
        from pytest_dispatchguard.measure import measuring

        verdicts = measuring.verdicts_of([report])
        self.verdicts += verdicts
        costly = {place[:2] for v in verdicts if v.verdict == "fail" for place in v.lines}
        if report.failed and costly:
            self._add_findings(report, costly)
        samples = getattr(report, "overhead_samples", None)
        if self.saving is not None and samples is not None:
            self._save(verdicts, samples)

    def _add_findings(self, report: pytest.TestReport, costly: set[tuple[str, int]]) -> None:
        """Adds what the linter knows of the lines that cost most."""
        from pytest_dispatchguard.lint.known import findings_on
        from pytest_dispatchguard.report.verdicts import advice

        found = findings_on(sorted(costly))
        if found:
            report.sections.append(("What the linter says of these lines", advice(found)))

    def _save(self, verdicts: Sequence[Any], samples: str) -> None:
        """Writes the run after each test: one that is killed halfway is kept as far as it came."""
        from pytest_dispatchguard.lint.files import write_source
        from pytest_dispatchguard.measure import runs

        self.taken += runs.taken(verdicts, samples)
        text = runs.as_text(self.taken)
        if text:
            self.saving.parent.mkdir(parents=True, exist_ok=True)
            write_source(self.saving, text.encode())

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The table."""
        if not self.verdicts:
            return
        from pytest_dispatchguard.measure import budget_file, session
        from pytest_dispatchguard.report import terminal
        from pytest_dispatchguard.report.verdicts import plain_lines, table_of

        terminalreporter.section("overhead budgets")
        table, writer = table_of(self.verdicts), terminalreporter._tw
        if writer.hasmarkup and terminal.fits(table, writer.fullwidth):
            terminal.show(table, writer._file, writer.fullwidth)
        else:
            for line in plain_lines(table):
                terminalreporter.line(line)
        if self.shared:
            terminalreporter.line(
                "tests were measured without a process of their own: an accelerator is in use"
            )
        if self.config.getoption("--overhead-budget") != "update":
            path = self.config.rootpath / budget_file.NAME
            for line in session.compared(self.verdicts, path, self._all_tests()):
                terminalreporter.line(line)

    def pytest_sessionfinish(self) -> None:
        """The files."""
        file = self.config.getoption("--overhead-json")
        updating = self.config.getoption("--overhead-budget") == "update"
        if file is None and not updating:
            return
        from pytest_dispatchguard.lint.files import write_source
        from pytest_dispatchguard.measure import budget_file, session
        from pytest_dispatchguard.model import UserError
        from pytest_dispatchguard.report.verdicts import as_json

        try:
            if file is not None:
                path = self.config.invocation_params.dir / file
                data = as_json(self.verdicts, session.machine()).encode()
                if path.exists() and not path.is_file():
                    path.write_bytes(data)  # a device or a pipe is written to, never replaced
                else:
                    write_source(path, data)
            if updating and self.verdicts:
                path = self.config.rootpath / budget_file.NAME
                text = session.rewritten(path, self.verdicts, self._all_tests())
                write_source(path, text.encode())
        except (UserError, OSError) as error:
            raise pytest.UsageError(str(error)) from None
