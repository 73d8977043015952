"""Subjects that are counted in a child of pytest's process: the same counts, and no death but its own."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no children to fork")
ATTACKS = Path(__file__).resolve().parents[3] / "bench" / "attacks" / "dying_subjects.py"
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def _attacks() -> ModuleType:
    """The table of the attack suite, which is no package."""
    spec = importlib.util.spec_from_file_location(ATTACKS.stem, ATTACKS)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


attacks = _attacks()


def told(folder: Path, name: str = "out.json") -> dict[str, Any]:
    return {name: row for (name, _), row in subjects_told(folder, name).items()}


def subjects_told(folder: Path, name: str) -> dict[tuple[str, str], Any]:
    rows = json.loads((folder / name).read_text())["tests"]
    return {(row["nodeid"].rpartition("::")[2], row["subject"]): row for row in rows}


def in_process_and_child(pytester: pytest.Pytester, run: Any, *words: str) -> list[Any]:
    """The counters of every test, where pytest runs (as when somebody debugs) and in children."""
    found = []
    for name, more in (("here", ["--pdb"]), ("child", [])):
        flags = ("--overhead-budget=count", f"--overhead-json={name}.json", *more)
        result = run(*flags, *words)
        assert result.ret == 0, result.stdout.str()
        rows = subjects_told(pytester.path, f"{name}.json")
        found.append({key: row["counters"] for key, row in rows.items()})
    return found


# Each way to die is met in both kinds of process by the first two.
DYING = [
    pytest.param(words, marks=[] if words == ("count",) else [pytest.mark.thorough])
    for words in attacks.MODES
]


@LINUX
@pytest.mark.parametrize("words", DYING, ids=" ".join)
def test_a_subject_that_dies_is_an_error_and_the_run_goes_on(
    pytester: pytest.Pytester, run_pytest: Any, words: tuple[str, ...]
) -> None:
    if "-n" in words:
        pytest.importorskip("xdist", reason="shares tests among processes")
    pytester.makepyfile(dying=attacks.subjects(), test_dying=attacks.suite())
    result = run_pytest(*attacks.flags(words))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(failed=len(attacks.SUBJECTS), passed=len(attacks.FINE))
    assert list(attacks.wrong_of(told(pytester.path))) == []
    result.stdout.fnmatch_lines(
        ["test_exits_as_if_fine could not be *ended by itself with status 0"]
    )


@LINUX
def test_a_test_that_dies_by_itself_is_an_error_too(
    pytester: pytest.Pytester, run_pytest: Any
) -> None:
    ways = [one for one in attacks.SUBJECTS if one.name in ("exits_as_if_fine", "reads_nowhere")]
    pytester.makepyfile(
        dying=attacks.subjects(ways), test_dying=attacks.suite(ways, in_the_test=True)
    )
    result = run_pytest("--overhead-budget=count", "--overhead-json=out.json")
    result.assert_outcomes(failed=2, passed=2)
    assert {row["verdict"] for row in told(pytester.path).values()} == {"pass", "error"}


PLAIN = """
import functools, re
import pytest

class Thing:
    @property
    def size(self):
        return sum(x for x in range(5))

    def __enter__(self):
        return self

    def __exit__(self, *why):
        return False

def with_context(thing):
    with thing as it:
        return it.size

def raises_inside():
    try:
        return int("x")
    except ValueError:
        return [str(n) for n in range(3)]

@functools.lru_cache
def kept(n):
    return n * 2

def deep(n):
    return n if n < 1 else deep(n - 1)

@pytest.fixture(scope="module")
def thing():
    return Thing()

def test_builtin(overhead):
    overhead(len, "abc").against(len, "abc")

def test_context(overhead, thing):
    overhead(with_context, thing)

def test_exceptions(overhead):
    overhead(raises_inside)

def test_cached(overhead):
    overhead(kept, 3)

@pytest.mark.parametrize("n", [1, 40])
def test_recursive(overhead, n):
    overhead(deep, n)

