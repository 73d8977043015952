"""Findings, budgets and reviews that tests of what a review says are about."""

from __future__ import annotations

from pytest_dispatchguard.model.compiled import Guards
from pytest_dispatchguard.model.findings import Edit, Finding, Fix, Span
from pytest_dispatchguard.model.history import CounterMove
from pytest_dispatchguard.model.measurements import CostlyLine, Interval
from pytest_dispatchguard.model.reviews import BudgetChange, Remark, Review, Stretch
from pytest_dispatchguard.report.options import Options

TEXT = "def f(x):\n    y = g(\n        x\n    )\n    return y\n"
OPTIONS = Options(sources=lambda path: TEXT)


def finding(first: int, last: int, fix: Fix | None = None, message: str = "slow") -> Finding:
    return Finding(
        "DG601", "r", "a.py", Span(first, 5, last, 6), "f", message, fix=fix, source="y = g("
    )


def fixed(*edits: tuple[int, int, int, int, str]) -> Fix:
    return Fix("safe", "call h", tuple(Edit("a.py", Span(*e[:4]), e[4]) for e in edits))


def remark(found: Finding, first: int = 1, last: int = 5) -> Remark:
    return Remark(found, found.span.line, found.span.end_line, Stretch(first, last))


NOTHING = Review("main", (), (), ())
MOVED = BudgetChange(
    "tests/test_a.py::test_f[4|8]",
    "f",
    "fail",
    "instructions: 31, allowed 20",
    (CounterMove("instructions", 12, 31),),
    Interval(1.5, 1.4, 1.6),
    (CostlyLine("/p/a.py", 2, 30, "y = g(", 19), CostlyLine("/p/a.py", 5, 3, "return y", 0)),
    (Guards("EQUALS_MATCH", "L[0].a", "L[*].a", 50, "a.py:3 in f", "x * self.a", extra=48),),
)
