"""The machine's pace in two runs: what control calls show, and what a comparison makes of it."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.measure.budgets.comparison import against
from pytest_dispatchguard.measure.budgets.paces import between, paced
from pytest_dispatchguard.model.measurements import Beside, Interval, Measurement
from pytest_dispatchguard.model.verdicts import Base, Limit, Verdict

CONFIDENCE = 0.999
USUAL = {"attributes": 0.4, "tree": 2.5, "torch": 1.1}
PACES = st.floats(0.3, 3.0)


def processes(
    subject: float = 1.0, pace: float = 1.0, number: int = 3, **each: float
) -> tuple[Beside, ...]:
    """A run in which all calls go at one pace, but those that are named."""
    controls = {name: us * pace * each.get(name, 1.0) for name, us in USUAL.items()}
    return (Beside(subject * pace, controls),) * number


def measured(beside: tuple[Beside, ...], ratio: float | None = None) -> Measurement:
    def around(value: float) -> Interval:
        return Interval(value, value * 0.99, value * 1.01)

    us = around(beside[0].subject_us if beside else 1.0)
    if ratio is None:
        return Measurement(us, apart=1.5, beside=beside)
    return Measurement(us, around(us.value / ratio), around(ratio), apart=0.05, beside=beside)


def held(now: Measurement, before: Measurement, most: float = 1.05, other: str = "") -> Verdict:
    verdict = Verdict("t.py::t", "f", "pass", {"instructions": 9}, measured=now)
    verdict = replace(verdict, limits=(Limit("regression", most),))
    base = Base("then", {"instructions": 9}, before, earlier=True, other=(other,) if other else ())
    return against(verdict, paced(verdict, base, CONFIDENCE))


def test_no_pace_without_control_calls_in_common() -> None:
    assert between((), processes(), CONFIDENCE) is None
    assert between(processes(), (), CONFIDENCE) is None
    other = (Beside(1.0, {"another": 1.0}),)
    assert between(other, processes(), CONFIDENCE) is None


def test_only_calls_that_every_process_has_timed_count() -> None:
    there = (*processes(), Beside(1.0, {"tree": 2.5}))
    found = between(processes(pace=1.2), there, CONFIDENCE)
    assert found is not None and list(found.each) == ["tree"]
    assert found.change.value == pytest.approx(1.2)


@given(PACES, PACES, st.floats(0.1, 10))
def test_a_pace_that_all_calls_share_is_divided_out(
    now: float, before: float, dearer: float
) -> None:
    found = between(processes(dearer, now), processes(1.0, before), CONFIDENCE)
    assert found is not None and found.subject is not None
    assert found.change.value == pytest.approx(now / before)
    assert found.change.low < found.change.value < found.change.high
    assert found.subject.value == pytest.approx(dearer)
    assert found.apart == 0
    raw = dearer * now / before
    assert found.subject.low <= raw * 1.0001 and found.subject.high >= raw * 0.9999


@given(PACES, PACES, st.floats(0.1, 10))
def test_the_other_way_round_it_is_the_inverse(now: float, before: float, dearer: float) -> None:
    one = between(processes(dearer, now), processes(1.0, before), CONFIDENCE)
    other = between(processes(1.0, before), processes(dearer, now), CONFIDENCE)
    assert one is not None and other is not None and one.subject and other.subject
    assert one.subject.value * other.subject.value == pytest.approx(1)
    assert one.subject.low * other.subject.high == pytest.approx(1)
    assert one.change.value * other.change.value == pytest.approx(1)


@given(PACES, st.floats(1.0, 3.0))
def test_the_less_calls_agree_the_wider_it_is(pace: float, off: float) -> None:
    agreeing = between(processes(pace=pace), processes(), CONFIDENCE)
    apart = between(processes(pace=pace, torch=off), processes(), CONFIDENCE)
    assert agreeing is not None and apart is not None

    def wide(interval: Interval) -> float:
        return math.log(interval.high / interval.low)

    assert wide(apart.change) >= wide(agreeing.change) * 0.9999
    assert 0 <= apart.apart <= math.log(off) + 1e-9


@given(st.integers(0, 2**32), st.floats(0.7, 1.4))
def test_the_same_call_does_not_fail(seed: int, pace: float) -> None:
    """Processes and kinds of calls differ by chance as they were seen to do."""
    chance = random.Random(seed)

    def run(pace: float) -> tuple[Beside, ...]:
        kinds = {name: chance.gauss(0, 0.02) for name in ("subject", *USUAL)}

        def us(name: str) -> float:
            log = kinds[name] + chance.gauss(0, 0.015)
            return USUAL.get(name, 1.0) * pace * math.exp(log)

        return tuple(Beside(us("subject"), {name: us(name) for name in USUAL}) for _ in range(3))

    assert held(measured(run(pace)), measured(run(1.0))).verdict != "fail"


def test_on_the_same_day_a_call_that_takes_twice_as_long_fails() -> None:
    slower = held(measured(processes(2.0)), measured(processes()))
    assert slower.verdict == "fail"
    assert held(measured(processes()), measured(processes()), most=1.5).verdict == "pass"
    # Without control calls that cannot be told.
    unknown = held(measured(processes(2.0)), replace(measured(processes()), beside=()))
    assert unknown.verdict == "undecided" and "machine" not in unknown.reason


def test_on_a_slower_day_it_is_undecided_and_says_why() -> None:
    slow_day = held(measured(processes(1.0, 1.2)), measured(processes()))
    assert slow_day.verdict == "undecided"
    assert slow_day.reason.endswith(
        "the machine alone differs by 20%: measure base and head in one run with --overhead-against"
    )
    quick_day = held(measured(processes()), measured(processes(1.0, 1.2)))
    assert quick_day.verdict == "undecided" and "differs by 20%" in quick_day.reason
    # As much as the machine makes is not a regression, nor does it hide one that is far greater.
    assert held(measured(processes(3.0, 1.2)), measured(processes())).verdict == "fail"


def test_another_machine_leaves_more_open() -> None:
    now, before = measured(processes(3.0)), measured(processes())
    assert held(now, before).verdict == "fail"
    assert held(now, before, other="one processor, now another").verdict == "undecided"


def test_ratios_are_held_against_each_other_whatever_the_pace() -> None:
    now, before = measured(processes(2.0, 1.5), 2.0), measured(processes(2.0), 2.0)
    told = held(now, before, 1.3)
    assert told.verdict == "pass" and told.base is not None and told.base.change is not None
    assert told.base.change.value == pytest.approx(1)
    assert held(measured(processes(4.0, 1.5), 4.0), before).verdict == "fail"


def test_ratios_are_refused_where_control_calls_go_apart() -> None:
    now, before = measured(processes(2.0, torch=2.5), 2.6), measured(processes(2.0), 2.0)
    told = held(now, before)
    assert told.verdict == "undecided"
    assert "control calls differ by " in told.reason and "--overhead-against" in told.reason
    assert held(measured(processes(2.0), 2.6), before).verdict == "fail"
