"""``--format rdjson``: valid for reviewdog, columns in bytes, whole fixes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.edits import apply_edits
from pytest_dispatchguard.model.findings import Edit, Finding, Fix, Span
from pytest_dispatchguard.model.reports import Report, Summary
from pytest_dispatchguard.report import render
from pytest_dispatchguard.report.suggestions import FARTHEST

Sources = Callable[[str], str | None]


def diagnostics(report: Report, sources: Sources | None = None) -> list[dict[str, Any]]:
    got = json.loads(render(report, "rdjson", sources=sources))["diagnostics"]
    assert isinstance(got, list)
    return got


@pytest.mark.parametrize("with_files", [True, False])
def test_it_is_valid(
    named_report: tuple[str, Report], sources: Sources, schemas: Path, with_files: bool
) -> None:
    schema = json.loads((schemas / "rdformat-diagnostic-result.json").read_text(encoding="utf-8"))
    text = render(named_report[1], "rdjson", sources=sources if with_files else None)
    jsonschema.Draft7Validator(schema).validate(json.loads(text))


def test_columns_count_bytes(full: Report, sources: Sources) -> None:
    place = {one["code"]["value"]: one["location"] for one in diagnostics(full, sources)}
    # Two letters of two bytes and two of three bytes stand before column 33.
    assert place["DG402"]["range"] == {
        "start": {"line": 15, "column": 33 + 2 + 4},
        "end": {"line": 15, "column": 44 + 2 + 4},
    }
    assert diagnostics(full)[-1]["location"] == place["DG402"]


def test_the_example_of_the_format() -> None:
    # 'a𐐀b': columns 1, 2 and 6.
    finding = Finding("DG1", "r", "a.py", Span(1, 2, 1, 3), "f", "m", source="a𐐀b")
    (one,) = diagnostics(Report((finding,), Summary(), (), "0"))
    assert one["location"]["range"]["start"]["column"] == 2
    assert one["location"]["range"]["end"]["column"] == 6


def test_an_end_that_nobody_knows_has_no_column(
    finding: Callable[..., Finding], report_of: Callable[..., Report]
) -> None:
    (one,) = diagnostics(report_of(finding("DG1", "r", "x.py", (1, 2, 3, 4), "m", source="abc")))
    assert one["location"]["range"] == {"start": {"line": 1, "column": 2}, "end": {"line": 3}}


def test_edits_of_one_fix_become_one_suggestion(full: Report, sources: Sources) -> None:
    one = next(one for one in diagnostics(full, sources) if one["code"]["value"] == "DG303")
    assert one["suggestions"] == [
        {
            "range": {"start": {"line": 2, "column": 1}, "end": {"line": 3, "column": 27}},
            "text": "    return scale(values, factor=2)",
        }
    ]
    bare = next(one for one in diagnostics(full) if one["code"]["value"] == "DG303")
    assert "suggestions" not in bare


def test_half_a_fix_is_never_suggested(
    finding: Callable[..., Finding], report_of: Callable[..., Report]
) -> None:
    text = "import a\n" + "pass\n" * FARTHEST
    top = Edit("x.py", Span(1, 8, 1, 9), "b")
    low = Edit("x.py", Span(FARTHEST + 1, 1, FARTHEST + 1, 5), "b()")
    other = Edit("y.py", Span(1, 1, 1, 1), "b")
    for edits in ((top, low), (top, other), (other,), ()):
        report = report_of(
            finding("DG1", "r", "x.py", (1, 1, 1, 2), "m", fix=Fix("safe", "f", edits))
        )
        (one,) = diagnostics(report, lambda path: text)
        assert "suggestions" not in one
        assert one["message"].endswith("fix: f")


@given(st.text(alphabet="ab é名𐐀\t\n\r", max_size=40), st.data())
def test_a_suggestion_does_what_the_fix_does(text: str, data: st.DataObject) -> None:
    """Applied by bytes, as reviewdog counts them."""
    lines = text.split("\n")
    if "\r" in text:
        text, lines = text.replace("\r", ""), text.replace("\r", "").split("\n")
    points = st.integers(0, len(text)).map(lambda at: at)
    cuts = sorted(data.draw(st.sets(points, min_size=4, max_size=4))) if len(text) >= 4 else []
    if not cuts:
        return
    edits = tuple(
        Edit("x.py", Span(*position(text, start), *position(text, end)), "é\n")
        for start, end in (cuts[:2], cuts[2:])
    )
    finding = Finding("DG1", "r", "x.py", Span(1, 1, 1, 1), "", "m", fix=Fix("safe", "f", edits))
    report = Report((finding,), Summary(), (), "0")
    (one,) = diagnostics(report, lambda path: text)
    if max(edit.span.end_line for edit in edits) > len(lines):
        return
    ((suggestion),) = one["suggestions"]
    start, end = (byte_offset(text, suggestion["range"][side]) for side in ("start", "end"))
    raw = text.encode()
    after = raw[:start] + suggestion["text"].encode() + raw[end:]
    assert after.decode() == apply_edits(text, edits)


def position(text: str, at: int) -> tuple[int, int]:
    before = text[:at]
    return before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1


def byte_offset(text: str, place: dict[str, int]) -> int:
    raw = text.encode().split(b"\n")
    return sum(len(line) + 1 for line in raw[: place["line"] - 1]) + place["column"] - 1
