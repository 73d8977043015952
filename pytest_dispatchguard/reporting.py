"""What `dispatchguard report` does: lints a project, joins what its budgets came to, and makes one page of
both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_dispatchguard import __version__
from pytest_dispatchguard.lint.check import Request, check
from pytest_dispatchguard.model import Verdict
from pytest_dispatchguard.report import html, verdicts_read


@dataclass(frozen=True, slots=True)
class Made:
    """The page, and what there is to say beside it."""

    text: str
    problems: Sequence[str]
    """Failures of the linter itself."""


def made(request: Request, budgets: Path | None) -> Made:
    """Makes the page; `budgets` is a file that `--overhead-json` wrote."""
    verdicts: list[Verdict] | None = None
    machine: dict[str, str] = {}
    if budgets is not None:
        verdicts, machine = verdicts_read.load(request.cwd / budgets)
    checked = check(request)
    known = html.Known(__version__, checked.report, verdicts, machine, sources=checked.reader)
    return Made(html.page(known), checked.problems)