@pytest.mark.overhead_budget(py_allocations=50)
def test_allocations(overhead):
    overhead(lambda: [[], {}, ()])

def test_prints(overhead):
    overhead(print, "said")

def test_regular_expression(overhead):
    overhead(re.sub, "a+", "b", "caat")

def test_two(overhead):
    overhead(sorted, [2, 1])
    overhead(dict, a=1)
"""
WITH_TORCH = """
import pytest, torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(64, 256), torch.nn.Linear(256, 8)

    def forward(self, x):
        return self.two(torch.relu(self.one(x)))

@pytest.fixture(scope="session")
def net():
    torch.manual_seed(0)
    return Net()

@pytest.fixture(scope="session", autouse=True)
def computed():
    # Starts the threads that torch computes with, in pytest's own process.
    big = torch.ones(1500, 1500, requires_grad=True)
    (big @ big + big).sum().backward()

def backward(net, x):
    net(x).sum().backward()

def test_ones(overhead):
    overhead(torch.ones, 4)

@pytest.mark.parametrize("rows", [1, 4096])
def test_forward(overhead, net, rows):
    overhead(net, torch.ones(rows, 64))

def test_backward(overhead, net):
    overhead(backward, net, torch.ones(512, 64)).setup(lambda: net.zero_grad())

def test_many_threads(overhead):
    x = torch.ones(1200, 1200)
    overhead(torch.mm, x, x).against(torch.matmul, x, x)

def test_no_grad(overhead, net):
    overhead(net, torch.ones(2, 64)).mode("no_grad")

def test_reads(overhead):
    overhead(lambda x: x.sum().item() if x.any() else 0, torch.ones(3))
"""


@pytest.mark.parametrize("words", [(), ("-s",), ("--capture=sys",)], ids="".join)
def test_a_child_counts_what_this_process_would(
    pytester: pytest.Pytester, run_pytest: Any, words: tuple[str, ...]
) -> None:
    pytester.makepyfile(PLAIN)
    here, child = in_process_and_child(pytester, run_pytest, *words)
    assert here == child and len(child) == 11
    assert child["test_recursive[40]", "deep"]["instructions"] > 400


@needs_torch
def test_a_child_counts_torch_as_this_process_would(
    pytester: pytest.Pytester, run_pytest: Any
) -> None:
    pytester.makepyfile(WITH_TORCH)
    here, child = in_process_and_child(pytester, run_pytest)
    assert here == child and child["test_forward[4096]", "Net"]["dispatches"] >= 3


FIXTURES = """
import pathlib, warnings
import pytest

NOTES = pathlib.Path(__file__).with_name("notes.txt")

def note(text):
    with NOTES.open("a") as file:
        file.write(text + "\\n")

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    setattr(item, "report_of_" + call.when, outcome.get_result())

@pytest.fixture(scope="session")
def session_wide():
    note("session begins")
    yield 1
    note("session ends")

@pytest.fixture(scope="module")
def module_wide(session_wide):
    note("module begins")
    yield 2
    note("module ends")

@pytest.fixture
def looked_at(request):
    yield
    note(f"{request.node.name} {request.node.report_of_call.outcome}")
"""
USES = """
import warnings
import pytest
from conftest import note

def plain():
    pass

def test_plain_before(module_wide):
    note("plain before")

@pytest.mark.parametrize("n", range(2))
def test_first(overhead, module_wide, looked_at, n):
    note("first")
    overhead(len, "abc")

def test_plain_between():
    note("plain between")

@pytest.mark.overhead_budget(c_calls=0)
def test_second(overhead, module_wide, looked_at):
    warnings.warn("look here", UserWarning)
    print("said in the test")
    overhead(len, "abc")
