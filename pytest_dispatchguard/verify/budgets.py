"""Has budget tests measured in a copy of the work tree, against what the copy was at first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_dispatchguard.git import complaint, run_git
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.reviews import Gain
from pytest_dispatchguard.model.verdicts import Verdict
from pytest_dispatchguard.report.budgets.read_json import load
from pytest_dispatchguard.verify.running import Run
from pytest_dispatchguard.verify.scratch import Copy

_AUTHOR = (
    *("-c", "user.name=dispatchguard", "-c", "user.email=dispatchguard@localhost"),
    *("-c", "commit.gpgsign=false"),
)
_PASSED, _NONE_COLLECTED = 0, 5


def make_base(copy: Copy) -> None:
    """Makes a commit of the copy as it is, which changed copies are held against."""
    for words in (
        ("init", "--quiet", "--template="),
        # What is compared is what was copied, whatever the platform makes of line ends.
        ("config", "core.autocrlf", "false"),
        ("add", "--all", "--force"),
        (*_AUTHOR, "commit", "--quiet", "--allow-empty", "--no-verify", "--message=base"),
    ):
        answer = run_git(copy.tree, *words)
        if answer is None or answer.returncode:
            raise UserError(f"the copy of the work tree: {complaint(answer)}")


def measured(copy: Copy, cwd: Path, words: Sequence[str], *, timed: bool = True) -> list[Gain]:
    """What the budget tests cost against the commit. Raises `UserError` if one cannot be measured."""
    found = run_budgets(copy, cwd, (*words, "--overhead-against=HEAD"), timed=timed)
    if not found:
        raise UserError("none of the tests has a budget")
    return [_gain(verdict) for verdict in found]


def run_budgets(copy: Copy, cwd: Path, words: Sequence[str], *, timed: bool) -> list[Verdict]:
    """What budget tests come to in a copy; without times, they are only counted. Raises `UserError` if pytest
    cannot run them."""
    file = copy.temporary / "budgets.json"
    file.unlink(missing_ok=True)
    options = (
        "--overhead-budget" if timed else "--overhead-budget=count",
        f"--overhead-json={file}",
    )
    run = Run(copy, cwd, (*words, *options))
    try:
        run.wait()
        verdicts = load(file)[0] if file.exists() else []
        if not verdicts and run.status not in (_PASSED, _NONE_COLLECTED):
            raise UserError(run.complaint())
    finally:
        run.end()
    # The last result of a test counts.
    return list({(one.node_id, one.subject): one for one in verdicts}.values())


def _gain(verdict: Verdict) -> Gain:
    name = verdict.node_id.rpartition("::")[2]
    if verdict.subject not in ("", name.removeprefix("test_")):
        name = f"{name} ({verdict.subject})"
    base = verdict.base
    if verdict.verdict == "error" or base is None or base.note:
        why = base.note if base is not None and base.note else verdict.reason or "it has no base"
        raise UserError(f"{name}: {why.splitlines()[0]}")
    before = base.measured.subject_us.value if base.measured else None
    return Gain(
        name,
        base.counters,
        verdict.counters,
        verdict.varying,
        before,
        base.change if before is not None else None,
        base.untimed,
    )
