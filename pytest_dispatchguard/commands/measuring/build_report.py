"""Does the work of `dispatchguard report`: lints a project, adds the results of its budgets, now and
before, and writes a page, a badge and figures for dashboards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_dispatchguard import __version__
from pytest_dispatchguard.history.trends import earlier
from pytest_dispatchguard.lint.check import check
from pytest_dispatchguard.lint.request import Request
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.verdicts import Verdict
from pytest_dispatchguard.report.budgets import read_json
from pytest_dispatchguard.report.html import badge
from pytest_dispatchguard.report.html import page as html


@dataclass(frozen=True, slots=True)
class Made:
    """What is known, ready to be written."""

    known: html.Known
    problems: Sequence[str]
    """Internal errors of the linter, and problems with a history that was not named by the user."""

    def page(self) -> str:
        """As an HTML page."""
        return html.page(self.known)

    def badge(self, file: Path) -> str:
        """As a badge: an image, or JSON for shields.io."""
        found = badge.badge(self.known.report, self.known.verdicts)
        return badge.as_endpoint(found) if file.suffix.lower() == ".json" else badge.as_svg(found)

    def figures(self) -> str:
        """As figures for dashboards."""
        known = self.known
        return badge.as_figures(known.report, known.verdicts, known.machine, known.version)


def made(request: Request, budgets: Path | None, history: str | None) -> Made:
    """Collect what is known. `budgets` is a file written by `--overhead-json`, `history` the location of
    earlier runs (None: that of pytest's settings, otherwise the project's own, if any)."""
    verdicts: list[Verdict] | None = None
    machine: dict[str, str] = {}
    if budgets is not None:
        verdicts, machine = read_json.load(request.cwd / budgets)
    checked = check(request)
    tests = [verdict.node_id for verdict in verdicts or ()]
    problems = list(checked.problems)
    try:
        trends = earlier(history, tests, request.cwd)
    except UserError as error:
        if history is not None:
            raise
        trends = {}  # the user did not ask for it: report the rest
        problems.append(str(error))
    known = html.Known(
        __version__, checked.report, verdicts, machine, trends, sources=checked.reader
    )
    return Made(known, problems)
