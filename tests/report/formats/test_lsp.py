"""Places as editors count them, and edits that make one text of another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("lsprotocol", reason="what editors are told is put together with lsprotocol")

from lsprotocol import types

from pytest_dispatchguard.edits import apply_edits
from pytest_dispatchguard.model.findings import Elsewhere, Finding, RuleInfo, Span
from pytest_dispatchguard.report.formats import lsp

CHARACTERS = st.text(st.sampled_from("aä€𝄞\t\x0c\u2028"), max_size=8)
ENCODINGS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}


@given(st.lists(CHARACTERS, min_size=1), st.sampled_from(sorted(ENCODINGS)), st.data())
def test_columns_are_units_of_the_encoding(
    lines: list[str], encoding: str, data: st.DataObject
) -> None:
    ending = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    number = data.draw(st.integers(1, len(lines)))
    column = data.draw(st.integers(1, len(lines[number - 1]) + 1))
    on = lsp.sheet("".join(line + ending for line in lines), types.PositionEncodingKind(encoding))
    found = on.range(Span(number, column, len(lines) + 1, 1))
    codec, width = ENCODINGS[encoding]
    units = len(lines[number - 1][: column - 1].encode(codec)) // width
    assert (found.start.line, found.start.character) == (number - 1, units)
    assert (found.end.line, found.end.character) == (len(lines), 0)


TEXTS = st.lists(st.sampled_from(["a\n", "b\n", "c\r\n", "\n"]), max_size=8).map("".join)


@given(TEXTS, TEXTS, st.sampled_from(["", "a", "z"]), st.sampled_from(["", "a", "y"]))
def test_changes_make_one_text_of_another(
    before: str, after: str, last: str, new_last: str
) -> None:
    edits = lsp.changes(before + last, after + new_last)
    assert apply_edits(before + last, edits) == after + new_last
    assert bool(edits) == (before + last != after + new_last)


def test_where_a_pattern_stands_elsewhere_is_related() -> None:
    span = Span(1, 1, 1, 2)
    finding = Finding(
        "DG401", "rule", "a.py", span, "f", "said", elsewhere=Elsewhere("b.py", span, "g")
    )
    there = types.Location("file:///b.py", lsp.sheet("x\n", "utf-16").range(span))
    made = lsp.diagnostic(finding, lsp.sheet("y\n", "utf-16"), lambda place: there)
    assert made.related_information is not None
    (related,) = made.related_information
    assert (related.location, related.message) == (there, "in g")


def test_a_page_in_short() -> None:
    page = "## What it does\n\nAll.\n\n## Why it costs\n\nMuch.\n\nAnd more.\n\n## Example\n\nx\n"
    rule = RuleInfo("DG101", "some-rule", "In one line.", page, "none", "here")
    assert lsp.hover(rule).split("\n\n")[:4] == [
        "**DG101 some-rule**",
        "In one line.",
        "Much.",
        "And more.",
    ]
    assert "Example" not in lsp.hover(rule)
