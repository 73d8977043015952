"""Coroutines and generators as subjects: used up, with nothing of what uses them up in their figures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.measure.timing.calling import Call
from pytest_dispatchguard.measure.timing.subject import Overhead, Subject
from pytest_dispatchguard.runtime.counters import counters

pytestmark = pytest.mark.without_torch

MODULE = """
import asyncio

def plain(x):
    return x + 1

async def same(x):
    return x + 1

async def through(x):
    return await same(x)

async def sleeps(x):
    await asyncio.sleep(0.001)
    return x + 1

async def in_a_loop(x):
    asyncio.get_running_loop()
    assert asyncio.current_task() is not None
    one, other = await asyncio.gather(same(x), same(x))
    return one

def numbers(n):
    for i in range(n):
        yield i

async def late(n):
    for i in range(n):
        yield i

class Point:
    def __init__(self, x):
        self.x = x
"""
SUITE = """
import asyncio
import pytest
from subjects import *

def test_plain(overhead):
    overhead(plain, 1)

@pytest.mark.overhead_budget(py_calls=1)
def test_same(overhead):
    overhead.awaited(same, 1).against(plain, 1)

def test_through(overhead):
    overhead.awaited(through, 1).against(same, x=1)

def test_sleeps(overhead):
    overhead.awaited(sleeps, 1).against(plain, 1)

def test_in_a_loop(overhead):
    overhead.awaited(in_a_loop, 1).against(plain, 1)

def test_numbers(overhead):
    overhead.exhausted(numbers, 5).against(list, range(5))

def test_late(overhead):
    overhead.exhausted(late, 5).against(numbers, 5)

def test_point(overhead):
    overhead(Point, 1).against(Point, x=1).unchecked()

class TestOfAClass:
    async def doubled(self, x):
        return 2 * x

    def test_method(self, overhead):
        overhead.awaited(self.doubled, 3).against(int, 6)

def test_named_in_a_loop(overhead):
    async def main():
        overhead.awaited(same, 1)

    asyncio.run(main())
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(test_suite=SUITE, subjects=MODULE)
    return pytester


def ran(pytester: pytest.Pytester, flags: tuple[str, ...], *words: str) -> pytest.RunResult:
    more = ("-p", "no:cacheprovider", "--overhead-max-time=0.3", "-W", "error")
    return pytester.runpytest_subprocess(*flags, *more, *words)


def verdicts(path: Path) -> dict[str, Any]:
    tests = json.loads(path.read_text(encoding="utf-8"))["tests"]
    return {row["nodeid"].rpartition("::")[2]: row for row in tests}


def test_they_agree_without_the_option(
    suite: pytest.Pytester, plugin_flags: tuple[str, ...]
) -> None:
    ran(suite, plugin_flags).assert_outcomes(passed=10)


def test_only_the_subject_is_counted(suite: pytest.Pytester, plugin_flags: tuple[str, ...]) -> None:
    result = ran(suite, plugin_flags, "--overhead-budget=count", "--overhead-json=found.json")
    result.assert_outcomes(passed=10)
    found = {name: row["counters"] for name, row in verdicts(suite.path / "found.json").items()}
    plain = found["test_plain"]
    assert plain["py_calls"] == found["test_same"]["py_calls"] == 1
    assert plain["instructions"] <= found["test_same"]["instructions"] <= plain["instructions"] + 3
    assert found["test_named_in_a_loop"] == found["test_same"]
    assert found["test_through"]["py_calls"] == 2
    assert found["test_numbers"]["py_calls"] == 6  # entered, and resumed five times
    assert found["test_point"]["py_calls"] == 1
    assert found["test_sleeps"]["py_calls"] > 1


def test_times(suite: pytest.Pytester, plugin_flags: tuple[str, ...]) -> None:
    result = ran(suite, plugin_flags, "--overhead-budget", "--overhead-json=found.json")
    result.assert_outcomes(passed=10)
    found = verdicts(suite.path / "found.json")
    assert found["test_same"]["form"] == "await f(a0)"
    assert found["test_numbers"]["form"] == "for _ in f(a0): pass"
    assert found["test_late"]["form"] == "async for _ in f(a0): pass"
    # Starting an event loop takes some 20 µs.
    assert found["test_same"]["subject_us"] < 5
    assert found["test_sleeps"]["subject_us"] > 1000


