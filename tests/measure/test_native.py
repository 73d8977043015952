"""Native instructions: by hardware counters, under valgrind, or told to be unavailable."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.measure.budgets.messages import Request
from pytest_dispatchguard.measure.budgets.native import Counted, is_asked, with_native
from pytest_dispatchguard.measure.budgets.native_blocks import native_instructions
from pytest_dispatchguard.measure.timing.calling import Call
from pytest_dispatchguard.measure.workers import native as workers
from pytest_dispatchguard.measure.workers.reports import Found
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.verdicts import Base, Limit, Verdict, has_moved
from pytest_dispatchguard.runtime.counters import native
from pytest_dispatchguard.runtime.counters.native import NAME

needs_valgrind = pytest.mark.skipif(
    shutil.which("valgrind") is None or sys.platform != "linux" or not native.why_no_events(),
    reason="needs valgrind, and no hardware counters in its place",
)
linux = pytest.mark.skipif(sys.platform != "linux", reason="perf_event_open is of Linux")
SOFTWARE, TASK_CLOCK = 1, 1

MODULE = """
def work(n):
    return sorted(i * i for i in range(n))
"""
SUITE = """
import pytest
from subjects import work

@pytest.mark.overhead_budget(native_instructions=1)
def test_little(overhead):
    overhead(work, 10).against(work, 10)

@pytest.mark.overhead_budget(native_instructions=10_000_000)
def test_much(overhead):
    overhead(work, 1000)

def test_unlimited(overhead):
    state = []
    overhead(state.append, 1).setup(state.clear)
"""


class World:
    """A processor on which calls take what a test says."""

    def __init__(self) -> None:
        self.now = 0
        self.prepared = 0

    def clock(self) -> int:
        self.now += 100  # reading the clock, within the block
        return self.now

    def spent(
        self, blocks: Sequence[Callable[..., int]], times: int, prepare: Callable[[], object]
    ) -> list[int]:
        found = []
        for block in blocks:
            prepare()
            found.append(block(itertools.repeat(None, times)))
        return found


def test_what_a_block_takes_by_itself_is_not_in_it() -> None:
    world, calls = World(), itertools.count()

    def call() -> None:
        world.now += 1000 + (500 if next(calls) % 100 == 99 else 0)

    assert native_instructions(Call(call), world) == 1005


def test_blocks_of_dear_calls_are_short() -> None:
    world, made = World(), []

    def call() -> None:
        made.append(1)
        world.now += 5_000_000

    assert native_instructions(Call(call), world) == 5_000_000
    assert len(made) < 100


def test_fresh_state_is_made_for_every_call() -> None:
    world, state = World(), [0]

    def call() -> None:
        assert state[0] == 0
        state[0] = 1
        world.now += 70

    def fresh() -> None:
        world.now += 12345
        state[0] = 0

    assert native_instructions(Call(call), world, fresh) == 70


@linux
def test_an_event_that_every_linux_has_is_read() -> None:
    try:
        events = native.Events(SOFTWARE, TASK_CLOCK)
    except UserError as error:
        pytest.skip(f"not even software events are allowed here: {error}")
    try:
        one, other = events.spent([Call(sum, (range(2000),)).block(events.clock)] * 2, 50, int)
        assert min(one, other) > 10_000  # nanoseconds
    finally:
        events.close()


@linux
def test_why_there_are_none_is_told() -> None:
    with pytest.raises(UserError, match=r"perf_event_open answers E[A-Z]+"):
        native.Events(kind=0xFFFF)


def test_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert native.why_no_events() == "perf_event_open is for Linux on x86-64 and arm64"


def test_callgrind_asks_only_valgrind(tmp_path: Path) -> None:
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        pytest.skip("the machine code is of Linux on x86-64")
    with pytest.raises(UserError, match="does not run under valgrind"):
        native.Callgrind(tmp_path)


def verdict(**more: Any) -> Verdict:
    return Verdict("t.py::test", "f", "pass", {"instructions": 4}, **more)


def test_who_asks() -> None:
    limited = verdict(limits=(Limit(NAME, 5),))
    assert is_asked(limited, everywhere=False)
    assert is_asked(verdict(), everywhere=True)
    assert not is_asked(verdict(), everywhere=False)
    assert not is_asked(Verdict("t", "f", "error", {}, limits=limited.limits), everywhere=True)


def test_a_limit_is_held() -> None:
    limited = verdict(limits=(Limit(NAME, 100, 5),))
    assert with_native(limited, Counted(105), None).verdict == "pass"
    over = with_native(limited, Counted(106), None)
    assert (over.verdict, over.reason) == ("fail", f"{NAME}: 106, allowed 100 + 5")
    assert over.counters == {"instructions": 4, NAME: 106}


def test_growth_is_told_beyond_what_differs_without_reason() -> None:
    compared = verdict(base=Base("main", {"instructions": 4}))
    same = with_native(compared, Counted(10_050), Counted(10_000))
    assert same.verdict == "pass"
    assert same.base is not None
    assert same.base.counters[NAME] == 10_000
    more = with_native(compared, Counted(10_051), Counted(10_000))
    assert (more.verdict, more.reason) == ("fail", f"{NAME}: 10051, in main 10000")
    assert with_native(compared, Counted(5_000), Counted(10_000)).verdict == "pass"
    missing = with_native(compared, Counted(5_000), Counted(None, "it died"))
    assert (missing.verdict, missing.reason) == ("pass", f"{NAME} is not counted in main: it died")
    assert has_moved("instructions", 4, 5)


def ran(pytester: pytest.Pytester, flags: tuple[str, ...], *words: str) -> pytest.RunResult:
    more = ("-p", "no:cacheprovider", "--overhead-max-time=0.3", "--overhead-json=found.json")
    return pytester.runpytest_subprocess(*flags, *more, *words)


def counted(path: Path) -> dict[str, Any]:
    tests = json.loads((path / "found.json").read_text(encoding="utf-8"))["tests"]
    return {row["subject"]: row["counters"].get(NAME) for row in tests}


FAKE = """
from pytest_dispatchguard.runtime.counters import native

