"""``--format gitlab``: the documented form, and fingerprints that tell findings apart."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema

from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.model.reports import Report
from pytest_dispatchguard.report import render


def test_it_has_the_documented_form(named_report: tuple[str, Report], schemas: Path) -> None:
    schema = json.loads((schemas / "gitlab-code-quality.json").read_text(encoding="utf-8"))
    entries = json.loads(render(named_report[1], "gitlab"))
    jsonschema.Draft202012Validator(schema).validate(entries)
    assert len(entries) == len(named_report[1].findings)
    for entry in entries:
        assert "\n" not in entry["description"]


def test_severities(full: Report) -> None:
    entries = json.loads(render(full, "gitlab"))
    assert {entry["check_name"]: entry["severity"] for entry in entries} == {
        "DG001": "major",
        "DG303": "minor",
        "DG401": "minor",
        "DG402": "info",
        "DG404": "minor",
        "DG601": "minor",
    }


def test_a_fix_is_shown(full: Report, sources: Callable[[str], str | None]) -> None:
    entries = json.loads(render(full, "gitlab", sources=sources))
    told = {one["check_name"]: one["content"]["body"] for one in entries if "content" in one}
    assert set(told) == {"DG303", "DG401"}
    assert "+    return scale(values, factor=2)" in told["DG303"]


def test_fingerprints_are_unique_and_stable(
    finding: Callable[..., Finding], report_of: Callable[..., Report]
) -> None:
    def prints(*findings: Finding) -> list[str]:
        return [one["fingerprint"] for one in json.loads(render(report_of(*findings), "gitlab"))]

    alike = [
        finding("DG401", "r", "a.py", (line, column, line, column + 1), "m", source="a = b or c")
        for line in (1, 2, 7)
        for column in (3, 5)
    ]
    assert len(set(prints(*alike))) == 6
    lower = [
        finding("DG401", "r", "a.py", (line, column, line, column + 1), "m", source=" a = b or c")
        for line in (31, 42, 57)
        for column in (3, 5)
    ]
    assert prints(*lower) == prints(*alike)
