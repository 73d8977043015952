"""``--format markdown``: shows what was meant, calls nobody, and fits into a comment."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.model.findings import Edit, Finding, Fix, Span
from pytest_dispatchguard.model.reports import Report
from pytest_dispatchguard.report import render
from pytest_dispatchguard.report.markdown_text import LIMIT, code, escape

markdown_it = pytest.importorskip("markdown_it", reason="reads the Markdown as GitHub does")


class Text(HTMLParser):
    """The text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def handle_data(self, data: str) -> None:
        self.text += data


def shown(markdown: str) -> str:
    page = Text()
    page.feed(markdown_it.MarkdownIt("commonmark", {"html": True}).render(markdown))
    page.close()
    return page.text


@pytest.mark.parametrize(
    "text",
    [
        "100% of a | b",
        "a_b_c and *args, **kwargs",
        "x < y > z & w &amp; <b>no</b>",
        "@torch.compile and a@b",
        "[link](http://x) ~~no~~ \\ ` lone",
    ],
)
def test_text_is_shown_as_it_is(text: str) -> None:
    assert shown(f"- {escape(text)}").strip() == text


def test_code_in_a_message_stays_code() -> None:
    assert escape("`a_b | <c>` is\nslow_er") == "`a_b | <c>` is slow\\_er"


@given(st.text(alphabet="ab_`*<>&@| \n", min_size=1).filter(lambda text: text.strip()))
def test_names_are_shown_as_they_are(text: str) -> None:
    assert shown(code(text)).strip() == " ".join(text.split())


def test_nobody_is_called() -> None:
    assert "@torch" not in escape("@torch.compile")


def test_a_fix_with_ticks_stays_in_its_fence(
    finding: Callable[..., Finding], report_of: Callable[..., Report]
) -> None:
    edit = Edit("a.py", Span(1, 1, 1, 2), "```")
    one = finding("DG1", "r", "a.py", (1, 1, 1, 2), "m", fix=Fix("unsafe", "a < `b<c`", (edit,)))
    text = render(report_of(one), "markdown", sources=lambda path: "y\r\nz\n")
    assert "  ````diff\n" in text and "\n  ````\n" in text and "\r" not in text
    assert "<summary>fix: a &lt; <code>b&lt;c</code> (unsafe)</summary>" in text


def test_a_comment_has_room_for_it(
    finding: Callable[..., Finding], report_of: Callable[..., Report]
) -> None:
    many = [finding("DG401", "r", "a.py", (n, 1, n, 2), "m" * 500) for n in range(1, 1001)]
    text = render(report_of(*many, notes=("a note",)), "markdown")
    assert len(text) < LIMIT + 200
    told = text.count("[DG401]")
    assert 50 < told < 1000
    assert f"… and {1000 - told} more, left out to keep this short." in text
    assert text.endswith("> a note\n")
