"""Tells by time whether a commit has the change that lies between two others. Each is compared with the good
one by turns, on this machine."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from pytest_dispatchguard.history.search import OPTION, check_out
from pytest_dispatchguard.measure.revisions.two_commits import Compared, TwoCommits
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.history import Point, Tried
from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.report.budgets.history import change_as_text

TIME = "time"
"""What `--counter` calls it."""

Tell = Callable[[str], None]


class ByTime:
    """Compares commits with the good one, once the whole change is known."""

    def __init__(self, commits: TwoCommits, tree: Path, node_id: str, subject: str) -> None:
        """`tree` is the worktree in which other commits are checked out."""
        self._commits, self._tree = commits, tree
        self._node_id, self._subject = node_id, subject
        self._whole = Interval(1.0, 1.0, 1.0)
        self.found: dict[str, Compared] = {}
        """What was measured, by commit."""

    def whole(self, commit: str, good: str, bad: str, tell: Tell) -> None:
        """Measures the whole change, which must be sure."""
        tell(f"comparing {bad} with {good}")
        found = self._compared(commit, _is_sure, tell)
        named = f"the time of {self._node_id} ({self._subject})"
        if found.change is None:
            raise UserError(f"{OPTION}: {named} could not be compared: {found.reason}")
        if not _is_sure(found.change):
            raise UserError(
                f"{OPTION}: {good} and {bad} cannot be told apart by {named}: at {bad} it is "
                f"{change_as_text(found.change)} what it is at {good}; name others"
            )
        self._whole = found.change

    def look(self, commit: str, tell: Tell) -> bool | None:
        """Whether a commit lies surely on the side of the bad one."""
        tell(f"comparing {commit[:12]}")
        found = self._compared(commit, self._decided, tell)
        return None if found.change is None else self._side(found.change)

    def unclear(self, commit: str) -> str:
        """Why a commit lies surely on no side."""
        found = self.found[commit]
        if found.change is None:
            return f"at {commit[:12]} the test could not be timed: {found.reason}"
        return (
            f"at {commit[:12]} a call takes {change_as_text(found.change)} what it takes at the good "
            "commit, which is too uncertain"
        )

    def _compared(self, commit: str, decided: Callable[[Interval], bool], tell: Tell) -> Compared:
        check_out(self._tree, commit)
        self.found[commit] = self._commits.compared(
            self._node_id, self._subject, decided, lambda: tell("")
        )
        return self.found[commit]

    def _decided(self, change: Interval) -> bool:
        return self._side(change) is not None

    def _side(self, change: Interval) -> bool | None:
        return side(change, self._whole)

    def tried(self) -> tuple[Tried, ...]:
        """All that was measured, in order."""
        return tuple(
            Tried(commit, found.here_us, found.change, self._doubt(found))
            for commit, found in self.found.items()
        )

    def _doubt(self, found: Compared) -> str:
        if found.change is None:
            return found.reason
        return "" if self._decided(found.change) else "too uncertain to decide"


def side(change: Interval, whole: Interval) -> bool | None:
    """Whether a change lies surely beyond the geometric middle of none and the whole one; None where it may
    lie on both sides."""
    middle = math.sqrt(whole.value)
    if change.low > middle:
        return whole.value > 1
    return whole.value < 1 if change.high < middle else None


def _is_sure(change: Interval) -> bool:
    return change.low > 1 or change.high < 1


def ends_in(points: tuple[Point, ...]) -> tuple[str, str] | None:
    """The newest two commits next to each other in a history whose times lie surely apart."""
    for position in range(len(points) - 1, 0, -1):
        now = points[position]
        same = [point for point in points[:position] if point.run.machine == now.run.machine]
        if (
            same
            and same[-1].run.checkout.commit != now.run.checkout.commit
            and _apart(same[-1], now)
        ):
            return same[-1].run.checkout.commit, now.run.checkout.commit
    return None


def _apart(before: Point, now: Point) -> bool:
    figures = (before.kept.ratio, now.kept.ratio), (before.kept.host_us, now.kept.host_us)
    for one, other in figures:
        if one is not None and other is not None:
            return one.high < other.low or other.high < one.low
    return False
