"""Blocks of memory that Python code takes, the same on every Python where the code does the same."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from types import FunctionType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_dispatchguard.runtime.counters.allocations import COUNTABLE, blocks

pytestmark = pytest.mark.skipif(not COUNTABLE, reason="blocks are counted from Python 3.11 on")


def of(run: Callable[[], object]) -> int:
    """The same three times in a row. Before that, another thread may take some: the one by which a worker of
    pytest-xdist is told what to run."""
    assert isinstance(run, FunctionType)
    run()
    blocks(run)
    found: list[int] = []
    while len(found) < 3 or len(set(found[-3:])) > 1:
        found.append(blocks(run))
        assert len(found) < 20, found
    return found[-1]


def nothing() -> None:
    pass


def passed_on(a: object, b: object = 1) -> object:
    c = a
    return c


def many() -> int:
    a = b = c = d = e = f = g = h = i = j = k = m = n = o = p = q = 1
    return a + b + c + d + e + f + g + h + i + j + k + m + n + o + p + q


def nested() -> None:
    nothing()
    passed_on(many())
    nothing()


def counted() -> None:
    i = 0
    while i < 20:
        i += 1


def starred(*args: object, **kwargs: object) -> None:
    pass


def wrapped(*args: object, **kwargs: object) -> object:
    return passed_on(*args, **kwargs)


def tuples(times: int) -> None:
    i = 0
    while i < times:
        _ = (times, i)
        i += 1


def floats(times: int, number: float = 1.5) -> None:
    i = 0
    while i < times:
        _ = number * 2.0
        i += 1


def dicts(times: int) -> None:
    i = 0
    while i < times:
        _ = {"a": i}
        i += 1


def closure(z: object) -> object:
    def inner() -> object:
        return z

    return inner()


def steps(n: int) -> Iterator[int]:
    yield n
    yield n


def through() -> None:
    for _ in steps(1):
        pass


@pytest.mark.parametrize(
    ("run", "taken"),
    [
        (lambda: nothing(), 0),
        (lambda: passed_on(1), 0),
        (lambda: many(), 0),
        (lambda: nested(), 0),
        (lambda: counted(), 0),
        (lambda: starred(), 1),  # the dict
        (lambda: starred(1, 2), 2),
        (lambda: starred(1, k=2), 3),  # and its table
        (lambda: wrapped(1), 3),  # the dict is copied
        (lambda: tuples(10), 10),
        (lambda: floats(10), 10),
        (lambda: dicts(10), 20),
        (lambda: closure(1), 3),  # a cell, a tuple for it and the function
        (lambda: through(), 1),
        (lambda: [1, 2, 3], 2),
        (lambda: float("1.5"), 1),
    ],
)
def test_what_code_takes(run: Callable[[], object], taken: int) -> None:
    assert of(run) == taken


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 10))
@settings(deadline=None, max_examples=6)
def test_it_adds_up(ones: int, others: int, pairs: int) -> None:
    def both() -> None:
        tuples(ones)
        floats(others)
        dicts(pairs)

    assert of(lambda: both()) == ones + others + 2 * pairs


def test_whole_numbers_past_those_that_are_ready() -> None:
    def count(start: int) -> None:
        i = 0
        while i < 10:
            start += 1
            i += 1

    assert of(lambda: count(0)) == 0
    assert of(lambda: count(1000)) == 10


def test_code_of_many_instructions() -> None:
    """Whose offsets take blocks of their own."""
    scope: dict[str, Callable[[], None]] = {}
    exec("def long(x=1):\n" + "    x = x\n" * 1000 + "    y = (x, x)\n", scope)
    long = scope["long"]
    assert of(lambda: long()) == 1


def test_the_collector_is_left_as_it_was() -> None:
    class Node:
        me: object = None

    def cycle() -> None:
        node = Node()
        node.me = node

    called: list[str] = []

    def told(phase: str, info: object) -> None:
        called.append(phase)

    gc.callbacks.append(told)
    gc.unfreeze()  # 3.12 starts with some
    try:
        assert of(lambda: cycle()) >= 1
        assert told in gc.callbacks and not called
        assert gc.get_freeze_count() == 0 and gc.isenabled()
        with pytest.raises(ZeroDivisionError):
            blocks(lambda: 1 / 0)
        assert told in gc.callbacks and gc.get_freeze_count() == 0
        assert gc.collect() >= 1  # the cycles are there yet
    finally:
        gc.callbacks.remove(told)
