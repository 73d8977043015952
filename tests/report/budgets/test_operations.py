"""The table of operations by line, in every format that shows it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from pytest_dispatchguard.model.operations import OperationsAt, together
from pytest_dispatchguard.model.reports import Report
from pytest_dispatchguard.report import FORMATS, render

LINES = (
    OperationsAt(
        "a.py", 3, "Gate.forward", 4, {"mul": 8, "add": 4}, ("first remark", "second | *")
    ),
    OperationsAt("long/name.py", 12, "", 1, {"zeros": 1}),
    OperationsAt("b.py", 7, "f", 3, {"exp": 1}),
)


def test_text(report_of: Callable[..., Report]) -> None:
    text = render(replace(report_of(), operations=LINES), "text")
    assert text.split("\n", 2)[2] == (
        "14 operations from 3 lines of the project\n"
        "  per call  calls  place            function      operations\n"
        "         3      4  a.py:3           Gate.forward  mul 2, add\n"
        "                   first remark\n"
        "                   second | *\n"
        "         1      1  long/name.py:12  the module    zeros\n"
        "      0.33      3  b.py:7           f             exp 0.33\n"
    )


def test_json_tells_all(report_of: Callable[..., Report]) -> None:
    many = tuple(OperationsAt("a.py", line, "f", 1, {"add": 1}) for line in range(1, 41))
    assert "operations" not in json.loads(render(report_of(), "json"))
    told = json.loads(render(replace(report_of(), operations=many), "json"))["operations"]
    assert len(told) == 40
    assert told[0] == {
        "path": "a.py",
        "line": 1,
        "function": "f",
        "calls": 1,
        "operations": {"add": 1},
        "remarks": [],
    }
    text = render(replace(report_of(), operations=many), "text")
    assert text.endswith("\n  … and 15 lines more: --format json lists all\n")
    assert "a.py:25 " in text and "a.py:26 " not in text


def test_markdown_escapes_what_it_quotes(report_of: Callable[..., Report]) -> None:
    text = render(replace(report_of(), operations=LINES), "markdown")
    assert (
        "| 3 | 4 | `a.py:3` | `Gate.forward` | mul 2, add<br>first remark<br>second \\| \\* |"
        in text
    )


def test_the_other_formats_say_nothing_of_it(report_of: Callable[..., Report]) -> None:
    for name in set(FORMATS) - {"text", "json", "markdown", "html"}:
        assert render(replace(report_of(), operations=LINES), name) == render(report_of(), name)


def test_what_several_saw_of_one_line_is_one() -> None:
    first, other, last = LINES
    again = replace(
        first, calls=2, operations={"add": 2, "neg": 30}, seen=("third", "first remark")
    )
    joined, *rest = together([last, first, other, again])
    assert (joined.calls, joined.total) == (6, 44)
    assert joined.operations == {"mul": 8, "add": 6, "neg": 30}
    assert joined.remarks == ("first remark", "second | *", "third")
    assert rest == [last, other]


def test_what_counts_is_added_up_before_it_is_told() -> None:
    one = OperationsAt("a.py", 3, "f", 1, {"mul": 6}, backward=6, results=2, dropped=2)
    two = OperationsAt("a.py", 3, "f", 1, {"mul": 4}, backward=4, results=1, dropped=0)
    assert one.remarks == ("6 of them in the backward pass", "the result is dropped unused")
    assert one.joined(two).remarks == ("10 of them in the backward pass",)


def test_figures(report_of: Callable[..., Report]) -> None:
    line = OperationsAt("a.py", 3, "f", 2, {"mul": 247})
    assert "124      2  a.py:3" in render(replace(report_of(), operations=(line,)), "text")
