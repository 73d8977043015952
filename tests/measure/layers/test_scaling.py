"""A fixed part and a slope, from times over sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.measure.layers.layers import Wanted
from pytest_dispatchguard.measure.layers.scaling import fitted, scaling
from pytest_dispatchguard.measure.timing.calling import Call
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.measurements import Interval, Sized


def exactly(us: float) -> Interval:
    return Interval(us, us, us)


@given(
    fixed=st.floats(0.5, 50),
    share=st.floats(0.01, 100),
    power=st.integers(5, 70).map(lambda n: n / 20),
)
def test_a_fixed_part_and_a_slope_are_found_again(fixed: float, share: float, power: float) -> None:
    slope = fixed * share / 1000**power
    sizes = [
        Sized(n, exactly(fixed + slope * n**power), exactly(slope * n**power))
        for n in (1, 10, 100, 1000, 10_000)
    ]
    found = fitted("f", sizes)
    if found.fixed_us is None:
        assert sizes[-1].whole_us.value < 1.2 * sizes[0].whole_us.value
        return
    assert found.error < 0.02
    assert found.fixed_us == pytest.approx(fixed, rel=0.1)
    if found.dominates is not None:
        at = found.dominates
        below = max((s.size for s in sizes if s.overhead and s.overhead > 0.5), default=1)
        above = min(s.size for s in sizes if s.overhead is not None and s.overhead <= 0.5)
        assert below <= at <= above


def test_what_does_not_grow_has_no_slope() -> None:
    found = fitted("f", [Sized(n, exactly(2.0), exactly(0.1)) for n in (1, 10, 100)])
    assert (found.fixed_us, found.dominates) == (None, None)


def test_kernels_may_take_more_from_the_first_size_on() -> None:
    found = fitted("f", [Sized(n, exactly(10.0 * n), exactly(8.0 * n)) for n in (1, 10, 100)])
    assert found.dominates == 1.0


def test_kernels_that_cannot_be_told_apart_dominate_nowhere() -> None:
    found = fitted("f", [Sized(n, exactly(1.0 + n)) for n in (1, 10, 100)])
    assert found.dominates is None
    assert found.fixed_us is not None


def test_too_few_sizes_are_refused() -> None:
    with pytest.raises(UserError, match="3 sizes at least"):
        scaling("f", [1, 1, 2], lambda size: (Wanted(Call(len, ("",)), "f"), None))


def test_a_call_and_its_reference_are_measured_at_every_size() -> None:
    def made(size: int) -> tuple[Wanted, Call]:
        return Wanted(Call(sum, (range(size),)), "sum", 0.05), Call(sum, (range(size),))

    found = scaling("sum", [1000, 10, 100], made)
    assert [one.size for one in found.sizes] == [10, 100, 1000]
    for one in found.sizes:
        assert one.ratio is not None and one.ratio.low < 1.5 and one.ratio.high > 0.5
