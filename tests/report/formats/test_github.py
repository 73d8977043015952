"""``--format github``: commands that a runner reads back as they were meant."""

from __future__ import annotations

import re
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.model.reports import Report
from pytest_dispatchguard.report import render
from pytest_dispatchguard.report.formats.github import escape_data, escape_property
from pytest_dispatchguard.visible import visible

COMMAND = re.compile(r"::(error|warning|notice) ([^\r\n]*?)::([^\r\n]*)")


def unescape(text: str, *, value: bool) -> str:
    """What a runner does: the sign that escapes comes last."""
    for code, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ",")):
        if value or char in "\r\n":
            text = text.replace(code, char)
    return text.replace("%25", "%")


def test_signs_are_escaped() -> None:
    assert escape_data("100%,\r\na:b") == "100%25,%0D%0Aa:b"
    assert escape_property("100%,\r\na:b") == "100%25%2C%0D%0Aa%3Ab"


@given(st.text())
def test_text_comes_back(text: str) -> None:
    assert unescape(escape_data(text), value=False) == visible(text, keep="\n\r\t")
    assert unescape(escape_property(text), value=True) == visible(text, keep="\n\r\t")
    assert not set(escape_property(text)) & set("\r\n:,")


def test_each_finding_is_one_command(full: Report) -> None:
    lines = render(full, "github").splitlines()
    assert len(lines) == len(full.findings) + len(full.notes)
    for line in lines[: len(full.findings)]:
        assert COMMAND.fullmatch(line)


def test_odd_paths_and_messages(
    finding: Callable[..., Finding], report_of: Callable[..., Report]
) -> None:
    text = render(
        report_of(finding("DG401", "a-rule", "a, b:c/100%.py", (3, 5, 3, 9), "a::b\n50%, done")),
        "github",
    )
    assert text == (
        "::warning file=a%2C b%3Ac/100%25.py,line=3,endLine=3,col=5,endColumn=9,"
        "title=DG401 a-rule::a::b%0A50%25, done\n"
    )


def test_columns_only_inside_one_line(
    finding: Callable[..., Finding], report_of: Callable[..., Report]
) -> None:
    text = render(report_of(finding("DG401", "a", "a.py", (3, 5, 4, 2), "m")), "github")
    assert text == "::warning file=a.py,line=3,endLine=4,title=DG401 a::m\n"


def test_nothing_found_is_nothing_said(clear: Report) -> None:
    assert render(clear, "github") == ""
