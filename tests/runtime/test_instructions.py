"""Instructions are counted to the unit, by line, whatever else watches."""

from __future__ import annotations

import sys
import threading
from types import FunctionType

import pytest

from pytest_dispatchguard.runtime.instructions import instructions_by_place


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


def test_other_threads_are_not_counted() -> None:
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            long(1)

    quiet = of(lambda: long(1))
    other = threading.Thread(target=spin, daemon=True)
    other.start()
    try:
        assert {of(lambda: long(1)) for _ in range(20)} == {quiet}
    finally:
        stop.set()
        other.join()


def test_a_tracer_is_paused_and_put_back() -> None:
    seen = []

    def tracer(frame: object, event: str, arg: object) -> None:
        seen.append(event)

    plain = of(lambda: long(1))
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        assert of(lambda: long(1)) == plain
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)


def test_an_error_leaves_nothing_behind() -> None:
    def broken() -> None:
        raise ZeroDivisionError

    before = sys.gettrace()
    with pytest.raises(ZeroDivisionError):
        instructions_by_place(lambda: broken())
    assert sys.gettrace() is before
    assert of(lambda: long(1)) == of(lambda: long(1))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is there since 3.12")
def test_six_other_tools_leave_no_room() -> None:
    monitoring = sys.monitoring
    taken = [n for n in range(6) if monitoring.get_tool(n) is None]
    for n in taken:
        monitoring.use_tool_id(n, f"other {n}")
    try:
        with pytest.raises(Exception, match="six tools"):
            instructions_by_place(lambda: None)
    finally:
        for n in taken:
            monitoring.free_tool_id(n)
    assert of(lambda: None) == 0
