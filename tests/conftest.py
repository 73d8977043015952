"""What all tests share: pytester, the flags that load the plugin, pytest runs that find torch imported."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from . import gpu_mark, started
from .gpu_mark import pytest_runtest_makereport  # noqa: F401 - a hook

# No test may fail because a machine is slow.
settings.register_profile("any pace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any pace")

# A shell has what it runs in the background ignore Ctrl-C, and so all that this starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[1]
QUICKEST = Path(__file__).with_name("lint")
"""Where thousands of tests take milliseconds each."""
UNTIL = os.environ.get("DISPATCHGUARD_TESTS_UNTIL")
"""When `make test-quick` is to end, in seconds of the clock."""
Python = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The quickest come last, so that one process can take them from another evenly."""
    if UNTIL is None:
        items.sort(key=lambda item: QUICKEST in item.path.parents)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """`make test-quick` ends within its minute (tests/quick.py)."""
    if UNTIL is not None and time.time() > float(UNTIL):
        pytest.skip("the minute is over; `make test` runs all tests")
    gpu_mark.skip_without_cuda(item)


@pytest.fixture(autouse=True, scope="module")
def _frozen() -> None:
    """What tests are made of, and what they imported up to here, is no garbage: nobody need look through it
    again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _started() -> Iterator[None]:
    """The processes that have modules imported end with the tests."""
    yield
    started.end()


@pytest.fixture
def imported(request: pytest.FixtureRequest) -> started.Started | None:
    """The process that has torch imported, and its compiler where a test is marked to compile, or neither
    where it is marked to do without; None where there is no torch."""
    if find_spec("torch") is None or not hasattr(os, "fork"):
        return None
    if request.node.get_closest_marker("without_torch") is not None:
        return started.having("pytest", *started.LIBRARIES)
    compiles = request.node.get_closest_marker("compiles") is not None
    return started.having("torch", "pytest", *started.LIBRARIES, *["torch._dynamo"] * compiles)


@pytest.fixture
def python(imported: started.Started | None) -> Python:
    """Runs a module of Python in a process of its own, which finds torch imported."""

    def run(*words: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "ignore", "-m", *words]
        done = started.run(imported, command, folder, {**os.environ, **environment})
        told = (said.decode(errors="surrogateescape") for said in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(command, done.returncode, *told)

    return run


class _Ended:
    """A process that has come to its end."""

    stdin = None

    def __init__(self, status: int) -> None:
        self._status = status

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status."""
        return self._status


@pytest.fixture(autouse=True)
def _quick(request: pytest.FixtureRequest) -> None:
    """Pytest runs do without the plugins of hypothesis and anyio, which import all of these, and find torch
    imported, unless a test is about what is imported."""
    within = "pytester" in request.fixturenames
    if within:
        request.getfixturevalue("pytester")  # it takes away what stands there
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest -p no:anyio")
    if not within or request.node.get_closest_marker("fresh_python"):
        return
    ready: started.Started | None = request.getfixturevalue("imported")
    popen = pytest.Pytester.popen

    def run(self: pytest.Pytester, words: Sequence[Any], **settings: Any) -> Any:
        command = [os.fspath(word) for word in words]
        path = filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH")))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        out, err = (getattr(settings.get(name), "name", None) for name in ("stdout", "stderr"))
        plain = settings.get("stdin", self.CLOSE_STDIN) is self.CLOSE_STDIN
        files = isinstance(out, str) and isinstance(err, str)
        if plain and files and ready is not None and ready.runs(command, environment):
            return _Ended(ready.run(command, Path.cwd(), environment, out, err))
        return popen(self, words, **settings)

    monkeypatch.setattr(pytest.Pytester, "popen", run)


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def plugin_flags() -> tuple[str, ...]:
    """How pytest comes to know the plugin: by itself where it is installed, by ``-p`` where not."""
    if any(point.name == "dispatchguard" for point in entry_points(group="pytest11")):
        return ()
    return ("-p", "pytest_dispatchguard.plugin")


@pytest.fixture
def run_pytest(
    pytester: pytest.Pytester, plugin_flags: tuple[str, ...]
) -> Callable[..., pytest.RunResult]:
    """Runs pytest with the plugin, in a process of its own."""
    return lambda *words: pytester.runpytest_subprocess(
        *plugin_flags, "-p", "no:cacheprovider", *words
    )
