"""Does the work of `dispatchguard review`: compares findings and budgets, and prints or posts the result."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_dispatchguard.git import run_git
from pytest_dispatchguard.lint.review import Asked, Reviewed, reviewed
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.history import CounterMove
from pytest_dispatchguard.model.reviews import BudgetChange, Review
from pytest_dispatchguard.model.verdicts import Verdict, has_moved
from pytest_dispatchguard.post import github, gitlab
from pytest_dispatchguard.post.sending import Host, Posted, send
from pytest_dispatchguard.post.web import SECONDS as SECONDS
from pytest_dispatchguard.report.budgets.read_json import load
from pytest_dispatchguard.report.options import Options
from pytest_dispatchguard.report.review import (
    github as review_github,
)
from pytest_dispatchguard.report.review import (
    gitlab as review_gitlab,
)
from pytest_dispatchguard.report.review import (
    json_,
    prompt,
    text,
)
from pytest_dispatchguard.report.review import markdown as page

FORMATS: Mapping[str, Callable[[Review, Options], str]] = {
    "text": text.render,
    "markdown": page.render,
    "json": json_.render,
    "github": review_github.render,
    "gitlab": review_gitlab.render,
    "prompt": prompt.render,
}
Tell = Callable[[str], None]


def review(asked: Asked, budgets: Sequence[str] | None, tell: Tell) -> Reviewed:
    """Review a change, including the budgets of the named tests (an empty list: of all marked tests).
    `tell` receives lines for people."""
    found = reviewed(asked)
    if budgets is None:
        return found
    tell("counting what the budgets' subjects do, in both revisions")
    try:
        changes, kept = _budgets(asked, budgets)
    except UserError as error:
        # Still report what the linter found.
        notes = (*found.review.notes, str(error))
        told = replace(found.review, notes=notes)
        return replace(found, review=told, problems=(*found.problems, str(error)))
    return replace(found, review=replace(found.review, budgets=tuple(changes), kept=kept))


def written(found: Reviewed, form: str, *, color: bool, width: int) -> str:
    """The review in one of the formats."""
    from pytest_dispatchguard.commands.places import from_here

    shown = from_here(found.config.root)
    return FORMATS[form](found.review, Options(color, width, found.sources, shown))


def posted(found: Reviewed, environment: Mapping[str, str], seconds: float) -> Posted:
    """Post the review to the pull or merge request of the CI job, within a time limit in seconds."""
    host = _host(environment, seconds)
    commit = run_git(found.config.root, "rev-parse", "HEAD")
    here = "" if commit is None else commit.stdout.decode("ascii", "replace").strip()
    return send(host, found.review, Options(sources=found.sources), here)


def _host(environment: Mapping[str, str], seconds: float) -> Host:
    if environment.get("GITHUB_ACTIONS") or environment.get("GITHUB_REPOSITORY"):
        return github.from_environment(environment, seconds)
    if environment.get("GITLAB_CI") or environment.get("CI_API_V4_URL"):
        return gitlab.from_environment(environment, seconds)
    raise UserError(
        "--post needs a job of GitHub Actions or GitLab CI, whose environment says where to post"
    )


# -- budgets ---------------------------------------------------------------------------------------

_NONE_COLLECTED = 5
_LONGEST = 3600
"""The time limit for pytest, in seconds."""


def _budgets(asked: Asked, tests: Sequence[str]) -> tuple[list[BudgetChange], int]:
    """How the budgets changed since the merge base, and how many did not."""
    base = run_git(asked.cwd, "merge-base", "--end-of-options", asked.base, "HEAD")
    commit = asked.base if base is None else base.stdout.decode("ascii", "replace").strip()
    with tempfile.TemporaryDirectory(prefix="dispatchguard-review-") as folder:
        file = Path(folder) / "verdicts.json"
        words = [sys.executable, "-m", "pytest", "-q", "--no-header", "--overhead-budget=count"]
        words += [f"--overhead-against={commit}", f"--overhead-json={file}"]
        words += list(tests) if tests else ["-m", "overhead_budget"]
        environment = {k: v for k, v in os.environ.items() if not _secret(k)}
        try:
            done = subprocess.run(
                words,
                cwd=asked.cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=_LONGEST,
            )
        except subprocess.TimeoutExpired:
            raise UserError(
                f"--budgets: pytest did not finish within {_LONGEST // 60} minutes; name fewer tests"
            ) from None
        if done.returncode == _NONE_COLLECTED:
            return [], 0
        if done.returncode not in (0, 1) or not file.exists():
            said = (done.stderr + done.stdout).decode("utf-8", "replace").strip().splitlines()
            why = next((line for line in said if line.startswith("ERROR")), (said or [""])[-1])
            raise UserError(f"--budgets: pytest exited with {done.returncode}: {why.strip()}")
        found, _ = load(file)
    # The last result of a test counts.
    verdicts = list({(verdict.node_id, verdict.subject): verdict for verdict in found}.values())
    changes = [change for change in map(_change, verdicts) if change is not None]
    order = {"fail": 0, "error": 1, "undecided": 2}
    changes.sort(key=lambda change: (order.get(change.verdict, 3), change.node_id, change.subject))
    return changes, len(verdicts) - len(changes)


def _secret(name: str) -> bool:
    """Whether a variable holds something that the tests of a pull request must not see."""
    return "TOKEN" in name.upper()


def _change(verdict: Verdict) -> BudgetChange | None:
    """What moved for one subject; None if nothing did and the verdict is a pass."""
    base = verdict.base
    was = {} if base is None else base.counters
    moved = tuple(
        CounterMove(name, was[name], now)
        for name, now in verdict.counters.items()
        if name in was and has_moved(name, was[name], now) and name not in verdict.varying
    )
    if not moved and verdict.verdict in ("pass", "skipped"):
        return None
    compiled = verdict.compiled
    return BudgetChange(
        node_id=verdict.node_id,
        subject=verdict.subject,
        verdict=verdict.verdict,
        reason=verdict.reason,
        moved=moved,
        change=None if base is None else base.change,
        lines=tuple(line for line in verdict.lines if line.extra),
        guards=tuple(g for g in compiled.guards if g.extra) if compiled is not None else (),
    )
