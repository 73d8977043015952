"""Times one test at a fixed commit and at others, by turns, each in a worktree of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from pytest_dispatchguard.measure.processes.launching import Launch
from pytest_dispatchguard.measure.revisions.checkout import Revision
from pytest_dispatchguard.measure.timing.pairs import WORKER_PAIRS
from pytest_dispatchguard.measure.workers.lockstep import Pipes, by_turns
from pytest_dispatchguard.measure.workers.sources import Options, Source
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.measurements import Interval

SECONDS = 20.0
"""The most that measuring one commit takes."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A call at a commit, compared with the same call at the fixed one."""

    change: Interval | None = None
    """How many times the time there it takes here; None where it could not be timed."""
    base_us: float | None = None
    """What it takes at the fixed commit, measured between the turns of this one."""
    reason: str = ""
    """Why there is no more."""

    @property
    def here_us(self) -> float | None:
        """What it takes at this commit, at the same pace of the machine."""
        if self.change is None or self.base_us is None:
            return None
        return self.base_us * self.change.value


class TwoCommits:
    """The workers of both worktrees. Those of the fixed commit last; what the other worktree has checked out
    changes, so its workers are started anew each time."""

    def __init__(self, base: Revision, other: Revision, launch: Launch) -> None:
        """`launch` starts workers in the work tree."""
        self._pipes = Pipes()
        self._other, self._launch = other, launch
        self._base = Source(
            partial(base.launch, launch), WORKER_PAIRS, partial(self._pipes.of, base=True)
        )

    def compared(
        self,
        node_id: str,
        subject: str,
        decided: Callable[[Interval], bool],
        tick: Callable[[], None],
    ) -> Compared:
        """Compares a call at what the other worktree has checked out with the fixed commit, until the change
        is decided or the time is up."""
        options = Options(seconds=SECONDS)
        here = Source(
            partial(self._other.launch, self._launch),
            WORKER_PAIRS,
            partial(self._pipes.of, base=False),
        )
        try:
            paired = by_turns(
                (here, self._base),
                node_id,
                [subject],
                options,
                lambda found: _is(decided, found.change(subject, options.confidence)),
                tick,
            )
        except UserError as error:
            return Compared(reason=_brief(str(error)))
        finally:
            here.end()
        change = paired.change(subject, options.confidence)
        there = paired.there(subject, options.confidence)
        place = "at the good commit, " if paired.broken and not paired.here else ""
        return Compared(
            change, None if there is None else there.subject_us.value, place + _brief(paired.broken)
        )

    def end(self) -> None:
        """Ends all workers."""
        self._base.end()
        self._pipes.close()


def _is(decided: Callable[[Interval], bool], change: Interval | None) -> bool:
    return change is not None and decided(change)


def _brief(why: str) -> str:
    """The first line of a reason, and the last of what a worker said."""
    first, *said = [line.strip() for line in why.splitlines() if line.strip()] or [""]
    return f"{first.removesuffix('; it said:')}: {said[-1]}" if said else first
