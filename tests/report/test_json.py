"""``--format json``: what programs are promised."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema

from pytest_dispatchguard.model.findings import SCHEMA, Finding
from pytest_dispatchguard.model.reports import Report
from pytest_dispatchguard.report import render


def test_it_keeps_the_promise(named_report: tuple[str, Report], schemas: Path) -> None:
    schema = json.loads((schemas / "dispatchguard-findings.json").read_text(encoding="utf-8"))
    got = json.loads(render(named_report[1], "json"))
    jsonschema.Draft202012Validator(schema).validate(got)
    assert got["schema"] == SCHEMA
    assert list(got) == ["schema", "findings", "summary"]
    assert got["summary"]["findings"] == len(got["findings"])


def test_findings_come_by_path_line_column_code(full: Report) -> None:
    got = json.loads(render(full, "json"))["findings"]
    keys = [(one["path"], one["line"], one["column"], one["code"]) for one in got]
    assert keys == sorted(keys)


def test_nothing_is_lost(full: Report) -> None:
    findings = {one["code"]: one for one in json.loads(render(full, "json"))["findings"]}
    maybe = findings["DG402"]
    assert maybe["certainty"] == "maybe"
    assert maybe["message"].splitlines()[1] == "for `größe`, once, @every call: a_b*c"
    assert maybe["hot"] == {
        "root": "Trainer.training_step",
        "path": ["Trainer.training_step", "Block.forward", "pick"],
        "reason": "training_step of a lightning.LightningModule",
        "loop": False,
        "per": "step",
        "seen": 12.5,
        "users": False,
    }
    assert maybe["price_us"] is None and maybe["fix"] is None
    assert findings["DG001"]["hot"] is None
    assert findings["DG401"]["price_us"] == 2.634
    assert findings["DG303"]["fix"]["edits"][0] == {
        "path": "src/my net/step.py",
        "line": 2,
        "column": 1,
        "end_line": 3,
        "end_column": 1,
        "replacement": "",
    }


def test_it_is_ascii_under_any_locale(
    finding: Callable[..., Finding], report_of: Callable[..., Report]
) -> None:
    report = report_of(finding("DG401", "r", "grün/\udcff.py", (1, 1, 1, 2), "naïve ≈ 名前"))
    text = render(report, "json")
    assert text.isascii()
    assert json.loads(text)["findings"][0]["path"] == "grün/\udcff.py"
