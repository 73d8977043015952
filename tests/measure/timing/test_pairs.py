"""What pairs of processes say together: not moved by one in a slow state, and nothing told of few."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.measure.timing.pairs import (
    LEAST_PAIRS,
    MOST_PAIRS,
    over_pairs,
    pairs_share,
)
from pytest_dispatchguard.model.measurements import Interval

CHANGES = st.lists(st.floats(0.5, 2.0), min_size=LEAST_PAIRS, max_size=12)


def around(value: float, wide: float = 0.002) -> Interval:
    return Interval(value, value * (1 - wide), value * (1 + wide))


@pytest.mark.parametrize("number", range(1, LEAST_PAIRS))
def test_few_pairs_tell_no_ends(number: int) -> None:
    told = over_pairs([around(1.3)] * number, 0.999)
    assert told.value == pytest.approx(1.3)
    assert (told.low, told.high) == (0.0, math.inf)


def test_one_in_a_slow_state_hardly_moves_the_others() -> None:
    usual = [around(1 + off) for off in (0.002, -0.003, 0.001, -0.001, 0.003)]
    told = over_pairs([*usual, around(1.27)], 0.999)
    assert told.value == pytest.approx(1.002, abs=0.002)
    assert told.low < 1 < told.high < 1.02


def test_pairs_that_agree_on_a_change_are_believed() -> None:
    told = over_pairs([around(1.27), around(1.25), around(1.28)], 0.999)
    assert 1.2 < told.low < told.value < told.high


def test_more_pairs_say_more() -> None:
    few, many = (over_pairs([around(1.01)] * number, 0.999) for number in (3, 12))
    assert many.high - many.low < few.high - few.low < 2 * pairs_share(0.999)


@given(CHANGES)
def test_the_value_lies_among_those_seen(changes: list[float]) -> None:
    told = over_pairs(list(map(around, changes)), 0.999)
    assert min(changes) * 0.999 <= told.value <= max(changes) * 1.001
    assert told.low <= told.value <= told.high


@given(CHANGES)
def test_the_other_way_round_is_the_inverse(changes: list[float]) -> None:
    told = over_pairs(list(map(around, changes)), 0.999)
    back = over_pairs([around(1 / change) for change in changes], 0.999)
    assert back.value == pytest.approx(1 / told.value, rel=1e-6)


def test_the_same_code_is_hardly_ever_told_apart() -> None:
    """Pairs as they were seen: half a percent apart, one in fifty far off; looked at as they come."""
    chance = random.Random(5)
    wrong = 0
    for _ in range(2000):
        changes: list[Interval] = []
        while len(changes) < MOST_PAIRS:
            off = chance.gauss(0, 0.005) + (0.2 * chance.random() if chance.random() < 0.02 else 0)
            changes.append(around(math.exp(off)))
            told = over_pairs(changes, 0.999)
            if told.low > 1.01 or told.high < 0.99:
                wrong += 1
                break
    assert wrong <= 4
