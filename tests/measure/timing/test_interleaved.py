"""Arms that take turns, on a clock of one's own: no test here knows how fast the machine is."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.measure.timing.interleaved import Arm, InterleavedTimes, time_interleaved


class Clock:
    """Time passes only where calls are made, and between rounds."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 50
        return self.now

    def arm(self, nanoseconds: int, fixed: int = 0, **settings: object) -> Arm:
        def block(times: Iterable[None]) -> int:
            took = fixed + sum(nanoseconds for _ in times)
            self.now += took
            return took

        return Arm(block, **settings)  # type: ignore[arg-type]  # as Arm has them


def test_differences_of_arms_are_found_and_add_up() -> None:
    clock = Clock()
    arms = {"whole": clock.arm(3000), "inside": clock.arm(1000), "core": clock.arm(400)}
    nothing = clock.arm(0).block
    arms = {name: Arm(arm.block, empty=nothing) for name, arm in arms.items()}
    found = time_interleaved(arms, seconds=0.05, clock=clock)
    assert found.us({"whole": 1, "inside": -1}).value == pytest.approx(2.0)
    assert found.us({"inside": 1, "core": -1}).value == pytest.approx(0.6)
    assert found.us({"whole": 1}).value == pytest.approx(3.0)


def test_what_a_block_costs_around_its_calls_is_taken_off() -> None:
    clock = Clock()
    bare = clock.arm(10, fixed=5000).block
    arms = {"loop": Arm(clock.arm(410, fixed=5000).block, empty=bare, least=50)}
    found = time_interleaved(arms, seconds=0.05, clock=clock)
    assert found.loops["loop"] >= 50
    assert found.us({"loop": 1}).value == pytest.approx(0.4)


def test_every_block_is_made_ready_and_stands_in_its_context() -> None:
    clock, said = Clock(), []

    @contextmanager
    def around():  # type: ignore[no-untyped-def]  # pytest's way
        said.append("in")
        yield
        said.append("out")

    arm = clock.arm(1000)

    def block(times: Iterable[None]) -> int:
        said.append("block")
        return arm.block(times)

    time_interleaved(
        {"one": Arm(block, around, lambda: said.append("fresh"))}, seconds=0.01, clock=clock
    )
    rounds = " ".join(said).split("fresh in block out")
    assert len(rounds) > 10
    assert all(part.strip() in ("", "in", "out") or "fresh block" in part for part in rounds)


def test_long_calls_have_as_many_rounds_as_an_interval_needs() -> None:
    clock = Clock()
    found = time_interleaved({"slow": clock.arm(5_000_000)}, seconds=0.1, clock=clock)
    assert found.rounds >= 60


def test_calls_of_seconds_do_not_take_for_ever() -> None:
    clock = Clock()
    found = time_interleaved({"slow": clock.arm(3_000_000_000)}, seconds=0.1, clock=clock)
    assert found.rounds <= 10
    assert found.us({"slow": 1}).high == float("inf")


@given(
    st.lists(st.tuples(st.floats(0.5, 20), st.floats(0.5, 20)), min_size=60, max_size=200),
    st.lists(st.floats(1, 8), min_size=200, max_size=200),
)
def test_parts_add_up_whatever_the_pace(
    parts: list[tuple[float, float]], pace: list[float]
) -> None:
    times = {
        "whole": [1000 * (a + b + 1) * p for (a, b), p in zip(parts, pace, strict=False)],
        "a": [1000 * a * p for (a, _), p in zip(parts, pace, strict=False)],
        "b": [1000 * b * p for (_, b), p in zip(parts, pace, strict=False)],
    }
    found = InterleavedTimes(times, 0.999)
    split = [{"whole": 1.0, "a": -1.0}, {"a": 1.0, "b": -1.0}, {"b": 1.0}]
    whole = found.us({"whole": 1.0}).value
    assert sum(found.us(part).value for part in split) == pytest.approx(whole)
    for part in split:
        interval = found.us(part)
        assert interval.low <= interval.value <= interval.high


def test_a_slow_stretch_changes_no_difference() -> None:
    steady = [1000.0] * 100
    slowed = {
        "whole": [3 * t * (3 if i < 50 else 1) for i, t in enumerate(steady)],
        "inside": [t * (3 if i < 50 else 1) for i, t in enumerate(steady)],
    }
    found = InterleavedTimes(slowed, 0.999)
    share = found.us({"whole": 1, "inside": -1}).value / found.us({"whole": 1}).value
    assert share == pytest.approx(2 / 3)


def test_intervals_hold_for_other_processes_and_thin_differences_are_surer() -> None:
    times = {"whole": [3000.0] * 100, "inside": [2900.0] * 100, "core": [1000.0] * 100}
    found = InterleavedTimes(times, 0.999)
    thin, thick = (found.us({"whole": 1, other: -1}) for other in ("inside", "core"))
    assert 0.01 < thin.value - thin.low < 0.1, "rounds agree to the last digit, processes never do"
    assert thick.value - thick.low > 2 * (thin.value - thin.low)
    assert found.us({}).high == 0


@given(st.floats(0.1, 1e4), st.floats(0, 1e4), st.floats(0.01, 100))
def test_intervals_grow_with_what_they_are_of(whole: float, inside: float, unit: float) -> None:
    def width(scale: float) -> float:
        times = {"whole": [whole * scale] * 60, "inside": [inside * scale] * 60}
        found = InterleavedTimes(times, 0.999).us({"whole": 1, "inside": -1})
        return found.high - found.low

    assert width(unit) == pytest.approx(unit * width(1.0), abs=1e-9)