"""


def test_fixtures_are_set_up_once_for_all_that_is_counted(
    pytester: pytest.Pytester, run_pytest: Any
) -> None:
    pytester.makeconftest(FIXTURES)
    pytester.makepyfile(test_uses=USES)
    result = run_pytest("--overhead-budget=count")
    result.assert_outcomes(passed=4, failed=1, warnings=1)
    result.stdout.fnmatch_lines(
        ["*Captured stdout call*", "said in the test", "*UserWarning: look here"]
    )
    counted = ["session begins", "module begins"]
    counted += [
        "first",
        "test_first[[]0] passed".replace("[[]", "["),
        "first",
        "test_first[1] passed",
    ]
    counted += ["test_second failed", "module ends", "session ends"]
    notes = (pytester.path / "notes.txt").read_text().splitlines()
    plain = ["session begins", "module begins", "plain before", "plain between"]
    for line in (*plain, *counted, "module ends", "session ends"):
        notes.remove(line)
    assert not notes


def test_what_is_set_up_ends_where_a_run_stops_early(
    pytester: pytest.Pytester, run_pytest: Any
) -> None:
    pytester.makeconftest(FIXTURES)
    pytester.makepyfile(
        """
        def test_fails(overhead, module_wide):
            overhead(int, "x")

        def test_never_runs(overhead, module_wide):
            overhead(len, "abc")
        """
    )
    result = run_pytest("--overhead-budget=count", "-x")
    result.assert_outcomes(failed=1)
    notes = (pytester.path / "notes.txt").read_text().splitlines()
    assert notes == ["session begins", "module begins", "module ends", "session ends"]


def test_an_interrupted_run_leaves_no_process_and_nothing_set_up(
    pytester: pytest.Pytester, plugin_flags: tuple[str, ...]
) -> None:
    pytester.makeconftest(FIXTURES)
    pytester.makepyfile(
        """
        import os, time
        from conftest import note

        def wait():
            note(f"waiting {os.getpid()} {os.getppid()}")
            time.sleep(600)

        def test_waits(overhead, module_wide):
            overhead(wait)
        """
    )
    words = (sys.executable, "-m", "pytest", *plugin_flags, "--overhead-budget=count")
    running = pytester.popen(words, stdin=subprocess.DEVNULL)
    notes = pytester.path / "notes.txt"
    while not notes.exists() or "waiting" not in notes.read_text():
        assert running.poll() is None
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    output, _ = running.communicate(timeout=60)
    assert running.returncode == pytest.ExitCode.INTERRUPTED, output
    *_, waiting, module, session = notes.read_text().splitlines()
    assert (module, session) == ("module ends", "session ends")
    for pid in map(int, waiting.split()[1:]):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_breakpoint_is_one_line(pytester: pytest.Pytester, run_pytest: Any) -> None:
    pytester.makepyfile("def test_stops(overhead):\n    breakpoint()\n    overhead(len, 'abc')\n")
    result = run_pytest("--overhead-budget=count")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["a breakpoint in a test that is counted *: say --pdb, or leave *"])


def test_what_is_watched_in_children_is_told(pytester: pytest.Pytester, run_pytest: Any) -> None:
    pytester.makepyprojecttoml("[tool.dispatchguard]\n")
    pytester.makepyfile(
        library="""
        import contextlib

        @contextlib.contextmanager
        def scope():
            yield

        # dispatchguard: hot
        def forward(x):
            with scope():
                return x
        """,
        test_forward="""
        from library import forward

        def test_forward(overhead):
            for _ in range(3):
                forward(1)
            overhead(forward, 1)
        """,
    )
    seen, recorded = [], []
    profile = pytester.path / ".dispatchguard" / "profile.json"
    for more in (("--pdb",), ()):
        flags = ("--overhead-budget=count", *more)
        result = run_pytest(*flags, "--overhead-lint=json", "--overhead-lint-output=out.json")
        result.assert_outcomes(passed=1)
        seen.append(json.loads((pytester.path / "out.json").read_text()))
        run_pytest(*flags, "--overhead-record").assert_outcomes(passed=1)
        recorded.append(json.loads(profile.read_text()))
        profile.unlink()
    assert seen[0] == seen[1] and recorded[0] == recorded[1]
    assert [finding["code"] for finding in seen[1]["findings"]] == ["DG201"]
