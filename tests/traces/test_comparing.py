"""Two traces compared: which waits came, went and grew, and how sure that is."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.model.trace_changes import TraceComparison
from pytest_dispatchguard.model.traces import Device, Line, Step, Trace, Wait
from pytest_dispatchguard.traces.comparing import _t_quantile, compared

ITEM = Line("train.py", 44, "step", exact=True)


def wait(
    us: tuple[float, ...], line: Line = ITEM, times: int = 1, operator: str = "aten::item"
) -> Wait:
    each = tuple(times if one else 0 for one in us)
    return Wait(
        *(line, "cudaStreamSynchronize", "stream", operator, "", sum(each), sum(us)),
        *(0.0, 0.0, max(us), each, us),
    )


def trace(*waits: Wait, steps: tuple[float, ...] = (1000.0, 1001.0, 999.0)) -> Trace:
    made = tuple(Step(f"ProfilerStep#{n}", n * 1e4, us, us / 2) for n, us in enumerate(steps))
    devices = (Device(0, "A100", 1, 1.0),)
    return Trace("trace.json", None, devices, True, True, made, waits, ())


def told(comparison: TraceComparison) -> list[tuple[str, bool, int]]:
    return [(one.what, one.sure, one.wait.line.line) for one in comparison.waits]


def test_the_same_is_the_same() -> None:
    one = trace(wait((100.0, 90.0, 110.0)))
    found = compared(one, one)
    assert told(found) == [("same", False, 44)]
    assert found.step_us.way == 0 and found.idle_share.way == 0 and not found.worse


def test_waits_come_and_go() -> None:
    other = replace(ITEM, function="loss", line=9)
    before, after = trace(wait((5.0, 5.0, 5.0))), trace(wait((7.0, 7.0, 8.0), other))
    found = compared(before, after)
    assert told(found) == [("came", True, 9), ("went", True, 44)]
    assert found.worse
    assert not compared(trace(*before.waits, *after.waits), before).worse


def test_more_of_them_is_growth_whatever_they_take() -> None:
    found = compared(trace(wait((5.0, 5.0, 5.0))), trace(wait((5.0, 5.0, 5.0), times=2)))
    assert told(found) == [("grew", True, 44)] and found.worse


def test_a_longer_time_is_growth_where_it_matters() -> None:
    before = trace(wait((100.0, 101.0, 99.0)))
    assert told(compared(before, trace(wait((150.0, 152.0, 149.0))))) == [("grew", True, 44)]
    assert told(compared(before, trace(wait((50.0, 52.0, 49.0))))) == [("shrank", True, 44)]
    # Sure, and a hundredth of it.
    assert told(compared(before, trace(wait((104.0, 105.0, 103.5))))) == [("same", False, 44)]
    # Sure, twice as long, and less than a thousandth of a step.
    small = compared(trace(wait((0.4, 0.4, 0.4))), trace(wait((0.8, 0.8, 0.8))))
    assert told(small) == [("same", False, 44)]
    noisy = compared(trace(wait((100.0, 200.0, 50.0))), trace(wait((150.0, 250.0, 100.0))))
    assert told(noisy) == [("same", False, 44)]


def test_lines_that_moved_are_the_same() -> None:
    first, second = (replace(ITEM, line=n) for n in (44, 50))
    before = trace(wait((5.0,) * 3, first), wait((9.0,) * 3, second))
    moved = trace(*(replace(w, line=replace(w.line, line=w.line.line + 7)) for w in before.waits))
    assert told(compared(before, moved)) == [("same", False, 51), ("same", False, 57)]
    # Of three where two were, one that stands where one stood is that one.
    third = wait((1.0,) * 3, replace(ITEM, line=47))
    found = compared(before, trace(*before.waits, third))
    assert told(found)[0] == ("came", True, 47) and len(found.waits) == 3


def test_one_step_alone_makes_nothing_sure() -> None:
    found = compared(trace(steps=(1000.0,)), trace(wait((5.0, 5.0)), steps=(9000.0, 9000.0)))
    assert told(found) == [("came", False, 44)]
    assert not found.worse and found.few_steps and found.step_us.way == 0
    assert math.isinf(found.step_us.difference.high)


def test_what_no_step_holds_is_left_out() -> None:
    outside = replace(wait((0.0, 0.0, 0.0)), times=1, us=9.0)
    assert compared(trace(), trace(outside)).waits == ()


def test_damage_leaves_idle_shares_unknown() -> None:
    found = compared(trace(), replace(trace(), damage="cut"))
    assert math.isinf(found.idle_share.difference.low)


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 63.657), (2, 9.925), (3, 5.841), (4, 4.604), (10, 3.169), (30, 2.750), (1000, 2.581)],
)
def test_the_quantile_is_student_s(freedom: float, quantile: float) -> None:
    assert _t_quantile(freedom) == pytest.approx(quantile, rel=2e-4)


FIGURES = st.lists(st.floats(0.1, 1e4), min_size=2, max_size=5)


@given(
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["step", "loss"])), max_size=4),
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["step", "loss"])), max_size=4),
    FIGURES,
    FIGURES,
)
def test_backwards_is_the_opposite(
    before: list[tuple[int, str]], after: list[tuple[int, str]], a: list[float], b: list[float]
) -> None:
    def made(places: list[tuple[int, str]], us: list[float]) -> Trace:
        lines = [Line("train.py", line, function) for line, function in dict.fromkeys(places)]
        return trace(*(wait(tuple(us), line) for line in lines), steps=tuple(us))

    old, new = made(before, a), made(after, b)
    there, back = compared(old, new), compared(new, old)
    opposite = {"came": "went", "went": "came", "grew": "shrank", "shrank": "grew", "same": "same"}
    assert sorted((one.what, one.sure) for one in there.waits) == sorted(
        (opposite[one.what], one.sure) for one in back.waits
    )
    assert there.step_us.way == -back.step_us.way
    # Each wait of both is told of once.
    assert sorted(one.earlier.line for one in there.waits if one.earlier) == sorted(
        wait.line for wait in old.waits
    )
    assert sorted(one.later.line for one in there.waits if one.later) == sorted(
        wait.line for wait in new.waits
    )


def test_many_waits_take_no_longer_than_reading_them() -> None:
    many = [wait((5.0, 6.0 + n % 7, 7.0), Line("train.py", n, f"f{n}")) for n in range(3000)]
    counted = _t_quantile.cache_info().misses
    assert len(compared(trace(*many), trace(*many)).waits) == 3000
    assert _t_quantile.cache_info().misses - counted <= 4


def test_false_alarms_are_as_rare_as_promised() -> None:
    made = random.Random(7)

    def steps() -> tuple[float, ...]:
        return tuple(made.gauss(1000, 30) for _ in range(5))

    wrong = sum(
        compared(trace(steps=steps()), trace(steps=steps())).step_us.way != 0 for _ in range(600)
    )
    assert wrong <= 15  # 6 of 600 are expected, and more than 15 in one of a thousand


def test_a_slowdown_is_found() -> None:
    made = random.Random(7)
    before = trace(steps=tuple(made.gauss(1000, 10) for _ in range(8)))
    after = trace(steps=tuple(made.gauss(1050, 10) for _ in range(8)))
    assert compared(before, after).step_us.way == 1
    assert compared(after, before).step_us.way == -1
