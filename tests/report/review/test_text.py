"""A review at a terminal: what is new as a check shows it, what is gone, budgets, and the totals last."""

from __future__ import annotations

from dataclasses import replace

from pytest_dispatchguard.model.findings import Hot, Price
from pytest_dispatchguard.model.reviews import Review
from pytest_dispatchguard.report.options import Options
from pytest_dispatchguard.report.review.text import render

from .made import MOVED, NOTHING, OPTIONS, finding, fixed, remark


def test_a_review_shows_findings_as_a_check_does() -> None:
    new = replace(
        finding(2, 2, fixed((2, 9, 2, 11, "h("))),
        hot=Hot("m.N.forward", ("m.N.forward",), "forward of a torch.nn.Module"),
        price=Price(14.0, machine="EPYC"),
    )
    gone = replace(finding(5, 5), price=Price(2.0, machine="EPYC"))
    review = Review("main", (remark(new),), (finding(1, 1),), (gone,), (MOVED,), kept=2)
    assert render(review, OPTIONS).splitlines() == [
        "a.py:2:5 DG601[*] slow",
        "  hot: forward of a torch.nn.Module: m.N.forward",
        "  ≈ 14 µs per call on EPYC",
        "  2 |     y = g(",
        "    |     ^",
        "  fix: call h",
        "  2 -     y = g(",
        "  2 +     y = h(",
        "",
        "On lines outside of the change:",
        "",
        "a.py:1:5 DG601 slow",
        "  1 | def f(x):",
        "    |     ^",
        "",
        "Resolved:",
        "  a.py:5:5 DG601 in f: ≈ 2.0 µs per call on EPYC",
        "",
        "Budgets:",
        "  tests/test_a.py::test_f[4|8] (f) fail  instructions 12 → 31, 1.500 times the time",
        "    instructions: 31, allowed 20",
        "    +19 instructions at /p/a.py:2: y = g(",
        "    +48 guards EQUALS_MATCH of L[*].a at a.py:3 in f: x * self.a",
        "  2 budgets more unchanged",
        "",
        "2 new findings, 1 gone, 1 over budget (compared with main)",
        "What the new lines cost in a call of each root:",
        "  m.N.forward: ≈ 14 µs (1 finding)",
    ]


def test_nothing_new_is_one_line() -> None:
    assert render(NOTHING, OPTIONS) == "nothing new (compared with main)\n"
    noted = replace(NOTHING, budgets=(), notes=("a note",))
    assert render(noted, OPTIONS).splitlines() == [
        "Budgets:",
        "  none",
        "",
        "nothing new, every budget unchanged (compared with main)",
        "note: a note",
    ]


def test_many_that_are_gone_are_not_all_listed() -> None:
    lines = render(replace(NOTHING, fixed=(finding(1, 1),) * 25), OPTIONS).splitlines()
    assert sum("DG601" in line for line in lines) == 20
    assert "  … and 5 more" in lines


def test_in_color_it_says_the_same() -> None:
    review = Review("main", (remark(finding(2, 4)),), (), ())
    colored = render(review, Options(color=True, sources=OPTIONS.sources))
    assert "\x1b[" in colored
    assert "a.py" in colored
