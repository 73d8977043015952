"""``--format sarif``: valid against the schema of SARIF 2.1.0, and what code scanning needs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pytest_dispatchguard.model.findings import Finding, Span
from pytest_dispatchguard.model.reports import Report
from pytest_dispatchguard.report import render
from pytest_dispatchguard.report.formats.sarif import FINGERPRINT, uri


def run(report: Report, **options: Any) -> dict[str, Any]:
    log = json.loads(render(report, "sarif", **options))
    (only,) = log["runs"]
    assert isinstance(only, dict)
    return only


def test_it_is_valid(named_report: tuple[str, Report], schemas: Path) -> None:
    schema = json.loads((schemas / "sarif-2.1.0-rtm.5.json").read_text(encoding="utf-8"))
    log = json.loads(render(named_report[1], "sarif"))
    checker = jsonschema.Draft4Validator.FORMAT_CHECKER
    jsonschema.Draft4Validator(schema, format_checker=checker).validate(log)
    assert log["version"] == "2.1.0"


def test_the_schema_would_notice(full: Report, schemas: Path) -> None:
    schema = json.loads((schemas / "sarif-2.1.0-rtm.5.json").read_text(encoding="utf-8"))
    log = json.loads(render(full, "sarif"))
    del log["runs"][0]["results"][1]["fixes"][0]["artifactChanges"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft4Validator(schema).validate(log)


def test_results_point_at_their_rules(full: Report) -> None:
    only = run(full)
    rules = only["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == [
        "DG001",
        "DG303",
        "DG401",
        "DG402",
        "DG404",
        "DG601",
        "DG799",
    ]
    for result in only["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    page = "https://pytest-dispatchguard.readthedocs.io/rules/DG401/"
    told = next(rule for rule in rules if rule["id"] == "DG401")
    assert told["helpUri"] == page
    assert told["help"]["markdown"].startswith("# DG401")


def test_code_scanning_gets_descriptions_of_all_rules(full: Report) -> None:
    for rule in run(full)["tool"]["driver"]["rules"]:
        for field in ("shortDescription", "fullDescription", "help"):
            assert rule[field]["text"].strip()
        assert rule["help"]["markdown"].strip()


def test_levels_and_places(full: Report) -> None:
    results = {result["ruleId"]: result for result in run(full)["results"]}
    assert {code: result["level"] for code, result in results.items()} == {
        "DG001": "error",
        "DG303": "warning",
        "DG401": "warning",
        "DG402": "note",
        "DG404": "warning",
        "DG601": "warning",
    }
    (other,) = results["DG601"]["relatedLocations"]
    assert other["physicalLocation"]["artifactLocation"]["uri"] == "src/net/names.py"
    assert other["physicalLocation"]["region"]["startLine"] == 4
    place = results["DG303"]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "src/my%20net/step.py", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 2, "startColumn": 15, "endLine": 3, "endColumn": 27}
    (change,) = results["DG303"]["fixes"][0]["artifactChanges"]
    assert [one["insertedContent"]["text"] for one in change["replacements"]] == [
        "",
        "scale(values, factor=2)",
    ]


def test_paths_become_uris() -> None:
    assert uri("a b/größe#1?.py") == "a%20b/gr%C3%B6%C3%9Fe%231%3F.py"
    assert uri("c:/x.py") == "c%3A/x.py"
    assert uri("\udcff.py") == "%FF.py"


def test_fingerprints_survive_moved_lines(
    full: Report, finding: Callable[..., Finding], report_of: Callable[..., Report]
) -> None:
    def prints(report: Report) -> list[str]:
        return [result["partialFingerprints"][FINGERPRINT] for result in run(report)["results"]]

    moved = replace(full, findings=tuple(down(finding, 40) for finding in full.findings))
    assert prints(moved) == prints(full)
    twice = [finding("DG1", "r", "a.py", (n, 1, n, 2), "m", source="x.item()") for n in (3, 9)]
    first, second = prints(report_of(*twice))
    assert first != second
    assert prints(report_of(twice[1])) == [first]
    other = replace(twice[0], function="other")
    assert prints(report_of(other)) != [first]


def down(finding: Finding, lines: int) -> Finding:
    span = finding.span
    moved = Span(span.line + lines, span.column, span.end_line + lines, span.end_column)
    return replace(finding, span=moved, source=f"    {finding.source}  ")
