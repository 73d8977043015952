"""Calls of Python functions and of C functions are told apart."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from pytest_dispatchguard.runtime.counters.calls import calls


def inner(x: str) -> int:
    return len(x)


def outer(x: str) -> int:
    return inner(x) + inner(x)


def test_python_and_c_calls() -> None:
    assert calls(lambda: None) == (0, 0)
    assert calls(lambda: len("abc")) == (0, 1)
    assert calls(lambda: inner("abc")) == (1, 1)
    assert calls(lambda: outer("abc")) == (3, 2)


def test_a_generator_is_entered_each_time_it_goes_on() -> None:
    def parts() -> Iterator[int]:
        yield 1
        yield 2

    def walk() -> None:
        for _ in parts():
            pass

    assert calls(lambda: walk()).python == 4


def test_counts_repeat() -> None:
    assert {calls(lambda: outer("abc")) for _ in range(100)} == {(3, 2)}


def test_a_profiler_is_paused_and_put_back() -> None:
    def profiler(frame: object, event: str, arg: object) -> None:
        pass

    before = sys.getprofile()
    sys.setprofile(profiler)
    try:
        assert calls(lambda: outer("abc")) == (3, 2)
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(before)
