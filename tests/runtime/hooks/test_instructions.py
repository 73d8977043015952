"""Instructions are seen before they run, whatever else watches, and nothing of it stays."""

from __future__ import annotations

import sys
import threading
from types import CodeType, FunctionType

import pytest

from pytest_dispatchguard.runtime.hooks.instructions import before_each_instruction


def long(x: int) -> int:
    for _ in range(10):
        x += 1
    return x


def watched(run: object) -> int:
    """How many instructions were told."""
    assert isinstance(run, FunctionType)
    seen = []

    def note(code: CodeType, offset: int) -> None:
        assert code is sys._getframe(2).f_code, "the frame that runs it is not two up"
        seen.append(offset)

    before_each_instruction(run, note)
    return len(seen)


def test_other_threads_are_not_counted() -> None:
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            long(1)

    quiet = watched(lambda: long(1))
    other = threading.Thread(target=spin, daemon=True)
    other.start()
    try:
        assert {watched(lambda: long(1)) for _ in range(20)} == {quiet}
    finally:
        stop.set()
        other.join()


def test_a_tracer_is_paused_and_put_back() -> None:
    seen = []

    def tracer(frame: object, event: str, arg: object) -> None:
        seen.append(event)

    plain = watched(lambda: long(1))
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        assert watched(lambda: long(1)) == plain
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)


def test_an_error_leaves_nothing_behind() -> None:
    def broken() -> None:
        raise ZeroDivisionError

    before = sys.gettrace()
    with pytest.raises(ZeroDivisionError):
        watched(lambda: broken())
    assert sys.gettrace() is before
    assert watched(lambda: long(1)) == watched(lambda: long(1))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is there since 3.12")
def test_six_other_tools_leave_no_room() -> None:
    monitoring = sys.monitoring
    taken = [n for n in range(6) if monitoring.get_tool(n) is None]
    for n in taken:
        monitoring.use_tool_id(n, f"other {n}")
    try:
        with pytest.raises(Exception, match="six tools"):
            watched(lambda: None)
    finally:
        for n in taken:
            monitoring.free_tool_id(n)
    assert watched(lambda: None) == 0
