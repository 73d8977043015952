"""What `dispatchguard history --bisect` does: finds the commit that moved a counter, in a worktree of
its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

import pytest_dispatchguard
from pytest_dispatchguard.config.project_root import find_root
from pytest_dispatchguard.git import complaint, run_git
from pytest_dispatchguard.history.trends import kept_at, split, trends_of
from pytest_dispatchguard.measure.revisions import one_commit
from pytest_dispatchguard.measure.revisions.checkout import (
    Revision,
    commit_of,
    must_be_built,
    top_of,
)
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.history import Culprit, Point, Trend
from pytest_dispatchguard.report.budgets import history as report
from pytest_dispatchguard.spelling import did_you_mean

_OPTION = "--bisect"
_ALL_RUNS = 1_000_000
_CHECKOUT = ("checkout", "--quiet", "--force", "--detach")
"""By force: the worktree is ours, and tests may write to files that git knows."""

Tell = Callable[[str, int, int], object]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be found."""

    test: str
    """With its subject in parentheses, where it has several."""
    good: str | None
    bad: str | None
    counter: str | None
    place: str
    """The history that says what is not said here."""
    cwd: Path


def bisected(asked: Asked, tell: Tell) -> Culprit:
    """The first commit after the good one at which the counter is not what it was."""
    top = top_of(asked.cwd, _OPTION)
    if must_be_built(top):
        raise UserError(
            f"{_OPTION}: the project has compiled modules, which would have to be built for every "
            "commit; compare two commits with --overhead-against"
        )
    node_id, subject = split(asked.test)
    good, bad, counter = asked.good, asked.bad, asked.counter
    if good is None or bad is None:
        known = _known(asked)
        node_id, subject = known.node_id, known.subject
        before, after, moved = _moved(known, counter)
        good, bad, counter = good or before, bad or after, counter or moved
    ends = [commit_of(top, name, _OPTION) for name in (good, bad)]
    if ends[0] == ends[1]:
        raise UserError(f"{_OPTION}: {good} and {bad} are the same commit; name two")
    revision = Revision(top, ends[0], _OPTION)
    try:
        plan = _plan(revision, node_id, _folder(asked.cwd, node_id), top)
        there = []
        for number, (name, commit) in enumerate(zip((good, bad), ends, strict=True)):
            tell(f"counting at {name}", number, 3)
            _git(revision.tree, *_CHECKOUT, commit)
            there.append(_counters(plan, name, subject))
        subject, counter = there[0][0], _counter(there[0][1], there[1][1], counter, good, bad)
        tell(f"bisecting {good}..{bad}", 2, 3)
        plan |= {"subject": subject, "counter": counter, "before": there[0][1][counter]}
        first, log = _first_moved(revision.tree, plan, *ends)
        about = _git(revision.tree, "show", "--no-patch", "--format=%an%n%as%n%s", first)
        author, date, title, *_ = [*map(_printable, about.split("\n")), "", "", ""]
    finally:
        revision.remove()
    tried = [*((c, t[1].get(counter)) for c, t in zip(ends, there, strict=True)), *log]
    return Culprit(
        node_id,
        subject,
        counter,
        there[0][1][counter],
        next(number for commit, number in tried if commit == first and number is not None),
        first,
        author=author,
        date=date,
        title=title,
        tried=tuple(tried),
    )


def written(found: Culprit, form: Literal["text", "json"]) -> str:
    """What was found, as text or JSON."""
    return report.culprit_as_json(found) if form == "json" else report.culprit_as_text(found)


def _known(asked: Asked) -> Trend:
    """The one subject in the history that is meant."""
    found = trends_of(kept_at(asked.place), asked.test, _ALL_RUNS)
    if len(found) > 1:
        names = ", ".join(f'"{trend.node_id} ({trend.subject})"' for trend in found[:5])
        raise UserError(f"{_OPTION}: {asked.test} matches several tests: {names}; name one")
    return found[0]


def _moved(known: Trend, counter: str | None) -> tuple[str, str, str]:
    """The newest two commits next to each other between which a counter moved, and which did."""
    committed = tuple(filter(_is_committed, known.points))
    if committed:
        trend = Trend(committed)
        rows = zip(trend.points, trend.befores(), trend.moves(), strict=True)
        for point, before, moves in reversed(list(rows)):
            names = [move.name for move in moves if counter in (None, move.name)]
            if names and before is not None:
                return before.run.checkout.commit, point.run.checkout.commit, names[0]
    raise UserError(
        f"{_OPTION}: in the history {counter or 'no counter'} of {known.node_id} moved "
        f"{'never ' if counter else ''}from one commit to another; name two with --good and --bad"
    )


def _is_committed(point: Point) -> bool:
    return bool(point.run.checkout.commit) and point.run.checkout.dirty is False


def _folder(cwd: Path, node_id: str) -> Path:
    """The folder that a test is named from: the project's root, or the one we are in."""
    file = node_id.partition("::")[0]
    root = find_root([cwd])
    return cwd if not (root / file).exists() and (cwd / file).exists() else root


