"""A subject against its base: counters exactly, times by intervals, and no failure for getting faster."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.measure.budgets import comparison
from pytest_dispatchguard.measure.budgets.comparison import (
    against,
    is_open,
    less_precise,
    needs_times,
)
from pytest_dispatchguard.model.compiled import Compiled, Guards
from pytest_dispatchguard.model.measurements import CostlyLine, Interval, Measurement
from pytest_dispatchguard.model.verdicts import Base, Limit, Verdict

COUNTERS = {"instructions": 10, "dispatches": 1}


def measured(ratio: float, wide: float = 0.001) -> Measurement:
    around = Interval(ratio, ratio * (1 - wide), ratio * (1 + wide))
    return Measurement(Interval(2.0, 1.9, 2.1), Interval(1.0, 0.9, 1.1), around)


def verdict(ratio: float = 2.0, *limits: Limit, **counters: int) -> Verdict:
    return Verdict(
        "t.py::t", "f", "pass", {**COUNTERS, **counters}, limits, measured=measured(ratio)
    )


def base(ratio: float = 2.0, wide: float = 0.001, **counters: int) -> Base:
    return Base("main", {**COUNTERS, **counters}, measured(ratio, wide))


@pytest.fixture(autouse=True)
def price(monkeypatch: pytest.MonkeyPatch) -> None:
    """An instruction takes 5 ns, or 2 to 10."""
    monkeypatch.setattr(
        comparison,
        "implied_us",
        lambda number: Interval(number * 0.005, *sorted((number * 0.002, number * 0.01))),
    )


def test_instructions_that_moved_are_estimated_where_times_cannot_tell() -> None:
    unsure = against(verdict(2.0, instructions=110), base(2.0, 0.05))
    assert unsure.base is not None
    assert unsure.base.implied_us == Interval(0.5, 0.2, 1.0)
    assert unsure.reason.endswith(
        "100 more instructions: estimated 0.2 to 1 µs more, at 2 to 10 ns each on this machine; times "
        "cannot tell"
    )
    untimed = against(replace(verdict(2.0, instructions=110), measured=None), base(2.0))
    assert untimed.reason.endswith("this was not timed")


def test_what_times_tell_is_not_estimated() -> None:
    slower = against(verdict(2.2, instructions=110), base(2.0))
    assert slower.base is not None
    assert slower.base.implied_us is None
    assert "estimated" not in slower.reason
    same = against(verdict(2.0), base(2.0, 0.05))
    assert same.base is not None
    assert same.base.implied_us is None


def test_fewer_instructions_are_estimated_without_a_complaint() -> None:
    fewer = against(verdict(2.0, instructions=5), base(2.0, 0.01))
    assert fewer.verdict == "pass"
    assert fewer.reason == ""
    assert fewer.base is not None
    assert fewer.base.implied_us == Interval(-0.025, -0.05, -0.01)


def test_what_varies_from_call_to_call_implies_nothing() -> None:
    varying = replace(verdict(2.0, instructions=110), varying=("instructions",))
    told = against(varying, base(2.0, 0.05))
    assert told.base is not None
    assert told.base.implied_us is None


def test_times_stay_open_whatever_counters_say() -> None:
    limited = verdict(2.0, Limit("regression", 1.02), instructions=110)
    wide = replace(base(), change=Interval(1.01, 0.99, 1.03))
    assert against(limited, wide).verdict == "fail"
    assert is_open(limited, wide)
    assert not is_open(limited, replace(wide, change=Interval(1.01, 1.0, 1.015)))
    assert not is_open(limited, base())


def test_times_stay_open_until_they_are_as_precise_as_was_asked() -> None:
    clear = replace(base(), change=Interval(0.5, 0.45, 0.55))
    faster = verdict(2.0, Limit("regression", 1.02))
    assert not is_open(faster, clear)
    assert is_open(faster, clear, precision=0.05)
    assert not is_open(faster, clear, precision=0.11)
    assert is_open(verdict(2.0), replace(base(), change=Interval(1.0, 0.0, math.inf)), 0.05)
    assert needs_times(verdict(9.0), base(1.0), 0.05)
    assert not needs_times(verdict(), Base("main", {}, note="it cannot tell"), 0.05)


@pytest.mark.parametrize(
    ("halves", "said"),
    [
        ([], []),
        ([0.02, 0.025], []),
        ([0.02, 0.04], ["a change is known less precisely than ±3%: raise --overhead-max-time"]),
        (
            [0.05, math.inf],
            ["2 changes are known less precisely than ±3%: raise --overhead-max-time"],
        ),
    ],
)
def test_what_is_less_precise_than_was_asked_is_told(halves: list[float], said: list[str]) -> None:
    found = [
        replace(verdict(), base=replace(base(), change=Interval(1.0, 1 - half, 1 + half)))
        for half in halves
    ]
    assert less_precise(found, 0.03) == [f"warning: {line}" for line in said]
    assert less_precise(found, None) == []


def test_a_counter_that_grew_fails_whatever_the_time() -> None:
    told = against(verdict(1.0, dispatches=2), base(2.0))
    assert told.verdict == "fail"
    assert told.reason == "dispatches: 2, in main 1"


def test_a_counter_with_a_limit_of_its_own_may_grow() -> None:
    allowed = Limit("dispatches", 2)
    assert against(verdict(2.0, allowed, dispatches=2), base()).verdict == "pass"


def test_the_same_counters_need_no_times() -> None:
    assert not needs_times(verdict(9.0), base(1.0))
    assert against(verdict(9.0), base(1.0)).verdict == "pass"
    assert needs_times(verdict(9.0, instructions=9), base(1.0))
    assert needs_times(verdict(2.0, Limit("regression", 1.1)), base(2.0))
    assert not needs_times(verdict(), Base("main", {}, note="it cannot tell"))


@pytest.mark.parametrize(
    ("now", "before", "wide", "outcome"),
    [
        (2.2, 2.0, 0.001, "fail"),
        (2.0, 2.0, 0.001, "pass"),
        (1.0, 2.0, 0.001, "pass"),
        (2.1, 2.0, 0.05, "undecided"),
        (1.0, 2.0, 0.3, "pass"),
    ],
)
def test_fewer_instructions_may_still_take_longer(
    now: float, before: float, wide: float, outcome: str
) -> None:
    one = replace(verdict(now, instructions=9), measured=measured(now, wide))
    told = against(one, base(before, wide))
    assert told.verdict == outcome
    assert bool(told.reason) == (outcome != "pass")


def test_a_base_of_another_time_leaves_more_open() -> None:
    one = replace(verdict(2.6, instructions=9), measured=replace(measured(2.6), apart=0.2))
    before = replace(base(2.0), measured=replace(measured(2.0), apart=0.2))
    by_turns, earlier = against(one, before), against(one, replace(before, earlier=True))
    assert (by_turns.verdict, earlier.verdict) == ("fail", "undecided")
    assert earlier.base is not None and earlier.base.change is not None
    assert earlier.base.change.low < 1.05 < earlier.base.change.value == pytest.approx(1.3)
    twice = replace(one, measured=replace(measured(4.0), apart=0.2))
    assert against(twice, replace(before, earlier=True)).verdict == "fail"


def test_what_failed_by_itself_stays_failed() -> None:
    failed = replace(verdict(), verdict="fail", reason="ratio: 2, allowed 1")
    told = against(failed, base())
    assert (told.verdict, told.reason) == ("fail", "ratio: 2, allowed 1")
    broken = replace(verdict(), verdict="error", counters={})
    assert against(broken, base()).verdict == "error"


def test_a_base_that_cannot_tell_changes_nothing() -> None:
    none = Base("main", {}, note="main: there is no such test")
    told = against(verdict(9.0, instructions=99), none)
    assert (told.verdict, told.base) == ("pass", none)


RATIOS = st.floats(0.5, 50)


@given(RATIOS, RATIOS, st.floats(0.0001, 0.3))
def test_getting_faster_never_fails(now: float, before: float, wide: float) -> None:
    one = replace(verdict(now, instructions=9), measured=measured(now, wide))
    told = against(one, base(before, wide))
    assert told.base is not None and told.base.change is not None
    change = told.base.change
    assert change.low <= change.value <= change.high
    if now <= before:
        assert told.verdict != "fail"
    if told.verdict == "fail":
        assert change.low > 1.05


def test_lines_say_what_they_do_beyond_the_base() -> None:
    now = (
        CostlyLine("/a/lib.py", 9, 20, "for x in xs:"),
        CostlyLine("/a/lib.py", 12, 8, "return f(x)"),
        CostlyLine("/a/lib.py", 14, 3, "y = wrap(f)"),
    )
    before = (
        CostlyLine("/b/lib.py", 5, 20, "for x in xs:"),
        CostlyLine("/b/lib.py", 8, 5, "return f(x)"),
    )
    told = against(
        replace(verdict(instructions=31), lines=now), replace(base(instructions=25), lines=before)
    )
    assert [(line.text, line.extra) for line in told.lines] == [
        ("return f(x)", 3),
        ("y = wrap(f)", 3),
        ("for x in xs:", 0),
    ]


def test_guards_that_the_base_does_not_have_are_marked() -> None:
    def guards(pattern: str, number: int, text: str = "x * s") -> Guards:
        return Guards("EQUALS_MATCH", pattern, pattern, number, "net.py:3 in f", text)

    before = replace(base(), compiled=Compiled((guards("L['a']", 2), guards("L['b']", 5))))
    now = (guards("L['b']", 4), guards("L['a']", 3, "moved"), guards("L['c']", 1))
    told = against(replace(verdict(), compiled=Compiled(now)), before)
    assert told.compiled is not None
    assert [(g.pattern, g.extra) for g in told.compiled.guards] == [
        ("L['b']", 0),
        ("L['a']", 1),
        ("L['c']", 1),
    ]
    alone = against(replace(verdict(), compiled=Compiled(now)), base())
    assert alone.compiled is not None and {g.extra for g in alone.compiled.guards} == {None}
