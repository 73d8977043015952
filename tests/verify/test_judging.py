"""What counts as a gain, and what as dearer."""

from __future__ import annotations

import pytest

from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.model.reviews import Gain
from pytest_dispatchguard.verify.judging import against

FASTER, SLOWER, SAME = Interval(0.9, 0.8, 0.95), Interval(1.1, 1.05, 1.2), Interval(1, 0.9, 1.1)
CHEAP, DEAR, NOT = "", "dearer", "not measurably cheaper"


def gain(change: Interval | None = SAME, **moved: int) -> Gain:
    """A call of which counters move by so much."""
    return Gain(
        "f", dict.fromkeys(moved, 10), {k: 10 + v for k, v in moved.items()}, (), 5.0, change
    )


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (gain(instructions=-1), CHEAP),
        (gain(dispatches=-1), CHEAP),
        (gain(syncs=-1), CHEAP),
        (gain(FASTER), CHEAP),
        (gain(FASTER, instructions=3), CHEAP),
        (gain(syncs=-1, dispatches=1, instructions=4), CHEAP),
        (gain(instructions=0), NOT),
        (gain(None), NOT),
        (gain(py_calls=-4), NOT),
        (gain(instructions=1), DEAR),
        (gain(instructions=-9, dispatches=1), DEAR),
        (gain(SLOWER, instructions=-9), DEAR),
        # A few microseconds here, for a wait that takes longer on a device.
        (gain(SLOWER, syncs=-1), CHEAP),
        (gain(Interval(9.0, 8.0, 10.0), syncs=-1), DEAR),
        (gain(FASTER, syncs=1), DEAR),
    ],
)
def test_one_call(found: Gain, verdict: str) -> None:
    assert against([found]) == verdict


def test_counters_that_vary_prove_nothing() -> None:
    found = Gain("f", {"instructions": 10}, {"instructions": 5}, ("instructions",), 5.0, SAME)
    assert against([found]) == NOT


def test_of_several_calls_none_may_be_dearer() -> None:
    assert against([gain(instructions=-1), gain(instructions=0)]) == CHEAP
    assert against([gain(instructions=-1), gain(instructions=1)]) == "dearer: f: instructions"
