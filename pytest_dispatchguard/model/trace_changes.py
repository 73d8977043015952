"""Two traces side by side: which waits came, went, grew, and what became of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.model.traces import Trace, Wait

What = Literal["came", "grew", "went", "shrank", "same"]

_PART_OF_IT, _PART_OF_A_STEP = 0.1, 0.001
"""A wait that takes longer by less than this part of itself, or of a step, has not grown."""


@dataclass(frozen=True, slots=True)
class Change:
    """A figure per step, in two traces."""

    before: float
    """The mean over steps."""
    after: float
    difference: Interval
    """What is added, between what the steps of both allow; without ends where a trace has one step alone."""

    @property
    def way(self) -> int:
        """1 where it surely grew, -1 where it surely shrank, else 0."""
        return (self.difference.low > 0) - (self.difference.high < 0)


@dataclass(frozen=True, slots=True)
class WaitChange:
    """What became of the waits at one place."""

    earlier: Wait | None
    later: Wait | None
    times: Change
    us: Change
    step_us: float
    """How long the longer of both steps is."""

    @property
    def wait(self) -> Wait:
        """The wait as it is now, or as it was."""
        found = self.later or self.earlier
        assert found is not None
        return found

    @property
    def what(self) -> What:
        """What became of it, as far as it is sure for waits that both traces have."""
        if self.earlier is None:
            return "came"
        if self.later is None:
            return "went"
        way = self.times.way or self._longer
        return "grew" if way > 0 else "shrank" if way < 0 else "same"

    @property
    def sure(self) -> bool:
        """Whether it is no matter of chance; of one step alone nothing is sure."""
        if self.what in ("came", "went"):
            return self.times.way != 0
        return self.what != "same"

    @property
    def _longer(self) -> int:
        least = max(
            _PART_OF_IT * max(self.us.before, self.us.after), _PART_OF_A_STEP * self.step_us
        )
        return self.us.way if abs(self.us.difference.value) >= least else 0


@dataclass(frozen=True, slots=True)
class TraceComparison:
    """Two traces of one program."""

    before: Trace
    after: Trace
    step_us: Change
    idle_share: Change
    waits: tuple[WaitChange, ...]
    """Those that came and grew first."""

    @property
    def worse(self) -> bool:
        """Whether waits came or grew, surely."""
        return any(one.sure and one.what in ("came", "grew") for one in self.waits)

    @property
    def few_steps(self) -> bool:
        """Whether a trace has too few steps for anything to be sure."""
        return min(len(self.before.steps), len(self.after.steps)) < 2
