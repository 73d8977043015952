"""`dispatchguard report`: one page of a project's findings and of what its budgets came to."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from pytest_dispatchguard.history import trends
from pytest_dispatchguard.history.trends import Began
from pytest_dispatchguard.model.history import Checkout
from pytest_dispatchguard.model.measurements import CostlyLine, Interval, Measurement
from pytest_dispatchguard.model.verdicts import Limit, Verdict
from pytest_dispatchguard.report.budgets.verdicts import as_json

Run = Callable[..., Any]

OVER = Verdict(
    "tests/test_ops.py::test_add",
    "add",
    "fail",
    {"instructions": 745},
    (Limit("ratio", 2),),
    "ratio: 6.663 (6.244 to 7.084), allowed 2",
    lines=(CostlyLine("pkg/a.py", 8, 691, "leaves = flatten(x)"),),
    measured=Measurement(Interval(12.8, 12.1, 13.2), ratio=Interval(6.663, 6.244, 7.084), pairs=9),
)


def text_of(page: Path) -> str:
    """What a page says, its script and style left out."""
    body = page.read_text(encoding="utf-8").partition("<body>")[2]
    body = re.sub(r"<script.*?</script>", "", body, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def one_line(done: Any) -> str:
    assert (done.status, done.out) == (2, ""), done
    (line,) = done.err.splitlines()
    return str(line)


def test_findings_and_budgets_are_one_page(project: Path, run: Run) -> None:
    (project / "verdicts.json").write_text(as_json([OVER], {"python": "3.11.9"}))
    done = run("report", "--budgets", "verdicts.json", "--output", "report.html")
    assert (done.status, done.out, done.err) == (0, "", "")
    told = text_of(project / "report.html")
    found = run("check", "--format", "json").findings
    assert f"dispatchguard: {len(found)} findings, 1 budget " in told
    for finding in found:
        assert f"{finding['path']}: {finding['line']}:{finding['column']} {finding['code']}" in told
    assert "tests/test_ops.py::test_add" in told and "6.663 ±0.421" in told
    assert "leaves = flatten(x)" in told and "python 3.11.9" in told
    assert str(project) not in (project / "report.html").read_text()


def test_without_budgets_nothing_is_said_of_them(project: Path, run: Run) -> None:
    assert run("report", "pkg/a.py", "--output", "report.html").status == 0
    told = text_of(project / "report.html")
    assert "Budgets" not in told and "pkg/a.py" in told and "pkg/b.py:" not in told


def test_it_is_what_check_writes_as_html(project: Path, run: Run) -> None:
    run("report", "--output", "report.html")
    done = run("check", "--format", "html", "--output", "check.html")
    assert (done.status, done.out) == (1, "")
    assert (project / "check.html").read_bytes() == (project / "report.html").read_bytes()


def test_paths_are_those_of_the_working_folder(project: Path, run: Run) -> None:
    (project / "verdicts.json").write_text(as_json([OVER], {}))
    words = ("report", "--budgets", "../verdicts.json", "--output", "report.html")
    assert run(*words, cwd=project / "pkg").status == 0
    assert "test_add" in text_of(project / "pkg" / "report.html")


def test_a_name_that_would_break_a_page_is_shown(project: Path, run: Run) -> None:
    name = "a<script>alert(1)<!--&.py"
    (project / "pkg" / name).write_text((project / "pkg" / "a.py").read_text())
    assert run("report", "--output", "report.html").status == 0
    markup = (project / "report.html").read_text()
    assert f"pkg/{name}" in text_of(project / "report.html")
    assert "<script>alert" not in markup and "<!--" not in markup


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "none.json: cannot be read: No such file"),
        ("{", "has no verdicts that this version can read"),
        (json.dumps({"schema": 1, "findings": [], "summary": {}}), "there is no machine"),
    ],
)
def test_a_file_that_is_none_of_verdicts_is_one_line(
    project: Path, run: Run, content: str | None, said: str
) -> None:
    if content is not None:
        (project / "none.json").write_text(content)
    line = one_line(run("report", "--budgets", "none.json", "--output", "report.html"))
    assert said in line and "--overhead-json" in line
    assert not (project / "report.html").exists()


def test_what_has_no_place_to_go_is_one_line(project: Path, run: Run) -> None:
    assert "pass --output FILE for the page" in one_line(run("report"))
    assert "the directory does not exist; create it first" in one_line(
        run("report", "--output", "none/r.html")
    )
    assert "none.py" in one_line(run("report", "none.py", "--output", "r.html"))
    (project / "folder").mkdir()
    assert "folder: cannot be written" in one_line(run("report", "--output", "folder"))
    assert "--fix" in one_line(run("report", "--fix", "--output", "r.html"))
    assert not (project / "r.html").exists()


# -- earlier runs, badges, figures -----------------------------------------------------------------


def keep(project: Path, *ratios: float, place: str = "") -> None:
    """Keeps a run for each ratio."""
    for number, ratio in enumerate(ratios):
        measured = Measurement(
            Interval(2.0, 1.9, 2.1), ratio=Interval(ratio, ratio, ratio), pairs=9
        )
        verdict = replace(OVER, measured=measured)
        began = Began(f"2026-01-0{number + 1}T00:00:00Z", Checkout("a" * 40, "main", False))
        trends.keep([verdict], {"python": "3.11.9"}, began, trends.place_of(place, project))


def test_earlier_runs_are_drawn(project: Path, run: Run) -> None:
    (project / "verdicts.json").write_text(as_json([OVER], {"python": "3.11.9"}))
    words = ("report", "--budgets", "verdicts.json", "--output", "report.html")
    run(*words)
    assert "earlier runs" not in text_of(project / "report.html")
    keep(project, 5.0, 6.0, 7.5)
    run(*words)
    page = (project / "report.html").read_text()
    assert "earlier runs" in text_of(project / "report.html")
    assert "7.5" in page[page.index("earlier runs") :]
    keep(project, 1.0, 2.0, place="sqlite:///other.sqlite")
    assert (project / "other.sqlite").is_file()
    run(*words, "--history", "other.sqlite")
    assert "7.5" not in (project / "report.html").read_text()
    assert "no history yet" in one_line(run(*words, "--history", "none.sqlite"))


def test_a_badge_says_how_it_stands(project: Path, run: Run) -> None:
    assert run("report", "--badge", "b.svg").status == 0
    drawn = ElementTree.fromstring((project / "b.svg").read_text())
    assert drawn.get("aria-label") == "overhead: 3 findings"
    for verdicts, message, color in (
        ([OVER], "1 of 1 budget failing", "red"),
        ([replace(OVER, verdict="pass")], "1 budget kept", "brightgreen"),
        ([replace(OVER, verdict="undecided")], "1 of 1 undecided", "yellow"),
    ):
        (project / "verdicts.json").write_text(as_json(verdicts, {}))
        assert run("report", "--budgets", "verdicts.json", "--badge", "b.json").status == 0
        told = json.loads((project / "b.json").read_text())
        assert told == {
            "schemaVersion": 1,
            "label": "overhead",
            "message": message,
            "color": color,
        }


def test_figures_are_for_dashboards(project: Path, run: Run) -> None:
    (project / "verdicts.json").write_text(as_json([OVER], {"python": "3.11.9"}))
    assert run("report", "--figures", "f.json").status == 0
    told = json.loads((project / "f.json").read_text())
    found = run("check", "--format", "json").findings
    assert told["budgets"] is None
    assert told["findings"]["total"] == len(found)
    assert sum(told["findings"]["by_code"].values()) == len(found)
    assert run("report", "--budgets", "verdicts.json", "--figures", "f.json").status == 0
    told = json.loads((project / "f.json").read_text())["budgets"]
    assert (told["total"], told["fail"], told["pass"]) == (1, 1, 0)
    assert told["tests"][0]["ratio"] == 6.663
    assert told["machine"] == {"python": "3.11.9"}
