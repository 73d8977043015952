"""The pytest hooks and nothing else: every pytest run loads this module, so it imports nothing of ours but
the options before a test or an option asks for it.

PYTEST_DONT_REWRITE: nothing here asserts, and where Python may not keep what it compiles, it would be
rewritten at every start.
"""

from __future__ import annotations

import os
import sys
from copy import copy
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dispatchguard.pytest_run import options

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    from pytest_dispatchguard.measure.timing.subject import Overhead
    from pytest_dispatchguard.measure.workers.measuring import Measuring
    from pytest_dispatchguard.measure.workers.native import Native

_OPTIONS: pytest.StashKey[options.Options] = pytest.StashKey()
_NAMED: pytest.StashKey[Any] = pytest.StashKey()
_ASKED: pytest.StashKey[Any] = pytest.StashKey()
_SETTINGS: pytest.StashKey[Any] = pytest.StashKey()
_VERDICTS: pytest.StashKey[Any] = pytest.StashKey()
_MARKER = (
    "overhead_budget(**limits): what a call may cost on the host: against eager torch (ratio, extra_us), "
    "by itself (host_us, device_us), against a base (regression), and in exact counters (instructions, "
    "py_calls, c_calls, py_allocations, dispatches, functions, tensor_allocations, lazy_ops, syncs, "
    "native_instructions; of "
    "compiled code: guards, guard_us, graphs, graph_breaks, recompiles, cache_size, fake_dispatches, "
    "fake_mode_dispatches, proxy_dispatches, fake_cache_hits, fake_cache_misses)."
)