def _plan(revision: Revision, node_id: str, folder: Path, top: Path) -> dict[str, Any]:
    """How the test is counted in whatever the worktree has checked out."""
    there = revision.tree / folder.resolve().relative_to(top)
    roots = [place for base in (revision.tree, there) for place in (base, base / "src")]
    said = os.environ.get("PYTHONPATH", "")
    path = [*map(str, roots), *(revision.moved(part) for part in said.split(os.pathsep) if part)]
    installed = any(one.name == "dispatchguard" for one in entry_points(group="pytest11"))
    if not installed:
        path.append(str(Path(pytest_dispatchguard.__file__).parents[1]))
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "PYTEST_"))}
    # Checkouts follow one another within the second that compiled files tell sources apart by.
    environment |= {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return {
        "command": [
            *(sys.executable, "-m", "pytest", "-q", f"--rootdir={there}"),
            *(() if installed else ("-p", "pytest_dispatchguard.plugin")),
            *(
                "-p",
                "no:cacheprovider",
                "-o",
                "overhead_history=",
                "--overhead-budget=count",
                node_id,
            ),
        ],
        "folder": str(there),
        "environment": environment,
        "nodeid": node_id,
    }


def _counters(plan: dict[str, Any], name: str, subject: str) -> tuple[str, dict[str, int]]:
    """The subject, and its counters at the commit that is checked out."""
    if not Path(plan["folder"]).is_dir():
        raise UserError(
            f"{_OPTION}: {name} has no folder {Path(plan['folder']).name}/; name another"
        )
    found, why = one_commit.counted(plan)
    if not found:
        raise UserError(f"{_OPTION}: the test has no counts at {name}: {why}")
    if not subject and len(found) > 1:
        names = ", ".join(f'"{plan["nodeid"]} ({one})"' for one in found)
        raise UserError(f"{_OPTION}: the test has several subjects; name one of {names}")
    subject = subject or next(iter(found))
    if subject not in found:
        raise UserError(
            f"{_OPTION}: {name} has no subject {subject!r}; {did_you_mean(subject, found)}"
        )
    return subject, found[subject]


def _counter(
    before: dict[str, int], after: dict[str, int], name: str | None, good: str, bad: str
) -> str:
    """The counter to follow: the one that is asked for, else the first that moved."""
    if name is not None and name not in before:
        raise UserError(f'{_OPTION}: unknown counter "{name}"; {did_you_mean(name, before)}')
    moved = [one for one in before if after.get(one, before[one]) != before[one]]
    if name in moved or (name is None and moved):
        return name or moved[0]
    what = "every counter is the same" if name is None else f"{name} is {before[name]}"
    raise UserError(
        f"{_OPTION}: counted here and now, {what} at both {good} and {bad}; name others"
    )


def _first_moved(
    tree: Path, plan: Mapping[str, Any], good: str, bad: str
) -> tuple[str, list[tuple[str, int | None]]]:
    """The first commit that is not as the good one, and all that were tried. Git only says which commit is
    halfway: `git bisect` runs the hooks of a repository, whatever it is told."""
    unmoved, unknown = [good], set[str]()
    tried: list[tuple[str, int | None]] = []

    def tell(commit: str) -> int | None:
        _git(tree, *_CHECKOUT, commit)
        found, _ = one_commit.counted(plan)
        number = found.get(plan["subject"], {}).get(plan["counter"])
        tried.append((commit, number))
        return number

    for base in _git(tree, "merge-base", "--all", good, bad).split():
        if base != good and tell(base) not in (None, plan["before"]):
            raise UserError(
                f"{_OPTION}: it had already moved at the merge base {base[:12]}; name an earlier "
                "commit as --good"
            )
    while True:
        between = (bad, *(f"^{commit}" for commit in unmoved))
        if not unknown:
            halfway = _git(tree, "rev-list", "--bisect", *between).strip()
        else:
            left = [
                row.split()[0]
                for row in _git(tree, "rev-list", "--bisect-all", *between).splitlines()
            ]
            halfway = next((commit for commit in left if commit not in {bad, *unknown}), bad)
            if halfway == bad and unknown.intersection(left):
                raise UserError(
                    f"{_OPTION}: the commit cannot be narrowed down: the test has no counts at its "
                    "neighbors; pass --good and --bad on one side of them"
                )
        if halfway in (bad, ""):
            return bad, tried
        number = tell(halfway)
        if number is None:
            unknown.add(halfway)
        elif number == plan["before"]:
            unmoved.append(halfway)
        else:
            bad = halfway


def _printable(text: str) -> str:
    """What people wrote, without what would steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _git(tree: Path, *words: str) -> str:
    answer = run_git(tree, *words)
    if answer is None or answer.returncode:
        raise UserError(f"{_OPTION}: git {words[0]} failed: {complaint(answer)}")
    return answer.stdout.decode("utf-8", "replace")
