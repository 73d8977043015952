"""The reports of tests that workers measured: as they come, with verdicts, and with the final ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from pytest_dispatchguard.measure.budgets.messages import (
    pack_samples,
    pack_verdicts,
    unpack_verdicts,
)
from pytest_dispatchguard.measure.timing.timing import Sample
from pytest_dispatchguard.model.verdicts import Verdict


@dataclass(slots=True)
class Found:
    """The results of a test in one source tree, over all processes that measured it."""

    reports: list[pytest.TestReport] = field(default_factory=list)
    """Of the last process."""
    verdicts: list[Verdict] = field(default_factory=list)
    samples: dict[int, list[Sample]] = field(default_factory=dict)
    """By the order of subjects in the test."""
    metadata: list[dict[str, Any]] = field(default_factory=list)
    """Of each process."""
    seconds: float = 0.0
    """That measuring took."""
    broken: str = ""
    """Why there are no reports; empty if there are."""


def verdicts_of(reports: Sequence[pytest.TestReport]) -> list[Verdict]:
    """The verdicts that the reports of a test carry."""
    return [v for report in reports for v in unpack_verdicts(getattr(report, "overhead", "[]"))]


def report_from(data: dict[str, Any]) -> pytest.TestReport:
    """A report that another process made."""
    if data["outcome"] == "skipped" and isinstance(data["longrepr"], list):
        # JSON has no tuples, and pytest needs one.
        data["longrepr"] = tuple(data["longrepr"])
    report = pytest.TestReport._from_json(data)
    report.user_properties = [(name, value) for name, value in report.user_properties]
    return report


def failure(found: Found) -> str:
    """Why a test has no verdicts; empty if nothing failed."""
    for report in found.reports:
        if report.failed:
            text = str(getattr(report.longrepr, "reprcrash", None) or report.longreprtext)
            return f"the test fails there: {text.strip().splitlines()[-1]}"
    return ""


def failed(item: pytest.Item, said: str) -> pytest.TestReport:
    """The report of a test that could not be measured, with its verdict."""
    keywords: dict[str, Any] = dict.fromkeys(item.keywords, 1)
    report = pytest.TestReport(item.nodeid, item.location, keywords, "failed", said, "call")
    carry(report, [Verdict(item.nodeid, item.name, "error", {}, reason=said)])
    return report


def carry(report: pytest.TestReport, verdicts: Sequence[Verdict]) -> None:
    """Attaches verdicts to a report, for the process that shows them."""
    vars(report)["overhead"] = pack_verdicts(verdicts)


def amended(found: Found, complaint: Callable[[Sequence[Verdict]], str]) -> list[pytest.TestReport]:
    """The reports of a test with its final verdicts."""
    for report in found.reports:
        if report.when == "call" and found.verdicts:
            wrong = complaint(found.verdicts)
            if wrong and report.passed and not hasattr(report, "wasxfail"):
                report.outcome, report.longrepr = "failed", wrong
            elif wrong and report.failed and any(v.base or v.layers for v in found.verdicts):
                by_itself = any(verdict.verdict == "error" for verdict in found.verdicts)
                if not by_itself and "[XPASS" not in report.longreprtext:
                    report.longrepr = wrong  # adds base and layers; a traceback is kept
            carry(report, found.verdicts)
            vars(report)["overhead_samples"] = json.dumps(
                {"samples": pack_samples(found.samples), "metadata": found.metadata}
            )
    return found.reports
