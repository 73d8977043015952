"""What `dispatchguard history --bisect` does: finds the commit that moved a counter or the time of a call, in
worktrees of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

import pytest_dispatchguard
from pytest_dispatchguard.config.project_root import find_root
from pytest_dispatchguard.history.by_time import TIME, ByTime, ends_in
from pytest_dispatchguard.history.search import OPTION, check_out, first_changed, git
from pytest_dispatchguard.history.trends import kept_at, split, trends_of
from pytest_dispatchguard.measure.processes.launching import Launch
from pytest_dispatchguard.measure.revisions import one_commit
from pytest_dispatchguard.measure.revisions.checkout import (
    Revision,
    commit_of,
    end_by_exception,
    must_be_built,
    top_of,
)
from pytest_dispatchguard.measure.revisions.two_commits import TwoCommits
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.history import Culprit, Point, Trend, Tried
from pytest_dispatchguard.report.budgets import history as report
from pytest_dispatchguard.spelling import did_you_mean

_ALL_RUNS = 1_000_000
_FIRST = 3
"""Steps before the search: both ends are counted, and what lies between is looked at."""
_PLUGIN = ("-p", "pytest_dispatchguard.plugin")

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
    """The first commit after the good one at which the counter, or the time, is not what it was."""
    top = top_of(asked.cwd, OPTION)
    if must_be_built(top):
        raise UserError(
            f"{OPTION}: the project has compiled modules, which would have to be built for every "
            "commit; compare two commits with --overhead-against"
        )
    node_id, subject = split(asked.test)
    good, bad, counter = asked.good, asked.bad, asked.counter
    if good is None or bad is None:
        known = _known(asked)
        node_id, subject = known.node_id, known.subject
        before, after, moved = _moved(known, counter)
        good, bad, counter = good or before, bad or after, counter or moved
    ends = (commit_of(top, good, OPTION), commit_of(top, bad, OPTION))
    if ends[0] == ends[1]:
        raise UserError(f"{OPTION}: {good} and {bad} are the same commit; name two")
    between = (asked, Between(node_id, subject, good, bad, *ends), counter, top)
    with ExitStack() as stack:
        stack.callback(end_by_exception())
        return _searched(*between, stack, tell)


@dataclass(frozen=True, slots=True)
class Between:
    """What is searched: a subject of a test, between two commits."""

    node_id: str
    subject: str
    good: str
    """By the name that people gave it, as the next."""
    bad: str
    first: str
    last: str


def _searched(
    asked: Asked, it: Between, counter: str | None, top: Path, stack: ExitStack, tell: Tell
) -> Culprit:
    revision = Revision(top, it.first, OPTION)
    stack.callback(revision.remove)
    folder = _folder(asked.cwd, it.node_id)
    plan = _plan(revision, it.node_id, folder, top)
    there = []
    for number, (name, commit) in enumerate(((it.good, it.first), (it.bad, it.last))):
        tell(f"counting at {name}", number, _FIRST)
        check_out(revision.tree, commit)
        there.append(_counters(plan, name, it.subject))
    it = replace(it, subject=there[0][0])
    if counter == TIME:
        other = Revision(top, it.first, OPTION)
        stack.callback(other.remove)
        commits = TwoCommits(other, revision, _launch(plan, folder))
        stack.callback(commits.end)
        return _by_time(it, commits, revision.tree, tell)
    tell(f"bisecting {it.good}..{it.bad}", _FIRST - 1, _FIRST)
    counter = _counter(there[0][1], there[1][1], counter, it.good, it.bad)
    return _by_counter(it, counter, [found[counter] for _, found in there], plan, revision.tree)


def _by_counter(
    it: Between, counter: str, ends: list[int], plan: dict[str, Any], tree: Path
) -> Culprit:
    tried = [Tried(it.first, ends[0]), Tried(it.last, ends[1])]

    def look(commit: str) -> bool | None:
        check_out(tree, commit)
        found, _ = one_commit.counted(plan)
        tried.append(Tried(commit, found.get(it.subject, {}).get(counter)))
        return None if tried[-1].number is None else tried[-1].number != ends[0]

    def unclear(commit: str) -> str:
        return f"the test has no counts at {commit[:12]}"

    first = first_changed(tree, look, it.first, it.last, unclear)
    now = next(one.number for one in tried if one.commit == first and one.number is not None)
    return Culprit(
        *(it.node_id, it.subject, counter, ends[0], now, first),
        *_about(tree, first),
        tried=tuple(tried),
    )


def _by_time(it: Between, commits: TwoCommits, tree: Path, tell: Tell) -> Culprit:
    steps = _FIRST + len(git(tree, "rev-list", it.last, f"^{it.first}").split()).bit_length()
    by_time, now = ByTime(commits, tree, it.node_id, it.subject), [""]

    def told(what: str) -> None:
        now[0] = what or now[0]
        tell(now[0], min(_FIRST - 1 + len(by_time.found), steps - 1), steps)

    by_time.whole(it.last, it.good, it.bad, told)
    look = partial(by_time.look, tell=told)
    first = first_changed(tree, look, it.first, it.last, by_time.unclear)
    found = by_time.found[first]
    assert found.base_us is not None
    assert found.here_us is not None
    return Culprit(
        *(it.node_id, it.subject, TIME, found.base_us, found.here_us, first),
        *_about(tree, first),
        tried=by_time.tried(),
        change=found.change,
        good=it.first,
    )


def _about(tree: Path, commit: str) -> tuple[str, str, str]:
    """Author, date and title of a commit."""
    said = git(tree, "show", "--no-patch", "--format=%an%n%as%n%s", commit)
    author, date, title, *_ = [*map(_printable, said.split("\n")), "", "", ""]
    return author, date, title


def written(found: Culprit, form: Literal["text", "json"]) -> str:
    """What was found, as text or JSON."""
    return report.culprit_as_json(found) if form == "json" else report.culprit_as_text(found)


def _known(asked: Asked) -> Trend:
    """The one subject in the history that is meant."""
    found = trends_of(kept_at(asked.place), asked.test, _ALL_RUNS)
    if len(found) > 1:
        names = ", ".join(f'"{trend.node_id} ({trend.subject})"' for trend in found[:5])
        raise UserError(f"{OPTION}: {asked.test} matches several tests: {names}; name one")
    return found[0]


def _moved(known: Trend, counter: str | None) -> tuple[str, str, str]:
    """The newest two commits next to each other between which a counter moved, and which did."""
    committed = tuple(filter(_is_committed, known.points))
    if counter == TIME:
        ends = ends_in(committed)
        if ends is not None:
            return *ends, TIME
    elif committed:
        trend = Trend(committed)
        rows = zip(trend.points, trend.befores(), trend.moves(), strict=True)
        for point, before, moves in reversed(list(rows)):
            names = [move.name for move in moves if counter in (None, move.name)]
            if names and before is not None:
                return before.run.checkout.commit, point.run.checkout.commit, names[0]
    raise UserError(
        f"{OPTION}: in the history {counter or 'no counter'} of {known.node_id} moved "
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
            *(() if installed else _PLUGIN),
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


def _launch(plan: dict[str, Any], folder: Path) -> Launch:
    """How workers would be started in the work tree: what they are given is mapped to other worktrees."""
    plugin = () if "pytest_dispatchguard.plugin" not in plan["command"] else _PLUGIN
    arguments = (
        *(f"--rootdir={folder}", *plugin, "-p", "no:cacheprovider", "-o", "overhead_history="),
        *("--overhead-budget=check", plan["nodeid"]),
    )
    said = os.environ.get("PYTHONPATH", "")
    environment = {**plan["environment"], "PYTHONPATH": said}
    return Launch(arguments, folder.resolve(), [str(folder.resolve()), *sys.path], environment)


def _counters(plan: dict[str, Any], name: str, subject: str) -> tuple[str, dict[str, int]]:
    """The subject, and its counters at the commit that is checked out."""
    if not Path(plan["folder"]).is_dir():
        raise UserError(
            f"{OPTION}: {name} has no folder {Path(plan['folder']).name}/; name another"
        )
    found, why = one_commit.counted(plan)
    if not found:
        raise UserError(f"{OPTION}: the test has no counts at {name}: {why}")
    if not subject and len(found) > 1:
        names = ", ".join(f'"{plan["nodeid"]} ({one})"' for one in found)
        raise UserError(f"{OPTION}: the test has several subjects; name one of {names}")
    subject = subject or next(iter(found))
    if subject not in found:
        raise UserError(
            f"{OPTION}: {name} has no subject {subject!r}; {did_you_mean(subject, found)}"
        )
    return subject, found[subject]


def _counter(
    before: dict[str, int], after: dict[str, int], name: str | None, good: str, bad: str
) -> str:
    """The counter to follow: the one that is asked for, else the first that moved."""
    if name is not None and name not in before:
        raise UserError(f'{OPTION}: unknown counter "{name}"; {did_you_mean(name, before)}')
    moved = [one for one in before if after.get(one, before[one]) != before[one]]
    if name in moved or (name is None and moved):
        return name or moved[0]
    what = "every counter is the same" if name is None else f"{name} is {before[name]}"
    raise UserError(f"{OPTION}: counted here and now, {what} at both {good} and {bad}; name others")


def _printable(text: str) -> str:
    """What people wrote, without what would steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)
