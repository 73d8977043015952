"""Instructions are counted to the unit, by line."""

from __future__ import annotations

from types import FunctionType

from pytest_dispatchguard.runtime.counters.instructions import instructions_by_place


def short(x: int) -> int:
    return x + 1


def long(x: int) -> int:
    y = short(x)
    for _ in range(10):
        y += 1
    return y


def of(run: object) -> int:
    assert isinstance(run, FunctionType)
    return sum(instructions_by_place(run).values())


def test_the_function_itself_is_not_counted() -> None:
    assert of(lambda: None) == 0
    assert of(lambda: len("abc")) == 0
    assert 2 <= of(lambda: short(1)) <= 8


def test_what_it_calls_is_counted_by_line() -> None:
    found = instructions_by_place(lambda: long(1))
    first = long.__code__.co_firstlineno
    lines = {line: times for (path, line), times in found.items() if path == __file__}
    assert set(lines) >= {
        first + 1,
        first + 2,
        first + 3,
        first + 4,
        short.__code__.co_firstlineno + 1,
    }
    assert lines[first + 3] > lines[first + 1]


def test_counts_repeat() -> None:
    assert len({of(lambda: long(1)) for _ in range(100)}) == 1


def test_one_more_statement_is_seen() -> None:
    def more(x: int) -> int:
        y = short(x)
        for _ in range(10):
            y += 1
        y = y
        return y

    assert 1 <= of(lambda: more(1)) - of(lambda: long(1)) <= 3
