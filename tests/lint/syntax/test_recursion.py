"""Deep recursion finds room, and what fails there fails here."""

from __future__ import annotations

import sys
import threading

import pytest

from pytest_dispatchguard.lint.syntax.recursion import with_more_frames, with_room


def down(depth: int) -> int:
    return 0 if depth == 0 else 1 + down(depth - 1)


def test_there_is_room_for_deep_recursion() -> None:
    limit, size = sys.getrecursionlimit(), threading.stack_size()
    with pytest.raises(RecursionError):
        down(20_000)
    assert with_room(lambda: down(20_000)) == 20_000
    assert (sys.getrecursionlimit(), threading.stack_size()) == (limit, size)


def test_what_has_no_end_is_an_error() -> None:
    with pytest.raises(RecursionError):
        with_room(lambda: down(10**9))


def test_errors_are_handed_on() -> None:
    with pytest.raises(ZeroDivisionError):
        with_room(lambda: 1 // 0)


@pytest.mark.parametrize("depth", [10, 2_000, 20_000])
def test_what_fits_runs_once(depth: int) -> None:
    limit, begun = sys.getrecursionlimit(), []

    def work() -> int:
        begun.append(threading.current_thread() is threading.main_thread())
        return down(depth)

    assert with_more_frames(work) == depth
    assert begun == ([True, False] if depth == 20_000 else [True])
    assert sys.getrecursionlimit() == limit


def test_what_has_no_end_fails_there_too() -> None:
    with pytest.raises(RecursionError):
        with_more_frames(lambda: down(10**9))
