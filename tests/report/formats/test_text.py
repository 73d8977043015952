"""``--format text``: places, reasons, marks under the source, numbers, colour."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.model.findings import Edit, Finding, Fix, Hot, Price, Ran, Span
from pytest_dispatchguard.model.reports import Report, Summary
from pytest_dispatchguard.report import render

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
Sources = Callable[[str], str | None]


def test_color_says_the_same(full: Report, sources: Sources) -> None:
    plain = render(full, "text", sources=sources)
    colored = render(full, "text", sources=sources, color=True)
    assert "\x1b[" in colored and "\x1b[" not in plain
    shown = [line.rstrip() for line in ESCAPE.sub("", colored).split("\n")]
    assert shown == plain.split("\n")


def test_color_is_no_matter_of_the_environment(
    full: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = render(full, "text", color=True)
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb"), ("COLUMNS", "20")):
        monkeypatch.setenv(name, value)
    assert render(full, "text", color=True) == usual


def test_waits_of_a_program_are_told_by_its_loops(
    finding: Callable[..., Finding], report_of: Callable[..., Report]
) -> None:
    step = Ran(5, 5, "train.py:7", steps=True)
    seen = [
        (step,),
        (replace(step, times=10), Ran(3, 3, "train.py:20")),
        (Ran(1),),
        (Ran(4, 0, "net.py:9"), Ran(2)),
    ]
    hot = Hot("<module>", ("<module>",), "seen running")
    made = [
        replace(
            finding("DG411", "r", "a.py", (n, 1, n, 2), "m"),
            ran=ran,
            hot=hot,
            price=Price(None, waits=1),
        )
        for n, ran in enumerate(seen, 1)
    ]
    read = replace(made[0], ran=(), hot=Hot("f", ("f",), "forward"))
    told = render(report_of(*made), "text").splitlines()
    title = told.index("Waits for the device while the program ran")
    rows = [
        "  in each of 5 steps of the loop at train.py:7: 3 waits (2 places)",
        "  in the loop at net.py:9: 4 waits (1 place)",
        "  in each of 3 rounds of the loop at train.py:20: 1 wait (1 place)",
        "  once, outside of loops: 3 waits (2 places)",
    ]
    assert told[title + 1 :] == rows
    both = render(report_of(*made, read), "text").splitlines()
    assert both[-2:] == [
        "What the flagged lines cost in one call of",
        "  f: 1 wait for the device (1 finding)",
    ]
    page = render(report_of(*made), "html")
    assert "in each of 5 steps of the loop at train.py:7: 3 waits" in page
    assert "one call of" not in page


def test_markup_in_a_message_is_text(
    finding: Callable[..., Finding], report_of: Callable[..., Report]
) -> None:
    report = report_of(finding("DG1", "r", "a.py", (1, 1, 1, 2), "x[bold] :smile: [/]"))
    assert "x[bold] :smile: [/]" in ESCAPE.sub("", render(report, "text", color=True))


@pytest.mark.parametrize(
    ("source", "span", "shown", "marks"),
    [
        ("if mask.any():", (4, 14), "if mask.any():", "   ^^^^^^^^^^"),
        ("\tx = y", (2, 3), "    x = y", "    ^"),
        ("a\fb", (3, 4), "a\\x0cb", "     ^"),
        ('"名前", x', (7, 8), '"名前", x', "        ^"),
        ("e\u0301 = x", (6, 7), "e\u0301 = x", "    ^"),
        ("x", (2, 2), "x", " ^"),
        ("x", (40, 50), "x", " ^"),
        ("x\x1b[31m", (1, 2), "x\\x1b[31m", "^"),
    ],
)
def test_marks_stand_under_their_text(
    finding: Callable[..., Finding],
    report_of: Callable[..., Report],
    source: str,
    span: tuple[int, int],
    shown: str,
    marks: str,
) -> None:
    one = finding("DG1", "r", "a.py", (7, span[0], 7, span[1]), "m", source=source)
    lines = render(report_of(one), "text").splitlines()
    assert lines[1:3] == [f"  7 | {shown}", f"    | {marks}"]


def test_the_file_is_asked_before_the_finding(
    finding: Callable[..., Finding], report_of: Callable[..., Report]
) -> None:
    one = finding("DG1", "r", "a.py", (2, 3, 2, 4), "m", source="stripped")
    text = render(report_of(one), "text", sources=lambda path: "a\n  real\r\n")
    assert "  2 |   real\n    |   ^\n" in text


@given(
    st.text(alphabet="abc (.)", max_size=300),
    st.integers(1, 310),
    st.integers(0, 310),
    st.integers(40, 120),
)
def test_long_lines_are_cut_around_the_mark(
    source: str, column: int, length: int, width: int
) -> None:
    one = Finding("DG1", "r", "a.py", Span(1, column, 1, column + length), "", "m", source=source)
    lines = render(Report((one,), Summary(files=1), (), "0"), "text", width=width).splitlines()
    if not source.strip():
        assert lines[1] == ""
        return
    assert lines[1].startswith("  1 | ") and lines[2].startswith("    | ")
    assert len(lines[1]) <= width
    assert len(lines[2]) <= width + 1
    assert lines[2].count("^") >= 1
    marked = source[column - 1 : column - 1 + length].rstrip()
    at = lines[2].index("^")
    under = lines[1][at : at + lines[2].count("^")]
    if marked and column <= len(source):
        assert marked.startswith(under.rstrip("…").rstrip() if under.endswith("…") else under)


def test_a_long_way_from_the_root_is_cut_in_its_middle(
    finding: Callable[..., Finding], report_of: Callable[..., Report]
) -> None:
    path = tuple(f"package.module.function_{n}" for n in range(9))
    one = finding("DG1", "r", "a.py", (1, 1, 1, 2), "m", hot=Hot(path[0], path, "a reason"))
    line = render(report_of(one), "text", width=100).splitlines()[1]
    assert line == ("  hot: a reason: package.module.function_0 -> … -> package.module.function_8")
    wide = render(report_of(one), "text", width=400).splitlines()[1]
    assert all(name in wide for name in path)


def test_a_root_alone_is_its_way(
    finding: Callable[..., Finding], report_of: Callable[..., Report]
) -> None:
    one = finding("DG1", "r", "a.py", (1, 1, 1, 2), "m", hot=Hot("A.forward", (), "forward"))
    assert "  hot: forward: A.forward\n" in render(report_of(one), "text")


def test_a_large_fix_is_shown_in_part(
    finding: Callable[..., Finding], report_of: Callable[..., Report]
) -> None:
    edit = Edit("a.py", Span(1, 1, 1, 1), "".join(f"x = {n}\n" for n in range(20)))
    one = finding("DG1", "r", "a.py", (1, 1, 1, 2), "m", fix=Fix("safe", "do", (edit,)))
    text = render(report_of(one), "text", sources=lambda path: "y\n")
    assert "  12 + x = 11\n" in text and "x = 12" not in text
    assert "  … 8 more changed lines: see --diff\n" in text


@pytest.mark.parametrize(
    ("findings", "summary", "last"),
    [
        (0, Summary(files=1, functions=1), "All clear: 1 file (0 hot functions of 1)."),
        (0, Summary(files=3, functions=9, hot_functions=1, fixed=2),
         "All clear: 3 files (1 hot function of 9).\n2 fixed."),
        (1, Summary(files=1, functions=2, hot_functions=2),
         "1 finding in 1 file (2 hot functions of 2)."),
        (2, Summary(files=5, suppressed=1),
         "2 findings in 1 of 5 files (0 hot functions of 0).\n1 suppressed."),
        (0, Summary(files=2, baselined=4),
         "All clear: 2 files (0 hot functions of 0).\n4 in the baseline."),
    ],
)  # fmt: skip
def test_the_numbers(
    finding: Callable[..., Finding],
    report_of: Callable[..., Report],
    findings: int,
    summary: Summary,
    last: str,
) -> None:
    made = [finding("DG1", "r", "a.py", (n + 1, 1, n + 1, 2), "m") for n in range(findings)]
    text = render(replace(report_of(*made), summary=summary), "text")
    assert text.endswith(f"{last}\n")


def test_only_unsafe_fixes(
    finding: Callable[..., Finding], report_of: Callable[..., Report]
) -> None:
    one = finding("DG1", "r", "a.py", (1, 1, 1, 2), "m", fix=Fix("unsafe", "do", ()))
    text = render(report_of(one), "text")
    assert text.endswith("\n1 fixable with --unsafe-fixes.\n")
    assert "DG1 m" in text and "[*]" not in text


def test_findings_that_say_the_same_are_described_once(
    finding: Callable[..., Finding], report_of: Callable[..., Report]
) -> None:
    first, *_ = made = [
        finding("DG603", "r", path, (line, 1, line, 2), said)
        for path, line, said in [
            ("a.py", 1, "read once"),
            ("a.py", 2, "another"),
            ("a.py", 3, "read once"),
            ("b.py", 1, "read once"),
        ]
    ]
    dearer = replace(first, path="c.py", price=Price(9.0))
    told = render(report_of(*made, dearer), "text").splitlines()
    begin = next(i for i, line in enumerate(told) if line.startswith("a.py:1:1"))
    end = told.index("", begin)
    assert told[end - 3 : end] == ["  2 more like it:", "  a.py:3:1", "  b.py:1:1"]
    assert [line.split()[0] for line in told if " DG603 " in line] == [
        "c.py:1:1",
        "a.py:1:1",
        "a.py:2:1",
    ]
    assert told[-1].startswith("5 findings in 3 files")


def test_notes_that_say_the_same_count_once_among_those_shown(
    finding: Callable[..., Finding], report_of: Callable[..., Report]
) -> None:
    made = [
        replace(finding("DG411", "r", path, (line, 1, line, 2), said), certainty="note", function=f)
        for path, line, said, f in [
            ("a.py", 1, "reads", "f"),
            ("a.py", 9, "reads", "g"),
            ("b.py", 1, "reads", "f"),
            ("b.py", 2, "other", "f"),
            ("c.py", 1, "last", "f"),
        ]
    ]
    told = render(replace(report_of(*made), most_notes=2), "text").splitlines()
    assert told[1:7] == [
        "  a.py f",
        "    1:1 DG411 reads",
        "      also a.py:9:1",
        "      also b.py:1:1",
        "  b.py f",
        "    2:1 DG411 other",
    ]
    assert told[7] == "  … and 1 more note: --notes shows all, --no-notes none"