class Events(native.Events):
    def __init__(self):
        import time
        {fails}
        self.close = lambda: None
        self.clock = time.perf_counter_ns

native.Events = Events
import os
assert "--overhead-worker" not in str(os.sys.argv) or os.environ["PYTHONHASHSEED"]
"""


@pytest.mark.parametrize("mode", ["count", "check"])
def test_hardware_counters_are_used_where_there_are_some(
    pytester: pytest.Pytester, plugin_flags: tuple[str, ...], mode: str
) -> None:
    pytester.makeconftest(FAKE.format(fails=""))
    pytester.makepyfile(test_suite=SUITE, subjects=MODULE)
    result = ran(pytester, plugin_flags, f"--overhead-budget={mode}")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*native_instructions: *, allowed 1"])
    found = counted(pytester.path)
    assert found["work"] > 0
    assert found["list.append"] is None  # nobody asked


def test_where_there_are_none_it_is_told_in_one_line(
    pytester: pytest.Pytester, plugin_flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeconftest(
        FAKE.format(fails="raise native.UserError('perf_event_open answers EACCES')")
    )
    pytester.makepyfile(test_suite=SUITE, subjects=MODULE)
    monkeypatch.setenv("PATH", str(pytester.path))
    result = ran(pytester, plugin_flags, "--overhead-budget=count", "--overhead-native")
    result.assert_outcomes(passed=3)
    why = "perf_event_open answers EACCES, and valgrind is not on the PATH"
    said = f"    native_instructions is not counted: {why}"
    assert result.stdout.str().count(said) == 3


def test_the_option_needs_budgets(pytester: pytest.Pytester, plugin_flags: tuple[str, ...]) -> None:
    result = pytester.runpytest_subprocess(*plugin_flags, "--overhead-native")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--overhead-native needs --overhead-budget*"])


@pytest.mark.thorough
@needs_valgrind
def test_under_valgrind(pytester: pytest.Pytester, plugin_flags: tuple[str, ...]) -> None:
    pytester.makepyfile(test_suite=SUITE, subjects=MODULE)
    pytester.makepyfile(
        test_async="""
        from subjects import work

        async def later(n):
            return work(n)

        def test_async(overhead):
            overhead.awaited(later, 10).named("later")
        """
    )
    result = ran(pytester, plugin_flags, "--overhead-budget=count", "--overhead-native")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*native_instructions: *, allowed 1"])
    found = counted(pytester.path)
    assert 300 < found["list.append"] + 200 < 2000
    rows = json.loads((pytester.path / "found.json").read_text(encoding="utf-8"))["tests"]
    little, much = (row["counters"][NAME] for row in rows if row["subject"] == "work")
    assert 50 * little < much < 200 * little
    assert 0 < found["later"] - little < 0.2 * little  # `await`, and no event loop being started


@needs_valgrind
@pytest.mark.thorough
def test_torch_repeats_to_a_thousandth(
    pytester: pytest.Pytester, plugin_flags: tuple[str, ...]
) -> None:
    pytest.importorskip("torch", reason="its native code is counted")
    pytester.makepyfile(
        """
        import torch

        def test_calls(overhead):
            x, linear = torch.ones(4), torch.nn.Linear(8, 8)
            overhead(torch.add, x, x)
            overhead(linear, torch.ones(2, 8)).named("linear")
        """
    )
    runs = []
    for _ in range(3):
        ran(pytester, plugin_flags, "--overhead-budget=count", "--overhead-native").assert_outcomes(
            passed=1
        )
        runs.append(counted(pytester.path))
    for name in ("add", "linear"):
        numbers = [run[name] for run in runs]
        assert max(numbers) <= 1.001 * min(numbers), runs


@needs_valgrind
@pytest.mark.thorough
def test_two_revisions(pytester: pytest.Pytester, plugin_flags: tuple[str, ...]) -> None:
    def suite(power: int) -> None:
        pytester.makepyfile(f"""
            def test_power(overhead):
                overhead(pow, 3, 2**{power}, 7)
            """)

    def git(*words: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        assert pytester.run("git", *identity, *words).ret == 0

    def against_head() -> pytest.RunResult:
        options = ("--overhead-budget=count", "--overhead-native", "--overhead-against=HEAD")
        return ran(pytester, plugin_flags, *options)

    suite(4000)
    git("init", "-q", ".")
    git("add", ".")
    git("commit", "-qm", "base")
    against_head().assert_outcomes(passed=1)
    suite(4500)  # the same Python, and more native work: only this counter shows it
    result = against_head()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["  native_instructions: *, in HEAD *"])
    result.stdout.no_fnmatch_line("*  instructions: *, in HEAD*")


class Told:
    """Stands for a source tree whose processes count so many instructions each."""

    def __init__(self, *counts: dict[str, int]) -> None:
        self.left = list(counts)

    def ask(self, found: Found, request: Request, tick: Callable[[], None]) -> None:
        found.metadata.append({})
        found.verdicts = [
            Verdict("t.py::test", subject, "pass", {NAME: number})
            for subject, number in self.left.pop(0).items()
        ]


@pytest.mark.parametrize(
    ("counts", "least", "asked"),
    [
        ([{"f": 10_000}, {"f": 10_008}, {"f": 1}], 10_000, 2),
        ([{"f": 10_140}, {"f": 10_000}, {"f": 10_001}], 10_000, 3),
        (
            [{"f": 10_000, "g": 7_000}, {"f": 10_000, "g": 7_100}, {"f": 9_999, "g": 7_000}],
            9_999,
            3,
        ),
        ([{}, {"f": 1}], None, 1),
    ],
)
def test_processes_are_asked_until_two_agree(
    monkeypatch: pytest.MonkeyPatch, counts: list[dict[str, int]], least: int | None, asked: int
) -> None:
    monkeypatch.setattr(workers, "node_id_of", lambda item: "t.py::test")
    one, told = workers.Native(NotImplemented, None, 1.0, everywhere=True), Told(*counts)
    counted = one._counted(told, NotImplemented, NotImplemented)  # type: ignore[arg-type]  # stand-ins
    assert one._of(counted, "f").number == least
    assert len(counts) - len(told.left) == asked
