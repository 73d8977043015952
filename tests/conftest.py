"""What all tests share: pytester, the flags that load the plugin, pytest runs that find torch imported."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# No test may fail because a machine is slow.
settings.register_profile("any pace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any pace")

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[1]
QUICKEST = Path(__file__).with_name("lint")
"""Where thousands of tests take milliseconds each."""
NO_CUDA = "no cuda device here"
UNTIL = os.environ.get("DISPATCHGUARD_TESTS_UNTIL")
"""When `make test-quick` is to end, in seconds of the clock."""
Python = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The quickest come last: where several processes run tests, none waits long for another at the end."""
    if UNTIL is None:
        items.sort(key=lambda item: QUICKEST in item.path.parents)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """`make test-quick` ends within its minute (tests/quick.py). Tests marked `gpu` need CUDA."""
    if UNTIL is not None and time.time() > float(UNTIL):
        pytest.skip("the minute is over; `make test` runs all tests")
    if item.get_closest_marker("gpu") is not None and not _has_cuda():
        pytest.skip(NO_CUDA)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """`make gpu` finds the tests that need CUDA by their mark: none may skip for its want without."""
    report = yield
    marked = item.get_closest_marker("gpu") is not None
    if report.skipped and NO_CUDA in str(report.longrepr) and not marked:
        report.outcome = "failed"
        report.longrepr = f"skipped for want of CUDA: mark it gpu, for `make gpu` ({item.nodeid})"
    return report


@cache
def _has_cuda() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


@pytest.fixture(autouse=True, scope="module")
def _frozen() -> None:
    """What tests are made of, and what they imported up to here, is no garbage: nobody need look through it
    again and again."""
    gc.collect()
    gc.freeze()


class Started:
    """A process that has modules imported, and runs others like it."""

    def __init__(self, *modules: str) -> None:
        self._environment = _telling(os.environ)
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("imported.py"), *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def runs(self, words: Sequence[str], environment: Mapping[str, str]) -> bool:
        """Whether it can run what these words start, and that would be no other for it."""
        return (
            words[0] == sys.executable
            and _module(words) is not None
            and _telling(environment) == self._environment
        )

    def run(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], out: str, err: str
    ) -> int:
        """Runs `python [-W ignore] -m MODULE WORDS`; its exit status."""
        request = {
            "words": _module(words),
            "quiet": words[1] == "-W",
            "folder": str(folder),
            "environment": dict(environment),
            "out": out,
            "err": err,
        }
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def end(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _module(words: Sequence[str]) -> list[str] | None:
    """The module that Python is to run, and the words for it; None where it is to do something else."""
    _, *rest = words
    if rest[:2] == ["-W", "ignore"]:
        rest = rest[2:]
    flag, *rest = rest
    return [*filter(None, [flag[2:]]), *rest] if flag.startswith("-m") else None


def _telling(environment: Mapping[str, str]) -> dict[str, str]:
    """What Python and torch read of the environment when they begin."""
    told = ("PYTHON", "OMP_", "MKL_", "TORCH", "CUDA", "LD_")
    later = ("PYTHONPATH", "TORCHINDUCTOR_CACHE_DIR")
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(told) and name not in later
    }


@pytest.fixture(scope="session")
def processes() -> Iterator[Callable[..., Started]]:
    """The processes that have modules imported, each started when it is first needed."""
    started: dict[tuple[str, ...], Started] = {}

    def having(*modules: str) -> Started:
        if modules not in started:
            started[modules] = Started(*modules)
        return started[modules]

    yield having
    for one in started.values():
        one.end()


@pytest.fixture
def imported(request: pytest.FixtureRequest, processes: Callable[..., Started]) -> Started | None:
    """The process that has torch imported, and its compiler where a test is marked to compile; None where
    there is no torch."""
    if find_spec("torch") is None or not hasattr(os, "fork"):
        return None
    compiles = request.node.get_closest_marker("compiles") is not None
    return processes("torch", "pytest", *["torch._dynamo"] * compiles)


@pytest.fixture
def python(imported: Started | None, tmp_path_factory: pytest.TempPathFactory) -> Python:
    """Runs a module of Python in a process of its own, which finds torch imported."""

    def run(*words: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "ignore", "-m", *words]
        whole = {**os.environ, **environment}
        if imported is None or not imported.runs(command, whole):
            return subprocess.run(
                command, cwd=folder, env=whole, capture_output=True, text=True, timeout=300
            )
        said = tmp_path_factory.mktemp("said")
        out, err = said / "out", said / "err"
        status = imported.run(command, folder, whole, str(out), str(err))
        told = (file.read_text(errors="surrogateescape") for file in (out, err))
        return subprocess.CompletedProcess(command, status, *told)

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
    """Pytest runs do without the plugin of hypothesis, which imports all of it at their end, and find torch
    imported, unless a test is about what is imported."""
    within = "pytester" in request.fixturenames
    if within:
        request.getfixturevalue("pytester")  # it takes away what stands there
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest")
    if not within or request.node.get_closest_marker("fresh_python"):
        return
    started: Started | None = request.getfixturevalue("imported")
    popen = pytest.Pytester.popen

    def run(self: pytest.Pytester, words: Sequence[Any], **settings: Any) -> Any:
        command = [os.fspath(word) for word in words]
        path = filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH")))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        out, err = (getattr(settings.get(name), "name", None) for name in ("stdout", "stderr"))
        plain = settings.get("stdin", self.CLOSE_STDIN) is self.CLOSE_STDIN
        files = isinstance(out, str) and isinstance(err, str)
        if plain and files and started is not None and started.runs(command, environment):
            return _Ended(started.run(command, Path.cwd(), environment, out, err))
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
