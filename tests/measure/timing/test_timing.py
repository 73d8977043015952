"""Blocks of calls that take turns, by a clock that only calls move."""

from __future__ import annotations

import gc
import math
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dispatchguard.measure.timing import timing
from pytest_dispatchguard.measure.timing.calling import Call
from pytest_dispatchguard.measure.timing.timing import Sample, sample

if TYPE_CHECKING:
    from conftest import World


def measured(
    world: World, subject: Call, reference: Call | None, seconds: float = 1.0, **kwargs: Any
) -> Sample:
    return sample(
        subject,
        reference,
        enough=kwargs.pop("enough", lambda found: False),
        seconds=seconds,
        confidence=0.999,
        clock=world.clock,
        **kwargs,
    )


def noisy(world: World, nanoseconds: float) -> Call:
    return world.call(lambda: nanoseconds * world.rng.uniform(0.98, 1.04))


def test_exact_calls_have_exact_figures(world: World) -> None:
    found = measured(world, world.call(lambda: 3000), world.call(lambda: 2000), 0.2)
    assert found.ratio is not None and found.reference_us is not None
    assert (found.ratio.value, found.ratio.low, found.ratio.high) == (1.5, 1.5, 1.5)
    assert found.subject_us.value == 3
    assert found.reference_us.value == 2
    assert found.extra_us is not None and found.extra_us.value == 1
    assert found.control == 1
    assert found.grows == 0


@pytest.mark.parametrize(("one", "other"), [(1500, 1500), (1500, 4000), (9000, 1000), (700, 6500)])
def test_blocks_of_both_have_the_same_number_of_calls(world: World, one: int, other: int) -> None:
    """Else the first call of a block, a dear one, would weigh differently in both."""
    found = measured(world, noisy(world, one), noisy(world, other), 0.2)
    assert found.loops[0] == found.loops[1]
    assert found.loops[0] * min(one, other) == pytest.approx(20_000, rel=0.3)


def test_a_dear_first_call_moves_no_ratio(world: World) -> None:
    """Calls of the same function, and whoever comes first in its block pays for it."""
    last = {"when": -1, "who": ""}

    def cold(who: str) -> Call:
        def nanoseconds() -> float:
            first = last["who"] != who or last["when"] != world.now
            last["who"] = who
            took = 3000 * world.rng.uniform(0.99, 1.01) + (1400 if first else 0)
            last["when"] = world.now + round(took)
            return round(took)

        return world.call(nanoseconds)

    found = measured(world, cold("subject"), cold("reference"), 0.3)
    assert found.ratio is not None
    assert found.ratio.value == pytest.approx(1, abs=0.003)


def test_far_apart_calls_have_blocks_of_their_own(world: World) -> None:
    found = measured(world, noisy(world, 400_000), noisy(world, 1000), 0.5)
    assert found.loops[0] == 1
    assert found.loops[1] == pytest.approx(20, abs=2)


def test_a_slow_call_is_not_made_often(world: World) -> None:
    made = []

    def slow() -> float:
        made.append(1)
        return 2e9

    found = measured(world, world.call(slow), world.call(lambda: 1e9), 5.0)
    assert len(made) < 10
    assert found.ratio is not None and found.ratio.value == 2
    assert math.isinf(found.ratio.high)  # so few pairs tell nothing


def test_it_stops_when_it_knows_enough(world: World) -> None:
    looks: list[int] = []

    def enough(found: Sample) -> bool:
        looks.append(found.pairs)
        return len(looks) == 3

    found = measured(world, noisy(world, 1500), noisy(world, 1500), 60.0, enough=enough)
    assert found.pairs == looks[-1]
    assert looks[2] >= 2 * looks[0]
    assert world.now < 2e9


def test_it_stops_when_time_is_up(world: World) -> None:
    found = measured(world, noisy(world, 50_000), noisy(world, 50_000), 0.5)
    assert 0.5e9 <= world.now < 0.6e9
    assert found.pairs > 1000


