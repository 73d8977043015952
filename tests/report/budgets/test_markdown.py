"""Verdicts as Markdown: a table that stays one, whatever names hold, and explanations as they are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.model.measurements import Interval, Measurement
from pytest_dispatchguard.model.verdicts import Limit, Verdict
from pytest_dispatchguard.report.budgets.markdown import as_markdown

MEASURED = Measurement(
    Interval(2.0, 1.9, 2.1),
    Interval(1.0, 0.9, 1.1),
    Interval(2.0, 1.98, 2.02),
    pairs=200,
    processes=1,
)
FAIL = Verdict(
    "t.py::test_a[x|y]",
    "f",
    "fail",
    {"instructions": 9},
    (Limit("ratio", 1.5),),
    "ratio: 2.000 (1.980 to 2.020), allowed 1.5",
    measured=MEASURED,
)
PASS = Verdict("t.py::test_b", "g", "pass", {"instructions": 3}, measured=MEASURED)


def test_a_failure_is_explained_under_the_table() -> None:
    text = as_markdown([PASS, FAIL], {"python": "3.12.1", "torch": "2.13.0"})
    lines = text.splitlines()
    assert lines[0] == "### Overhead budgets: 1 pass, 1 fail"
    rows = [line for line in lines if line.startswith("|")]
    assert "❌ fail" in rows[2] and "✅ pass" in rows[3]
    assert "ratio: 2.000 (1.980 to 2.020), allowed 1.5" in text.partition("```text")[2]


def test_without_verdicts_it_says_so() -> None:
    assert as_markdown([], {"python": "3.12.1"}).startswith("### Overhead budgets: none\n")


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_names_do_not_break_the_table(name: str) -> None:
    text = as_markdown([Verdict(name, name, "pass", {"instructions": 1})], {})
    rows = [line for line in text.split("\n") if line.startswith("|")]
    assert len(rows) == 3
    bare = [row.replace("\\|", "") for row in rows]
    assert len({row.count("|") for row in bare}) == 1


def test_a_fence_in_the_text_does_not_end_it() -> None:
    verdict = Verdict("t.py::t", "f", "error", {}, reason="``` \nmore")
    assert "````text" in as_markdown([verdict], {})
