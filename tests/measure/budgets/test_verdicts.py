"""What checking guards may take, held against what it takes."""

from __future__ import annotations

import pytest

from pytest_dispatchguard.measure.budgets.verdicts import _by_guards
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.model.verdicts import Limit, Outcome

HERE = Interval(6.28, 6.25, 6.31)
UNFIT = "the machine is unfit: the reference compared with itself gives 1.0774"


@pytest.mark.parametrize(
    ("allowed", "bad", "outcome"),
    [
        (100.0, "", "pass"),
        (100.0, UNFIT, "pass"),
        (0.5, "", "fail"),
        (0.5, UNFIT, "undecided"),
        (6.0, "", "undecided"),
    ],
)
def test_times_of_an_unfit_machine_fail_nobody(allowed: float, bad: str, outcome: Outcome) -> None:
    found, told = _by_guards(Limit("guard_us", allowed), HERE, 0.999, bad)
    assert found == outcome
    assert bool(told) is (outcome != "pass")
    assert (bad in told) is bool(bad and outcome != "pass")


def test_guards_that_cannot_be_measured_are_told() -> None:
    with pytest.raises(UserError, match="guard_us cannot be measured"):
        _by_guards(Limit("guard_us", 1.0), None, 0.999, "")
