"""From samples to figures, what they say of limits, and how often verdicts are wrong."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.measure.budgets import verdicts
from pytest_dispatchguard.measure.budgets.verdicts import Timing
from pytest_dispatchguard.measure.timing import timing
from pytest_dispatchguard.measure.timing.intervals import PROCESSES
from pytest_dispatchguard.measure.timing.measurements import (
    figure,
    kept,
    measurement,
    spread,
    telling,
    unfit,
)
from pytest_dispatchguard.measure.timing.subject import Subject
from pytest_dispatchguard.measure.timing.timing import Sample
from pytest_dispatchguard.measure.workers.sources import Options, share
from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.model.verdicts import Limit

if TYPE_CHECKING:
    from conftest import World

RATIO = st.floats(0.2, 20)
WIDTH = st.floats(0, 0.05)


def around(value: float, share: float) -> Interval:
    return Interval(value, value * (1 - share), value * (1 + share))


def taken(
    ratio: float = 1.0,
    wide: float = 0.001,
    control: float = 1.0,
    pairs: int = 1000,
    grows: float = 0.0,
) -> Sample:
    """What a process may say of a reference of 2 us."""
    return Sample(
        around(2 * ratio, wide),
        around(2, wide),
        around(ratio, wide),
        around(2 * ratio - 2, wide),
        control,
        pairs,
        (10, 10),
        grows,
        ((), ()),
    )


def alone(wide: float = 0.001) -> Sample:
    """What a process may say of a subject without a reference."""
    return Sample(around(2, wide), None, None, None, 1.0, 1000, (10, 10), 0.0, ((), ()))


@given(st.floats(0.1, 10), st.floats(0, 1), st.floats(0, 1), st.floats(0, 10), st.floats(0, 1))
def test_a_limit_is_kept_or_broken_never_both(
    value: float, below: float, above: float, limit: float, tolerance: float
) -> None:
    found = Interval(value, value - below, value + above)
    allowed = Limit("ratio", limit, tolerance)
    says = kept(allowed, found)
    if says is True:
        assert value <= allowed.most
    elif says is False:
        assert value > allowed.most
    else:
        assert found.low <= allowed.most < found.high


@given(RATIO, WIDTH, st.floats(0.5, 30), st.floats(0.5, 30))
def test_a_looser_limit_is_never_worse_kept(ratio: float, wide: float, a: float, b: float) -> None:
    found = around(ratio, wide)
    order = {False: 0, None: 1, True: 2}
    tight, loose = (order[kept(Limit("ratio", most), found)] for most in sorted((a, b)))
    assert tight <= loose


def test_just_at_the_limit_is_kept() -> None:
    assert kept(Limit("ratio", 1.5), Interval(1.5, 1.5, 1.5)) is True


@given(st.lists(st.tuples(RATIO, WIDTH), min_size=1, max_size=8), st.floats(0.9, 0.9999))
def test_a_measurement_is_of_all_processes(
    found: list[tuple[float, float]], confidence: float
) -> None:
    samples = [taken(ratio, wide) for ratio, wide in found]
    together = measurement(samples, confidence)
    assert together.processes == len(samples)
    assert together.pairs == 1000 * len(samples)
    for name in ("ratio", "extra_us", "host_us"):
        interval = figure(together, name)
        assert interval is not None
        assert interval.low <= interval.value <= interval.high
    assert figure(together, "device_us") is None


@given(st.integers(2, 8), RATIO, WIDTH, st.randoms())
def test_order_of_samples_does_not_matter(
    count: int, ratio: float, wide: float, rng: object
) -> None:
    samples = [taken(ratio * (1 + i / 1000), wide) for i in range(count)]
    one, other = (measurement(each, 0.999).ratio for each in (samples, samples[::-1]))
    assert one is not None and other is not None
    assert one.value == pytest.approx(other.value)
    assert one.high - one.low == pytest.approx(other.high - other.low)


def test_a_measurement_tells_the_worst_growth_and_the_mean_control() -> None:
    together = measurement([taken(control=1.0, pairs=300), taken(control=1.01, grows=0.2)], 0.999)
    assert together.grows == 0.2
    assert together.control == pytest.approx((300 * 1 + 1000 * 1.01) / 1300)


def test_without_a_reference_there_are_times_alone() -> None:
    together = measurement([alone(), alone()], 0.999)
    assert together.ratio is together.extra_us is together.reference_us is None
    assert together.subject_us.value == 2


@given(RATIO, RATIO)
def test_spread_grows_with_how_unlike_the_sides_are(a: float, b: float) -> None:
    near, far = sorted((a, b), key=lambda ratio: abs(1 - 1 / ratio))
    assert spread(near, 1.0) / near <= spread(far, 1.0) / far + 1e-12
    assert 0.001 <= spread(a, 1.0) / a <= 0.0121
    assert spread(a, 0.02) > spread(a, 1.0)


@pytest.mark.parametrize(
    ("control", "fit"), [(1.0, True), (1.004, True), (1.006, False), (0.99, False)]
)
def test_a_reference_unlike_itself_makes_a_machine_unfit(control: float, fit: bool) -> None:
    said = unfit(measurement([taken(control=control)], 0.999))
    assert bool(said) is not fit
    assert fit or f"{control:.4f}" in said


def test_wide_blocks_want_more_of_them_and_narrow_ones_other_processes() -> None:
    assert telling(taken(wide=0.05), 0.999) == "more blocks"
    assert telling(taken(wide=0.0005), 0.999) == "more processes"
    assert telling(alone(wide=0.01), 0.999) == "more processes"


def test_later_processes_measure_longer_and_the_last_to_the_end() -> None:
    between = taken(wide=0.003)
    assert telling(between, 0.999, before=0) == "more processes"
    assert telling(between, 0.999, before=PROCESSES - 2) == "more blocks"
    assert telling(taken(wide=1e-6), 0.999, before=PROCESSES - 1) == "more blocks"


# -- how often verdicts are wrong ---------------------------------------------------------------------


def verdict(world: World, ratio: float, limit: float, confidence: float) -> tuple[str, int]:
    """One verdict as a run finds it: processes one after another, each with an effect of its own on what the
    subject takes, a pace that drifts under both, noise of heavy tails, and interruptions."""
    rng = world.rng
    samples: list[Sample] = []
    left, pace = Options().seconds, 1.0
    limits = [Limit("ratio", limit)]

    def nanoseconds(factor: float) -> float:
        nonlocal pace
        pace = min(2.0, max(1.0, pace + rng.uniform(-0.003, 0.003)))
        # Student's t with two degrees of freedom, and one block in 50 takes ten times as long.
        tail = rng.gauss(0, 1) / max(0.05, rng.expovariate(1)) ** 0.5
        spike = 10 if rng.random() < 0.02 else 1
        return 4e6 * factor * pace * spike * max(0.5, 1 + 0.002 * tail)

    while True:
        costs = ratio * rng.gauss(1, 0.001)
        subject = Subject(world.call(partial(nanoseconds, costs)), "subject")
        subject.reference = world.call(partial(nanoseconds, 1.0))
        start = world.now
        timed = Timing(share(left), confidence, samples)
        samples = [*samples, verdicts._taken(subject, limits, timed)]
        left -= (world.now - start) / 1e9 + 0.1
        said, _ = verdicts._by_time(limits, measurement(samples, confidence))
        if said != "undecided" or len(samples) == PROCESSES or left < 0.3:
            return said, len(samples)


@pytest.fixture
def simulated(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    def sample(*args: object, **kwargs: object) -> Sample:
        return timing.sample(*args, **kwargs, clock=world.clock)  # type: ignore[arg-type]  # handed on

    monkeypatch.setattr(verdicts, "sample", sample)
    return world


def test_false_alarms_are_no_more_than_promised(simulated: World) -> None:
    """What costs just what is allowed is the hardest case: each verdict `fail` is wrong. The confidence is
    low, so that errors can be counted: were nothing set aside for looking again and again, 11% would fail."""
    simulated.rng.seed(1)
    confidence, trials = 0.8, 150
    said = Counter(verdict(simulated, 1.02, 1.02, confidence)[0] for _ in range(trials))
    assert said["fail"] <= (1 - confidence) / 4 * trials
    assert said["pass"] <= (1 - confidence) / 4 * trials


def test_a_slowdown_of_one_percent_is_found(simulated: World) -> None:
    simulated.rng.seed(3)
    found = Counter(verdict(simulated, 1.01, 1.003, 0.999)[0] for _ in range(30))
    assert found == {"fail": 30}


def test_what_has_not_changed_passes(simulated: World) -> None:
    simulated.rng.seed(4)
    found = Counter(verdict(simulated, 1.0, 1.007, 0.999)[0] for _ in range(30))
    assert found == {"pass": 30}


def test_what_is_plain_takes_one_process(simulated: World) -> None:
    simulated.rng.seed(5)
    assert {verdict(simulated, ratio, 2.0, 0.999) for ratio in (1.1, 1.5, 1.8)} == {("pass", 1)}
    assert {verdict(simulated, ratio, 1.5, 0.999) for ratio in (1.8, 2.0, 2.5)} == {("fail", 1)}
