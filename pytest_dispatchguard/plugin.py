"""The pytest hooks and nothing else: every pytest run loads this module, so it imports nothing of ours
before a test or an option asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_dispatchguard.measure.subject import Overhead

_PROPERTY = "dispatchguard-verdicts"
"""The property of a test's report that carries its verdicts to the process that tells them."""
_NAMED: pytest.StashKey[Any] = pytest.StashKey()
_RECORDED: pytest.StashKey[Any] = pytest.StashKey()
_SETTINGS: pytest.StashKey[Any] = pytest.StashKey()
_MARKER = (
    "overhead_budget(**limits): what a call may cost on the host, in exact counters "
    "(instructions, py_calls, c_calls, dispatches, functions, tensor_allocations)."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of budgets."""
    group = parser.getgroup("dispatchguard", "host overhead of PyTorch code (dispatchguard)")
    group.addoption(
        "--overhead-budget",
        choices=("count", "update"),
        help="hold what tests name with the `overhead` fixture against their budgets, by exact counters "
        "(count), or record what is counted in overhead-budgets.toml (update)",
    )
    group.addoption("--overhead-json", metavar="FILE", help="write the verdicts to FILE as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, so that ``--strict-markers`` accepts it."""
    config.addinivalue_line("markers", _MARKER)
    if config.getoption("--overhead-budget") is not None:
        _read_budgets(config)
    elif config.getoption("--overhead-json") is not None:
        raise pytest.UsageError("--overhead-json needs --overhead-budget: else nothing is counted")
    # The processes of pytest-xdist send their reports on.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Gatherer(config), "dispatchguard-verdicts")


def _read_budgets(config: pytest.Config) -> None:
    from pytest_dispatchguard.config import budgets_of
    from pytest_dispatchguard.measure import budget_file
    from pytest_dispatchguard.model import UserError

    file = config.getoption("--overhead-json")
    if file is not None and not (config.invocation_params.dir / file).parent.is_dir():
        raise pytest.UsageError(f"--overhead-json {file}: there is no such folder")
    try:
        config.stash[_SETTINGS] = budgets_of(config.rootpath / "pyproject.toml")
        recorded = budget_file.load(config.rootpath / budget_file.NAME)
    except UserError as error:
        raise pytest.UsageError(str(error)) from None
    if config.getoption("--overhead-budget") == "count":
        config.stash[_RECORDED] = recorded


@pytest.fixture
def overhead(request: pytest.FixtureRequest) -> Overhead:
    """Names a callable whose host overhead is under budget: ``overhead(f, x).against(g, x)``."""
    from pytest_dispatchguard.measure.subject import Overhead

    named = Overhead()
    request.node.stash[_NAMED] = named
    return named


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    """After a test that named subjects: run them, compare, count."""
    __tracebackhide__ = True
    outcome = yield
    named = item.stash.get(_NAMED, None)
    marked = any(mark.name == "overhead_budget" for mark in item.own_markers)
    if outcome.excinfo is not None or (named is None and not marked):
        return
    from pytest_dispatchguard.measure import session
    from pytest_dispatchguard.report.verdicts import explained

    try:
        wrong, verdicts = session.settle(
            item.nodeid,
            named,
            [(m.args, m.kwargs) for m in reversed(list(item.iter_markers("overhead_budget")))],
            item.config.stash.get(_SETTINGS, ()),
            counting=item.config.getoption("--overhead-budget") is not None,
            recorded=item.config.stash.get(_RECORDED, None),
        )
    except BaseException as error:  # noqa: BLE001 - what the subject raises is the test's outcome
        verdicts = [] if named is None else session.broken(item.nodeid, named, error)
        item.user_properties.append((_PROPERTY, session.packed(verdicts)))
        outcome.force_exception(error)
        return
    if verdicts:
        item.user_properties.append((_PROPERTY, session.packed(verdicts)))
    wrong = wrong or "\n\n".join(explained(v) for v in verdicts if v.verdict != "pass")
    if wrong:
        outcome.force_exception(pytest.fail.Exception(wrong, pytrace=False))


class _Gatherer:
    """Takes verdicts from the reports of tests, which also come from the processes of pytest-xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.verdicts: list[Any] = []
        self.collected: set[str] = set()
        self.whole = not any("::" in str(word) for word in config.args)
        """Whether every test of the files that were collected is run."""

    def pytest_deselected(self) -> None:
        """Some tests are left out."""
        self.whole = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keeps which tests there are."""
        self.collected = {item.nodeid for item in session.items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps what the report of a test carries."""
        if report.when != "call":
            return
        for name, value in report.user_properties:
            if name == _PROPERTY:
                from pytest_dispatchguard.measure import session

                self.verdicts += session.unpacked(str(value))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The table."""
        if not self.verdicts:
            return
        from pytest_dispatchguard.measure import budget_file, session
        from pytest_dispatchguard.report.verdicts import table

        terminalreporter.section("overhead budgets")
        for line in table(self.verdicts):
            terminalreporter.line(line)
        if self.config.getoption("--overhead-budget") == "count":
            path = self.config.rootpath / budget_file.NAME
            for line in session.compared(self.verdicts, path):
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
                collected = self.collected if self.whole else set()
                write_source(path, session.rewritten(path, self.verdicts, collected).encode())
        except (UserError, OSError) as error:
            raise pytest.UsageError(str(error)) from None
