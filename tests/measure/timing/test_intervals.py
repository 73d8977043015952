"""Intervals: what must hold of any values, and how often they are wrong."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.measure.timing import intervals
from pytest_dispatchguard.measure.timing.intervals import (
    between_runs,
    between_share,
    median,
    median_interval,
    over_processes,
)
from pytest_dispatchguard.model.measurements import Interval

VALUES = st.lists(st.floats(0.1, 10), min_size=1, max_size=300)
CONFIDENCE = st.floats(0.5, 0.9999)


@st.composite
def intervals_of(draw: st.DrawFn) -> Interval:
    value = draw(st.floats(0.5, 2))
    return Interval(value, value - draw(st.floats(0, 0.1)), value + draw(st.floats(0, 0.1)))


@given(VALUES)
def test_median_is_the_median(values: list[float]) -> None:
    assert median(sorted(values)) == statistics.median(values)


@given(VALUES, CONFIDENCE)
def test_an_interval_holds_its_median(values: list[float], confidence: float) -> None:
    found = median_interval(values, confidence)
    if found is not None:
        assert min(values) <= found.low <= found.value <= found.high <= max(values)
        assert found.value == statistics.median(values)


@given(st.lists(st.floats(0.1, 10), min_size=60, max_size=300), CONFIDENCE, CONFIDENCE)
def test_surer_is_wider(values: list[float], one: float, other: float) -> None:
    less, more = (median_interval(values, c) for c in sorted((one, other)))
    if more is None:
        return
    assert less is not None
    assert more.low <= less.low and less.high <= more.high


@given(st.lists(st.floats(0.1, 10), min_size=60, max_size=300), CONFIDENCE)
def test_values_that_count_one_by_one_say_more(values: list[float], confidence: float) -> None:
    by_two, by_one = (median_interval(values, confidence, dependence=many) for many in (2, 1))
    assert by_one is not None
    if by_two is not None:
        assert by_two.low <= by_one.low and by_one.high <= by_two.high


def test_independent_values_are_apart_by_what_the_interval_says() -> None:
    """One standard error of the median, of values that have nothing to do with each other."""
    rng = random.Random(1)
    medians, halves = [], []
    for _ in range(400):
        found = median_interval(
            [rng.gauss(1, 0.05) for _ in range(200)], 0.683, looks=1, dependence=1
        )
        assert found is not None
        medians.append(found.value)
        halves.append((found.high - found.low) / 2)
    assert 0.85 < statistics.mean(halves) / statistics.stdev(medians) < 1.25


@given(VALUES, CONFIDENCE, st.randoms())
def test_order_does_not_matter(values: list[float], confidence: float, rng: random.Random) -> None:
    mixed = values.copy()
    rng.shuffle(mixed)
    assert median_interval(mixed, confidence) == median_interval(values, confidence)


@given(VALUES, CONFIDENCE, st.floats(0.01, 100))
def test_another_unit_is_the_same_interval(
    values: list[float], confidence: float, unit: float
) -> None:
    found = median_interval(values, confidence)
    scaled = median_interval([v * unit for v in values], confidence)
    assert (found is None) == (scaled is None)
    if found is not None and scaled is not None:
        assert scaled.low == pytest.approx(found.low * unit)
        assert scaled.high == pytest.approx(found.high * unit)


def test_few_values_tell_nothing() -> None:
    assert median_interval([], 0.999) is None
    assert median_interval([1.0] * 20, 0.999) is None
    assert median_interval([1.0] * 60, 0.999) is not None


@pytest.mark.parametrize("count", [80, 200, 1000, 1998, 2002, 5000, 100_000])
def test_ranks_are_those_of_fair_coins(count: int) -> None:
    """The interval reaches from rank to rank as the binomial law says, also where that is approximated."""
    chance = 1e-5
    rank = intervals._rank(count, chance)
    assert rank is not None
    normal = statistics.NormalDist(count / 2, count**0.5 / 2)
    assert normal.cdf(rank + 0.5) <= chance * 1.2
    assert normal.cdf(rank + 2.5) > chance


@given(st.lists(intervals_of(), min_size=1, max_size=8), st.floats(0.0001, 0.1), CONFIDENCE)
def test_processes_together_hold_their_centre(
    found: list[Interval], spread: float, confidence: float
) -> None:
    together = over_processes(found, spread, confidence)
    assert together.low < together.value < together.high
    assert (
        min(i.value for i in found) - 1e-9 <= together.value <= max(i.value for i in found) + 1e-9
    )


@given(intervals_of(), st.integers(1, 7), st.floats(0.0001, 0.1), CONFIDENCE)
def test_a_process_that_agrees_never_widens(
    found: Interval, count: int, spread: float, confidence: float
) -> None:
    fewer = over_processes([found] * count, spread, confidence)
    more = over_processes([found] * (count + 1), spread, confidence)
    assert more.low >= fewer.low - 1e-12
    assert more.high <= fewer.high + 1e-12


@given(
    st.lists(intervals_of(), min_size=1, max_size=8),
    st.floats(0.0001, 0.1),
    CONFIDENCE,
    st.randoms(),
)
def test_order_of_processes_does_not_matter(
    found: list[Interval], spread: float, confidence: float, rng: random.Random
) -> None:
    mixed = found.copy()
    rng.shuffle(mixed)
    one, other = (over_processes(each, spread, confidence) for each in (found, mixed))
    assert (one.low, one.high) == pytest.approx((other.low, other.high))


@given(intervals_of(), st.floats(0.0001, 0.1), CONFIDENCE)
def test_one_process_leaves_what_it_cannot_know(
    found: Interval, spread: float, confidence: float
) -> None:
    exact = Interval(found.value, found.value, found.value)
    alone = over_processes([exact], spread, confidence)
    assert alone.high - alone.value == pytest.approx(between_share(spread, confidence))


def test_processes_that_differ_more_than_assumed_widen() -> None:
    alike = [Interval(1.0, 0.999, 1.001)] * 4
    apart = [Interval(v, v - 0.001, v + 0.001) for v in (0.97, 1.03, 0.97, 1.03)]
    one, other = (over_processes(found, 0.001, 0.999) for found in (alike, apart))
    assert other.high - other.low > 2 * (one.high - one.low)


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=8), st.floats(0.0, 0.1), CONFIDENCE)
def test_between_runs_more_is_open_than_between_processes(
    values: list[float], spread: float, confidence: float
) -> None:
    alone = between_runs(values, spread, 0.0, confidence)
    assert between_runs(values, spread, 0.05, confidence) > alone >= 0
    assert alone == pytest.approx(between_runs([v * 7 for v in values], spread, 0.0, confidence))
    assert between_runs([1.0] * 3, spread, 0.0, confidence) <= between_runs(
        [1.0, 1.0, 1.2], spread, 0.0, confidence
    )


def test_runs_with_two_speeds_are_seldom_told_apart() -> None:
    """Each process by chance at one of two speeds, a factor of three apart: one run is held for slower only
    where by chance all its processes are slow and all others fast, once in 64."""
    rng = random.Random(3)
    wrong = 0
    for _ in range(2000):
        one, other = ([rng.choice((1.0, 3.0)) for _ in range(3)] for _ in range(2))
        open_ = [between_runs(run, 0.012, 0.05, 0.999) for run in (one, other)]
        apart = statistics.fmean(map(math.log, one)) - statistics.fmean(map(math.log, other))
        wrong += apart - math.hypot(*open_) > math.log(1.05)
    assert wrong < 2000 / 64 * 1.5


def test_a_run_that_no_process_could_time_leaves_all_open() -> None:
    assert between_runs([0.0], 0.01, 0.05, 0.999) == math.inf


def test_processes_that_had_no_time_are_left_out() -> None:
    known, unknown = Interval(1.0, 0.999, 1.001), Interval(3.0, -math.inf, math.inf)
    assert over_processes([known, unknown], 0.001, 0.999) == over_processes([known], 0.001, 0.999)
    assert over_processes([unknown], 0.001, 0.999).high == math.inf


@pytest.mark.parametrize(
    ("level", "freedom", "quantile"),
    [(0.975, 30, 2.0423), (0.975, 37, 2.0262), (0.9999, 30, 4.2340), (0.9999, 60, 3.9621)],
)
def test_quantiles_are_those_of_tables(level: float, freedom: int, quantile: float) -> None:
    assert intervals.t_quantile(level, freedom) == pytest.approx(quantile, rel=0.005)


def test_looking_again_and_again_errs_no_more_than_promised() -> None:
    """Heavy-tailed values that depend on those before them, looked at 12 times as they come: how often is the
    true median outside at any look?"""
    rng = random.Random(1)
    wrong, trials, confidence = 0, 600, 0.5
    for _ in range(trials):
        values: list[float] = []
        before, look = 0.0, 25
        for _ in range(6):
            while len(values) < look:
                before = 0.3 * before + rng.gauss(0, 1) / max(0.1, rng.random())
                values.append(before)
            found = median_interval(values, confidence)
            if found is not None and not found.low <= 0 <= found.high:
                wrong += 1
                break
            look *= 2
    # One process of eight that takes half of its looks has a sixteenth of the error.
    assert wrong / trials <= (1 - confidence) / 16
