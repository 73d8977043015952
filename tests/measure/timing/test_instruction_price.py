"""What an instruction takes: of every kind of code, and scaled to a number of them."""

from __future__ import annotations

import pytest

from pytest_dispatchguard.measure.timing import instruction_price
from pytest_dispatchguard.model.measurements import Interval


def test_an_instruction_takes_nanoseconds() -> None:
    price = instruction_price.instruction_ns()
    assert 0.05 < price.low <= price.value <= price.high < 5000
    assert instruction_price.instruction_ns() is price, "measured once"


def test_kinds_of_code_differ() -> None:
    price = instruction_price.instruction_ns()
    assert price.low < price.high


@pytest.mark.parametrize("number", [100, -100, 0])
def test_so_many_instructions_take_as_many_times_that(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instruction_price, "instruction_ns", lambda: Interval(5, 2, 10))
    ends = sorted((number * 0.002, number * 0.01))
    assert instruction_price.implied_us(number) == Interval(number * 0.005, *ends)
