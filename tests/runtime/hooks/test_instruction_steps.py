"""The rest of a call, instruction by instruction."""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Callable
from types import FrameType

import pytest

from pytest_dispatchguard.runtime.hooks.function_calls import each_function
from pytest_dispatchguard.runtime.hooks.instruction_steps import Stop, step_through


class Told:
    """Keeps what it is told."""

    def __init__(self, most: int = sys.maxsize) -> None:
        self.instructions: list[str] = []
        self.entered_names: list[str] = []
        self.left_names: list[tuple[str, object]] = []
        self.most = most
        self.stop: Stop | None = None

    def instruction(self, frame: FrameType, offset: int) -> None:
        self.instructions.append(frame.f_code.co_name)
        if len(self.instructions) >= self.most and self.stop is not None:
            self.stop()

    def entered(self, frame: FrameType) -> None:
        self.entered_names.append(frame.f_code.co_name)

    def left(self, frame: FrameType, result: object) -> None:
        self.left_names.append((frame.f_code.co_name, result))


def add_one(number: int) -> int:
    return number + 1


def subject(number: int) -> int:
    """Two calls, one of them of two."""
    return add_one(add_one(number))


def fails() -> None:
    add_one(1)
    raise KeyError("meant")


def watched(call: Callable[[], object], name: str, told: Told) -> None:
    """Runs a call, with the rest of the first call of a name told."""
    begun: list[bool] = []

    def entered(frame: FrameType) -> bool:
        if frame.f_code.co_name == name and not begun:
            begun.append(True)
            told.stop = step_through(frame, told)
            assert told.stop is not None
        return True

    with each_function(entered):
        call()


def test_a_call_with_all_it_calls() -> None:
    told = Told()
    tracer = sys.gettrace()
    watched(lambda: subject(subject(1)), "subject", told)
    assert sys.gettrace() is tracer
    assert told.entered_names == ["add_one", "add_one"]  # of the first subject alone
    assert told.left_names == [("add_one", 2), ("add_one", 3), ("subject", 3)]
    body = [i.opname for i in dis.get_instructions(add_one) if i.opname not in ("RESUME", "CACHE")]
    assert told.instructions.count("add_one") in (2 * len(body), 2 * len(body) + 2)
    assert 0 < told.instructions.count("subject") < 40


def test_the_same_each_time() -> None:
    first, second = Told(), Told()
    for told in (first, second):
        watched(lambda: subject(1), "subject", told)
    assert first.instructions == second.instructions


def test_a_call_that_raises() -> None:
    told = Told()
    with pytest.raises(KeyError):
        watched(fails, "fails", told)
    assert told.left_names == [("add_one", 2), ("fails", None)]


def test_it_can_be_stopped() -> None:
    told = Told(most=3)
    watched(lambda: subject(1), "subject", told)
    assert len(told.instructions) == 3
    assert told.left_names == []


def test_other_threads_are_not_told() -> None:
    told = Told()

    def outer() -> None:
        thread = threading.Thread(target=subject, args=(1,))
        thread.start()
        thread.join()

    watched(outer, "outer", told)
    assert "subject" not in told.entered_names
    assert told.left_names[-1][0] == "outer"


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="tracers are nobody's trouble since 3.12")
def test_somebody_else_s_tracer_is_left_alone() -> None:
    before = sys.gettrace()

    def tracer(frame: FrameType, event: str, arg: object) -> None:
        """Traces nothing."""

    sys.settrace(tracer)
    try:
        assert step_through(sys._getframe(), Told()) is None
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)
