"""Limits for what a trace tells, and how a trace kept them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pytest_dispatchguard.model.findings import Finding
    from pytest_dispatchguard.model.traces import Told, Wait


class TraceLimits(NamedTuple):
    """What a trace may have at most; None where there is no limit. (Every run reads the settings, and a
    dataclass takes ten times as long to make.)"""

    waits_per_step: float | None = None
    """Waits of the host for the device; in the whole trace where it has no steps."""
    idle_share: float | None = None
    """The share of the steps in which the device has nothing to do."""


UNLIMITED = TraceLimits()


class CheckedTrace(NamedTuple):
    """A trace, held against its limits."""

    told: Told
    limits: TraceLimits

    @property
    def waits_per_step(self) -> float:
        """How often the host waited in a step, the mean."""
        return sum(wait.times_per_step for wait in self.told.trace.waits)

    @property
    def exceeded(self) -> tuple[str, ...]:
        """The names of the limits that it does not keep."""
        figures = {"waits_per_step": self.waits_per_step, "idle_share": self.told.trace.idle_share}
        limits = self.limits._asdict()
        return tuple(
            name
            for name, figure in figures.items()
            if limits[name] is not None and figure > limits[name]
        )

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
        return self.limits != UNLIMITED

    @property
    def unknown(self) -> str:
        """Why the limits cannot be checked; empty where they can be."""
        trace = self.told.trace
        if trace.damage:
            return f"the trace is damaged: {trace.damage}"
        unseen = not trace.devices and (self.limits.idle_share is not None or not trace.waits)
        if self.limited and unseen:
            return "the trace has no work of a device: record it with `ProfilerActivity.CUDA`"
        return ""

    @property
    def waits(self) -> list[tuple[Wait, tuple[Finding, ...]]]:
        """The waits in steps, with what the linter says of their places: those that cost most first."""
        places = {one.line: one for one in self.told.joined}
        found = [wait for wait in self.told.trace.waits if wait.times_in_steps]
        found.sort(key=lambda wait: (-wait.idle_us, -wait.us_per_step, wait.line))
        return [
            (wait, places[wait.line].behind(wait) if wait.line in places else ()) for wait in found
        ]
