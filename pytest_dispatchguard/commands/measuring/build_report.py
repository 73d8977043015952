"""What `dispatchguard report` does: lints a project, joins what its budgets came to, now and before, and
makes one page of all, a badge, figures for dashboards."""

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
    """What is known, to be written in one form or another."""

    known: html.Known
    problems: Sequence[str]
    """Failures of the linter itself, and of a history that was not asked for by name."""

    def page(self) -> str:
        """As a page."""
        return html.page(self.known)

    def badge(self, file: Path) -> str:
        """As a badge: a drawing, or in a file of JSON what shields.io makes one of."""
        found = badge.badge(self.known.report, self.known.verdicts)
        return badge.as_endpoint(found) if file.suffix.lower() == ".json" else badge.as_svg(found)

    def figures(self) -> str:
        """As figures."""
        known = self.known
        return badge.as_figures(known.report, known.verdicts, known.machine, known.version)


def made(request: Request, budgets: Path | None, history: str | None) -> Made:
    """Finds out what there is; `budgets` is a file that `--overhead-json` wrote, `history` the place of
    earlier runs (None: what pytest's settings name, else the project's own, if it has one)."""
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
        trends = {}  # nobody named it here: all else is told
        problems.append(str(error))
    known = html.Known(
        __version__, checked.report, verdicts, machine, trends, sources=checked.reader
    )
    return Made(known, problems)
