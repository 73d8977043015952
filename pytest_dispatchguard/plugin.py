"""The pytest hooks and nothing else: every pytest run loads this module, so it imports nothing before a test
asks for the fixture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_dispatchguard.measure.subject import Overhead

_MARKER = (
    "overhead_budget(**limits): what a call may cost on the host, in exact counters "
    "(instructions, py_calls, c_calls, dispatches, functions, tensor_allocations)."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of budgets."""
    group = parser.getgroup("dispatchguard", "host overhead of PyTorch code (dispatchguard)")
    group.addoption(
        "--overhead-budget",
        choices=("count",),
        help="hold what tests name with the `overhead` fixture against their budgets; "
        "`count`: by exact counters",
    )
    group.addoption("--overhead-json", metavar="FILE", help="write the verdicts to FILE as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, so that ``--strict-markers`` accepts it."""
    config.addinivalue_line("markers", _MARKER)
    if not hasattr(
        config, "workerinput"
    ):  # else a process of pytest-xdist, which sends its reports on
        config.pluginmanager.register(_Gatherer(config), "dispatchguard-verdicts")


@pytest.fixture
def overhead() -> Overhead:
    """Names a callable whose host overhead is under budget: ``overhead(f, x).against(g, x)``."""
    from pytest_dispatchguard.measure.subject import Overhead

    return Overhead()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    """After a test that named subjects: run them, compare, count."""
    outcome = yield
    named = getattr(item, "funcargs", {}).get("overhead")
    if named is None or outcome.excinfo is not None:
        return
    from pytest_dispatchguard.measure import session
    from pytest_dispatchguard.measure.subject import Overhead

    if not isinstance(named, Overhead):
        return  # a fixture of that name that is the project's own
    try:
        wrong, verdicts = session.settle(
            item.nodeid,
            named,
            [(m.args, m.kwargs) for m in reversed(list(item.iter_markers("overhead_budget")))],
            item.config.rootpath / "pyproject.toml",
            counting=item.config.getoption("--overhead-budget") == "count",
        )
    except Exception as error:  # noqa: BLE001 - what the subject raises is the test's failure
        outcome.force_exception(error)
        return
    if verdicts:
        item.user_properties.append((session.PROPERTY, session.packed(verdicts)))
    if wrong:
        outcome.force_exception(pytest.fail.Exception(wrong, pytrace=False))


class _Gatherer:
    """Takes verdicts from the reports of tests, which also come from the processes of pytest-xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.verdicts: list[Any] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps what the report of a test carries."""
        if report.when != "call":
            return
        for name, value in report.user_properties:
            if name == "dispatchguard":
                from pytest_dispatchguard.measure import session

                self.verdicts += session.unpacked(str(value))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The table."""
        if not self.verdicts:
            return
        from pytest_dispatchguard.report.verdicts import table

        terminalreporter.section("overhead budgets")
        for line in table(self.verdicts):
            terminalreporter.line(line)

    def pytest_sessionfinish(self) -> None:
        """The JSON."""
        file = self.config.getoption("--overhead-json")
        if file is None:
            return
        from pytest_dispatchguard.lint.files import write_source
        from pytest_dispatchguard.measure.session import machine
        from pytest_dispatchguard.report.verdicts import as_json

        path = self.config.invocation_params.dir / file
        try:
            write_source(path, as_json(self.verdicts, machine()).encode())
        except OSError as error:
            raise pytest.UsageError(f"--overhead-json {file}: {error.strerror or error}") from None