def test_looks_are_few_however_long_it_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "LOOKS", 5)
    looks = []

    def enough(found: Sample) -> bool:
        looks.append(found)
        return False

    measured(world, noisy(world, 1e7), noisy(world, 1e7), 1e9, enough=enough)
    assert 2 <= len(looks) <= 4  # and the last, at which it stops


def test_interruptions_and_drift_hardly_move_the_ratio(world: World) -> None:
    pace = {"now": 1.0}

    def call(nanoseconds: float) -> Call:
        def took() -> float:
            pace["now"] = min(3, max(1, pace["now"] + world.rng.uniform(-0.02, 0.02)))
            spike = 10 if world.rng.random() < 0.02 else 1
            return nanoseconds * pace["now"] * spike * world.rng.uniform(0.99, 1.01)

        return world.call(took)

    found = measured(world, call(51_000), call(50_000), 2.0)
    assert found.ratio is not None
    assert found.ratio.low < 1.02 < found.ratio.high
    assert found.ratio.value == pytest.approx(1.02, abs=0.005)


def test_a_subject_that_gets_slower_is_told(world: World) -> None:
    calls = {"made": 0}

    def slower() -> float:
        calls["made"] += 1
        return 20_000 + calls["made"] * 2

    found = measured(world, world.call(slower), noisy(world, 20_000), 0.5)
    assert found.grows > 0.2


def test_a_machine_that_gets_slower_is_no_growth(world: World) -> None:
    def slower() -> float:
        return (20_000 + world.now / 50_000) * world.rng.uniform(0.99, 1.01)

    assert measured(world, world.call(slower), world.call(slower), 0.5).grows == 0


def test_a_step_on_the_way_is_no_growth(world: World) -> None:
    """The load of the machine changed, and the subject feels it more than its reference."""
    start = world.now

    def felt() -> float:
        dearer = 1.12 if world.now - start > 150_000_000 else 1.0
        return 20_000 * dearer * world.rng.uniform(0.99, 1.01)

    assert measured(world, world.call(felt), noisy(world, 20_000), 0.5).grows == 0


def test_without_a_reference_there_is_no_ratio(world: World) -> None:
    found = measured(world, noisy(world, 1500), None, 0.2)
    assert found.ratio is found.extra_us is found.reference_us is None
    assert found.subject_us.value == pytest.approx(1.515, rel=0.01)


def test_what_a_block_needs_is_made_before_each_and_not_timed(world: World) -> None:
    state = {"fresh": False}

    def prepare() -> None:
        state["fresh"] = True
        world.now += 1_000_000

    def uses() -> float:
        assert state["fresh"]
        return 50_000

    def once() -> float:
        state["fresh"] = False
        return 50_000

    found = measured(world, world.call(uses), world.call(once), 0.3, prepare=prepare)
    assert found.ratio is not None and found.ratio.value == 1


def test_a_device_is_waited_for_outside_of_blocks(world: World) -> None:
    class Slow:
        """Works on after a call has returned, for much longer."""

        name = "slow"
        most_calls = 8
        block_ns = 20_000
        queue = None
        queued = 0
        longest = 0

        def wait(self) -> None:
            self.longest = max(self.longest, self.queued)
            world.now += 100_000 * self.queued
            self.queued = 0

    device = Slow()

    def launch() -> float:
        device.queued += 1
        return 1000

    found = measured(world, world.call(launch), world.call(launch), 0.3, device=device)
    assert found.subject_us.value == 1
    assert found.loops == (8, 8)
    assert device.longest == 8


def test_collector_and_tracers_are_off_and_come_back(world: World) -> None:
    seen = set()

    def look() -> float:
        seen.add((gc.isenabled(), sys.gettrace(), sys.getprofile()))
        return 50_000

    def tracer(*_: object) -> None: ...

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        measured(world, world.call(look), None, 0.05)
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)
    assert seen == {(False, None, None)}
    assert gc.isenabled()


def test_files_get_some_of_the_values(world: World) -> None:
    found = measured(world, noisy(world, 20_000), noisy(world, 20_000), 1.0)
    assert 100 <= len(found.values[0]) == len(found.values[1]) <= 200
