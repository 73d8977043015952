"""All formats alike: stored output, order, imports, errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.reports import Report
from pytest_dispatchguard.report import FORMATS, render

ROOT = Path(__file__).resolve().parents[2]
ENDINGS = {
    "json": "json",
    "sarif": "sarif",
    "gitlab": "json",
    "rdjson": "json",
    "markdown": "md",
    "prompt": "md",
}


# A page is mostly style: what it tells is held in test_html.py.
@pytest.mark.parametrize("format", [name for name in FORMATS if name != "html"])
def test_snapshot(
    format: str,
    named_report: tuple[str, Report],
    sources: Callable[[str], str | None],
    snapshot: Callable[[str, str], None],
) -> None:
    name, report = named_report
    text = render(report, format, sources=sources)
    snapshot(f"{name}.{format}.{ENDINGS.get(format, 'txt')}", text)


@pytest.mark.parametrize("format", FORMATS)
def test_the_order_of_findings_in_a_report_is_no_matter(
    format: str, full: Report, sources: Callable[[str], str | None]
) -> None:
    turned = replace(full, findings=full.findings[::-1])
    assert render(turned, format, sources=sources) == render(full, format, sources=sources)


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_tells_all_without_the_files(format: str, full: Report) -> None:
    text = render(full, format)
    assert text.endswith("\n")
    for finding in full.findings:
        assert finding.code in text


@pytest.mark.parametrize("format", FORMATS)
def test_files_that_changed_since_are_no_error(format: str, full: Report) -> None:
    text = render(full, format, sources=lambda path: "")
    for finding in full.findings:
        assert finding.code in text


def test_an_unknown_format_names_those_there_are() -> None:
    with pytest.raises(UserError, match=r"unknown format 'xml': choose one of text, json"):
        render(Report.__new__(Report), "xml")


def test_a_format_imports_itself_and_not_the_others() -> None:
    program = (
        "import sys\n"
        "from pytest_dispatchguard.model.reports import Report, Summary\n"
        "from pytest_dispatchguard.report import render\n"
        "render(Report((), Summary(), (), '0'), 'text', sources=lambda path: None)\n"
        "print(*sorted(name for name in sys.modules if name.startswith(('rich', 'torch', 'libcst',"
        " 'pytest_dispatchguard.report.'))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.split() == [
        "pytest_dispatchguard.report.diff",
        "pytest_dispatchguard.report.formats",
        "pytest_dispatchguard.report.formats.text",
        "pytest_dispatchguard.report.lines",
        "pytest_dispatchguard.report.options",
        "pytest_dispatchguard.report.wording",
    ]
