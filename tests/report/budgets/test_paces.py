"""What a comparison with a saved run says of the machine."""

from __future__ import annotations

from dataclasses import replace

from pytest_dispatchguard.model.measurements import Interval, Measurement, Pace
from pytest_dispatchguard.model.verdicts import Base, Verdict
from pytest_dispatchguard.report.budgets import paces
from pytest_dispatchguard.report.budgets.markdown import as_markdown
from pytest_dispatchguard.report.budgets.verdicts import explained
from pytest_dispatchguard.report.html.budgets import section

CHANGE = Interval(1.25, 1.0, 1.5)
PACE = Pace(Interval(1.06, 0.95, 1.2), {"tree": 1.06}, subject=CHANGE)
THEN = Base("then", {"instructions": 9}, change=CHANGE, earlier=True, pace=PACE)
MEASURED = Measurement(Interval(2.0, 1.9, 2.1), pairs=900, processes=3)


def compared(base: Base) -> Verdict:
    return Verdict(
        "t.py::t", "f", "undecided", {"instructions": 9}, measured=MEASURED, base=base, reason="why"
    )


def test_a_test_says_that_its_time_was_divided() -> None:
    told = (
        "control calls take 1.060 times what they took in then (0.950 to 1.200), which is of the machine "
        "alone; the subject's times are divided by it"
    )
    assert paces.of_base(THEN) == told
    assert f"\n  {told}" in explained(compared(THEN))
    assert f"\n  {told}" in as_markdown([compared(THEN)], {})
    by_ratio = replace(THEN, change=Interval(1.1, 1.0, 1.2))
    assert paces.of_base(by_ratio) == told.partition(";")[0]


def test_a_run_says_it_once() -> None:
    slower = replace(THEN, pace=replace(PACE, change=Interval(1.1, 1.0, 1.2)))
    of = [compared(THEN), compared(slower), compared(THEN)]
    (line,) = paces.of_run(of)
    assert line == (
        "control calls take 1.060 times (1.060 to 1.100 from test to test) what they took in then: that "
        "much is of the machine alone"
    )
    assert paces.of_run(of[:1]) == [
        "control calls take 1.060 times what they took in then: that much is of the machine alone"
    ]
    assert f"\n{line}\n" in as_markdown(of, {})
    assert f"<p>{line}</p>" in section(of, {})


def test_what_is_not_known_is_said() -> None:
    older = replace(THEN, pace=None, other=("Old CPU, now New CPU", "python 3.10, now python 3.11"))
    told = (
        "then has no control calls: how much of a difference in time is of the machine alone is not known "
        "(Old CPU, now New CPU, python 3.10, now python 3.11)"
    )
    assert paces.of_base(older) == told
    assert paces.of_run([compared(older)]) == [told]


def test_other_bases_have_no_pace() -> None:
    revision = replace(THEN, earlier=False, pace=None)
    assert paces.of_base(revision) == paces.of_base(None) == ""
    assert paces.of_run([compared(revision), replace(compared(revision), base=None)]) == []
    assert paces.of_base(replace(THEN, change=None)) == ""