_NO_SYNC = (
    "no_sync: the test fails where its host waits for the device, a real one or the ghost of one that it is "
    "given (see the fixture ghost_cuda)."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of budgets, and the settings of the same names."""
    options.add(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> None:
    """Paths after options of ours are paths before conftest files are looked for beside them. The ghost is
    there before a conftest file asks whether there is a GPU."""
    words = options.with_paths(args)
    if words != args:
        args[:] = words
        early_config.known_args_namespace = parser.parse_known_args(
            args, namespace=copy(early_config.option)
        )
    if options.ghost_is_wanted(early_config):
        from pytest_dispatchguard.model.errors import UserError

        try:
            early_config.add_cleanup(_haunted())
        except UserError as error:
            raise _usage(error) from None


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """A worker keeps other plugins from starting processes and writing files, before they begin."""
    if config.getoption("--overhead-worker") is not None:
        from pytest_dispatchguard.measure.workers.subjects import disable_other_plugins

        disable_other_plugins(config)


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, so that ``--strict-markers`` accepts it."""
    config.addinivalue_line("markers", _MARKER)
    config.addinivalue_line("markers", _NO_SYNC)
    asked = config.stash[_OPTIONS] = options.read(config)
    saving = None if asked.mode is None else _read_budgets(config, asked)
    if asked.worker is not None:
        from pytest_dispatchguard.measure.workers.worker import Worker

        worker = Worker(config, *map(int, asked.worker.split(",")), saving=asked.save is not None)
        config.pluginmanager.register(worker, "dispatchguard-worker")
        return
    if asked.by_workers:
        _measure(config, asked)
    elif asked.mode == "count" and not _is_shared_out(config):
        _count(config, asked)
    if asked.record or asked.lint:
        _watch(config, asked)
    # The processes of pytest-xdist send their reports on.
    if not hasattr(config, "workerinput"):
        _gather(config, asked, saving)


def _gather(config: pytest.Config, asked: options.Options, saving: Path | None) -> None:
    """Has what tests and traces tell gathered, in the one process that tells it."""
    traces = None
    if asked.traces:
        from pytest_dispatchguard.model.errors import UserError
        from pytest_dispatchguard.pytest_run.traces import Traces

        try:
            traces = Traces(config.rootpath, asked.traces)
        except UserError as error:
            raise _usage(error) from None
        config.pluginmanager.register(traces, "dispatchguard-traces")
    if asked.mode is not None or (traces is not None and asked.json is not None):
        from pytest_dispatchguard.pytest_run.verdicts import Gatherer

        gatherer = Gatherer(config, asked, saving, traces)
        config.pluginmanager.register(gatherer, "dispatchguard-verdicts")


def _watch(config: pytest.Config, asked: options.Options) -> None:
    """Has tests watched: where they run, which may be in processes of pytest-xdist."""
    from pytest_dispatchguard.model.errors import UserError

    try:
        if asked.record:
            from pytest_dispatchguard.pytest_run.recording import Recording

            config.pluginmanager.register(Recording(config.rootpath), "dispatchguard-recording")
        if asked.lint:
            from pytest_dispatchguard.pytest_run.runtime_lint import Linting

            linting = Linting(config, asked.lint, asked.lint_output, by_line=asked.ops)
            config.pluginmanager.register(linting, "dispatchguard-linting")
    except UserError as error:
        raise _usage(error) from None


def _usage(error: Exception) -> pytest.UsageError:
    from pytest_dispatchguard.visible import one_line

    return pytest.UsageError(one_line(str(error)))


def _haunted() -> Callable[[], None]:
    """Has a ghost there from now on, and gives what ends it."""
    from contextlib import ExitStack

    from pytest_dispatchguard.model.errors import UserError

    try:
        from pytest_dispatchguard.runtime.ghost.ghost import ghost
    except ImportError:
        raise UserError(
            "--overhead-ghost: torch is not installed here, whose GPU it stands in for"
        ) from None
    stack = ExitStack()
    stack.enter_context(ghost())
    return stack.close


def _is_shared_out(config: pytest.Config) -> bool:
    """Whether pytest-xdist runs the tests in other processes."""
    return bool(config.getoption("numprocesses", None)) and not hasattr(config, "workerinput")


def _read_budgets(config: pytest.Config, asked: options.Options) -> Path | None:
    """Reads what tests are held against; the file that the run is to be kept in."""
    from pytest_dispatchguard.config.load import budgets_of
    from pytest_dispatchguard.measure.budgets import budget_file
    from pytest_dispatchguard.measure.budgets.limits import check_settings
    from pytest_dispatchguard.measure.budgets.session import Asked
    from pytest_dispatchguard.measure.revisions import run_files
    from pytest_dispatchguard.model.errors import UserError

    try:
        config.stash[_SETTINGS] = budgets_of(config.rootpath / "pyproject.toml")
        check_settings(config.stash[_SETTINGS])
        recorded = budget_file.load(config.rootpath / budget_file.NAME)
        config.stash[_ASKED] = Asked({} if asked.mode == "update" else recorded)
        return None if asked.save is None else run_files.path_of(config.rootpath, asked.save)
    except UserError as error:
        raise _usage(error) from None


def _count(config: pytest.Config, asked: options.Options) -> None:
    if not hasattr(os, "fork"):
        return  # tests count where pytest runs
    from functools import partial

    from pytest_dispatchguard.measure.workers import counting

    watching = ("dispatchguard-linting", "dispatchguard-recording")

    def watchers() -> list[counting.Watcher]:
        found = map(config.pluginmanager.getplugin, watching)
        return [plugin for plugin in found if plugin is not None]

    config.pluginmanager.register(
        counting.Counting(
            *(asked.timeout, watchers, partial(_workers, config, asked)),
            *(partial(_native, config, asked), partial(_complaint, config)),
        ),
        "dispatchguard-counting",
    )


def _measure(config: pytest.Config, asked: options.Options) -> None:
    if _is_shared_out(config):
        return
    if sys.platform == "win32":
        raise pytest.UsageError("times are not measured on Windows: use --overhead-budget=count")
    config.pluginmanager.register(_workers(config, asked), "dispatchguard-measuring")


def _workers(config: pytest.Config, asked: options.Options) -> Measuring:
    """What has tests measured by workers."""
    from functools import partial

    from pytest_dispatchguard.measure.revisions import checkout, run_files
    from pytest_dispatchguard.measure.workers import alone, measuring, sources
    from pytest_dispatchguard.measure.workers.lockstep import Pipes
    from pytest_dispatchguard.model.errors import UserError

    launch = measuring.launch_of(config)
    base = saved = pipes = there = None
    try:
        if asked.against is not None:
            config.add_cleanup(checkout.end_by_exception())
            revision = checkout.Revision(checkout.top_of(config.rootpath), asked.against)
            config.add_cleanup(revision.remove)
            pipes = Pipes()
            config.add_cleanup(pipes.close)
            turns = partial(pipes.of, base=True)
            there = partial(revision.launch, launch)
            base = sources.Source(there, asked.workers, turns, asked.against)
        elif asked.compare is not None:
            file = run_files.found(config.rootpath, config.invocation_params.dir, asked.compare)
            saved = run_files.load(file, asked.compare)
    except UserError as error:
        raise _usage(error) from None
    return measuring.Measuring(
        sources.Source(
            lambda: launch, asked.workers, partial(pipes.of, base=False) if pipes else None
        ),
        asked.measuring(),
        complaint=partial(_complaint, config),
        lock=alone.lock_of(config),
        base=base,
        base_name=asked.against or asked.compare or "",
        saved=saved,
        tell=_progress(config),
        native=_native(config, asked, there),
    )


def _native(
    config: pytest.Config, asked: options.Options, base: Callable[[], Any] | None = None
) -> Native:
    """What has native instructions counted; `base` starts workers of another revision."""
    from pytest_dispatchguard.measure.workers.measuring import launch_of
    from pytest_dispatchguard.measure.workers.native import Native

    return Native(lambda: launch_of(config), base, asked.timeout, everywhere=asked.native)


def _progress(config: pytest.Config) -> Callable[[str, int, int], None]:
    """What says how far measuring has come, where somebody watches."""
    lines: list[Any] = []

    def tell(what: str, done: int, of: int) -> None:
        reporter = config.pluginmanager.getplugin("terminalreporter")
        if reporter is None or not reporter.isatty or hasattr(config, "workerinput"):
            return
        from pytest_dispatchguard.report.budgets.terminal import ProgressLine

        if not lines:
            lines.append(ProgressLine(reporter._tw))
        lines[0].tell(what, done, of)

    return tell


def _complaint(config: pytest.Config, verdicts: Sequence[Any]) -> str:
    """What verdicts fail a test for; empty where they do not."""
    from pytest_dispatchguard.report.budgets.verdicts import explained

    failing = config.stash[_OPTIONS].undecided == "fail"
    fine = ("pass",) if failing else ("pass", "undecided")
    return "\n\n".join(explained(v) for v in verdicts if v.verdict not in fine)


@pytest.fixture
def overhead(request: pytest.FixtureRequest) -> Generator[Overhead, None, None]:
    """Names a callable whose host overhead is under budget: ``overhead(f, x).against(g, x)``."""
    from pytest_dispatchguard.measure.timing.subject import Overhead

    if request.config.stash[_OPTIONS].mode is not None:
        from pytest_dispatchguard.measure.workers.items import is_measured

        if not is_measured(request.node):  # it would run where a crash ends the run
            pytest.fail(
                "a test that is measured names `overhead` among its arguments, "
                "or is marked with overhead_budget",
                pytrace=False,
            )
    named = Overhead()
    request.node.stash[_NAMED] = named
    yield named
    named.close()


@pytest.fixture
def ghost_cuda() -> Generator[Any, None, None]:
    """The device `cuda`: a real one where there is one, else a ghost of it that tells where it is waited
    for."""
    torch = pytest.importorskip("torch", reason="the ghost stands in for torch's device")
    if torch.cuda.is_available():
        yield torch.device("cuda")
        return
    from pytest_dispatchguard.runtime.ghost.ghost import ghost

    with ghost("cuda"):
        yield torch.device("cuda")


def pytest_itemcollected(item: pytest.Item) -> None:
    """A test that must not wait is given what it must not wait for."""
    names = getattr(item, "fixturenames", None)
    if names is not None and item.get_closest_marker("no_sync") and "ghost_cuda" not in names:
        names.insert(0, "ghost_cuda")


@pytest.fixture(scope="session")
def overhead_device(request: pytest.FixtureRequest) -> str:
    """The device a test runs on, usable as ``device=``: the test runs on the CPU and on the accelerator
    that is here, or on those that --overhead-device names."""
    from pytest_dispatchguard.measure.timing.devices import started

    device: str = request.param
    missing = started(device)
    if missing:
        pytest.skip(missing)
    return device


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a device."""
    if "overhead_device" not in metafunc.fixturenames or not _is_ours(metafunc):
        return
    from pytest_dispatchguard.measure.timing.devices import axis

    params = [
        pytest.param(kind, marks=[pytest.mark.skip(reason=why)] if why else [])
        for kind, why in axis(metafunc.config.stash[_OPTIONS].device)
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
    if item.get_closest_marker("no_sync"):
        from pytest_dispatchguard.measure.budgets.device_waits import refused

        with refused() as waited:
            outcome = yield
        if outcome.excinfo is None and waited():
            outcome.force_exception(pytest.fail.Exception(waited(), pytrace=False))
    else:
        outcome = yield
    named = item.stash.get(_NAMED, None)
    marked = any(mark.name == "overhead_budget" for mark in item.own_markers)
    asked = item.config.stash.get(_ASKED, None)
    broken = outcome.excinfo is not None
    if (broken and asked is None) or (named is None and not marked):
        return
    from dataclasses import replace

    from pytest_dispatchguard.measure.budgets import session
    from pytest_dispatchguard.measure.workers import items

    if broken:
        verdict = session.not_compiled(item.nodeid, outcome.excinfo[1])
        if verdict is not None:
            item.stash[_VERDICTS] = [verdict]
            outcome.force_exception(pytest.fail.Exception(verdict.reason, pytrace=False))
        return
    if item.config.stash[_OPTIONS].worker is not None:
        from pytest_dispatchguard.measure.workers.worker import REQUEST, SAMPLES, TURNS

        asked = replace(
            asked or session.Asked(),
            request=item.config.stash[REQUEST],
            turns=item.config.stash[TURNS],
        )
    try:
        settled = session.settle(
            items.node_id_of(item),
            named,
            [(mark.args, mark.kwargs) for mark in _marks(item)],
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


def _marks(item: pytest.Item) -> list[pytest.Mark]:
    """The marks of a test, the nearest last: that of one case of a parametrized test after its own."""
    marks = list(item.iter_markers("overhead_budget"))[::-1]
    of_case = getattr(getattr(item, "callspec", None), "marks", ())
    return sorted(marks, key=lambda mark: mark in of_case)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, None]:
    """The report of a test carries its verdicts to the process that tells them."""
    outcome = yield
    verdicts = item.stash.get(_VERDICTS, None)
    if verdicts and call.when == "call":
        from pytest_dispatchguard.measure.workers.reports import carry

        carry(outcome.get_result(), verdicts)


def _device_of(item: pytest.Item) -> str | None:
    """The device that a test with `overhead_device` runs on."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    device = params.get("overhead_device")
    return device if isinstance(device, str) else None