def test_against_a_base(suite: pytest.Pytester, plugin_flags: tuple[str, ...]) -> None:
    for words in (("init", "-q", "."), ("add", "."), ("commit", "-qm", "base")):
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        assert suite.run("git", *identity, *words).ret == 0
    module = suite.path / "subjects.py"
    module.write_text(
        MODULE.replace("async def same(x):\n", "async def same(x):\n    x = (x + 1) - 1\n")
    )
    words = ("-k", "test_through or test_numbers", "--overhead-against=HEAD")
    result = ran(suite, plugin_flags, "--overhead-budget", *words)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*instructions: *, in HEAD *", "*no layers, as an event loop runs it*", "*subjects.py:8*"]
    )
    assert "given up" not in result.stdout.str()


def test_what_a_coroutine_raises_is_told(
    pytester: pytest.Pytester, plugin_flags: tuple[str, ...]
) -> None:
    pytester.makepyfile(
        """
        async def bad():
            raise ValueError("not today")

        def test_bad(overhead):
            overhead.awaited(bad)
        """
    )
    result = ran(pytester, plugin_flags, "--overhead-budget=count")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*ValueError: not today*"])


async def coroutine(x: int) -> int:
    return x + 1


async def late(n: int) -> AsyncIterator[int]:
    for i in range(n):
        yield i


def early(n: int) -> Iterator[int]:
    yield from range(n)


class Callable:
    async def __call__(self, x: int) -> int:
        return x


@pytest.fixture
def overhead() -> Iterator[Overhead]:
    made = Overhead()
    yield made
    made.close()


def test_all_that_it_gives_is_returned(overhead: Overhead) -> None:
    assert overhead.awaited(coroutine, 2).call.once()() == 3
    assert overhead.awaited(coroutine, x=2).call.once()() == 3
    assert overhead.exhausted(early, 3).call.once()() == [0, 1, 2]
    assert overhead.exhausted(late, 3).call.once()() == [0, 1, 2]


def test_a_reference_is_used_as_the_subject_is(overhead: Overhead) -> None:
    def use(subject: Subject) -> str:
        assert subject.reference is not None
        return subject.reference.use

    assert use(overhead.awaited(coroutine, 1).against(coroutine, 1)) == "await"
    assert use(overhead.awaited(coroutine, 1).against(Callable(), 1)) == "await"
    assert use(overhead.awaited(coroutine, 1).against(abs, 1)) == "call"
    assert use(overhead.exhausted(late, 1).against(early, 1)) == "iterate"
    assert use(overhead.exhausted(early, 1).against(late, 1)) == "iterate async"
    assert use(overhead(abs, 1).against(abs, 1)) == "call"


def test_the_loop_is_one_that_is_there(overhead: Overhead) -> None:
    async def loop() -> object:
        return asyncio.get_running_loop()

    own = overhead.awaited(loop).call.once()
    assert own() is own()
    theirs = asyncio.new_event_loop()

    async def named() -> Call:
        return overhead.awaited(loop).call

    call = theirs.run_until_complete(named())
    assert call.once()() is theirs
    theirs.close()
    assert call.once()() is own()


def test_an_empty_coroutine_counts_nothing(overhead: Overhead) -> None:
    async def nothing() -> None:
        pass

    call = overhead.awaited(nothing).call
    idle = call.idle()
    assert idle is not None
    left = counters.count(call.once()).less(counters.count(idle)).values
    assert left["py_calls"] == 1
    assert left["c_calls"] == 0
    assert 0 < left["instructions"] < 8
    assert Call(abs, (1,)).idle() is None


@pytest.mark.parametrize("name", ["awaited", "exhausted"])
def test_what_cannot_be_called_is_refused(overhead: Overhead, name: str) -> None:
    with pytest.raises(TypeError, match=rf"overhead\.{name}\(\) needs something to call"):
        getattr(overhead, name)(3)
