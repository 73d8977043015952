"""What pairs of workers found, and what is told where one of them broke."""

from __future__ import annotations

import pytest

from pytest_dispatchguard.measure.timing.timing import Sample
from pytest_dispatchguard.measure.workers.lockstep import Paired
from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.model.verdicts import Base, Verdict

VERDICT, BASE = Verdict("t.py::t", "f", "pass", {}), Base("HEAD", {})


def found(pairs: int, broken: str = "", *, here: bool = False) -> Paired:
    took, change = Interval(2.0, 1.9, 2.1), Interval(1.0, 0.999, 1.001)
    sample = Sample(took, None, None, None, 1.0, 9, (1, 1), 0.0, ((), ()), change=change)
    return Paired({"f": [sample] * pairs}, {"f": [sample] * pairs}, 1.0, pairs, broken, here=here)


@pytest.mark.parametrize("broken", ["", "the worker was killed by SIGKILL"])
def test_what_was_found_before_a_worker_broke_counts(broken: str) -> None:
    told = found(4, broken).told_of(VERDICT, BASE, 0.999)
    assert told.untimed == ""
    assert told.change is not None and 0.9 < told.change.low < 1 < told.change.high < 1.1


@pytest.mark.parametrize(("here", "place"), [(True, "in the work tree, "), (False, "")])
def test_too_few_pairs_say_what_broke(*, here: bool, place: str) -> None:
    told = found(1, "the worker was killed by SIGKILL", here=here).told_of(VERDICT, BASE, 0.999)
    assert told.change is None
    assert told.untimed == f"{place}the worker was killed by SIGKILL"


def test_nothing_timed_is_told() -> None:
    assert Paired().told_of(VERDICT, BASE, 0.999).untimed == "it was not timed"
