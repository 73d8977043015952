"""Traces for `dispatchguard check`: which functions ran, and how long findings took."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from pytest_dispatchguard.lint.pipeline.progress import Progress
from pytest_dispatchguard.model.findings import Finding, Traced
from pytest_dispatchguard.model.traces import Trace
from pytest_dispatchguard.profile import Profile
from pytest_dispatchguard.traced.ran import profile_of
from pytest_dispatchguard.traced.told import read
from pytest_dispatchguard.traces.frames import Files
from pytest_dispatchguard.traces.joining import TextOf, joined


@dataclass(frozen=True)
class Traces:
    """What traces say of a project."""

    traces: tuple[Trace, ...]
    text_of: TextOf

    @cached_property
    def ran(self) -> Profile:
        """The functions that ran."""
        return profile_of(self.traces, self.text_of)

    def measured(self, findings: Sequence[Finding], text_of: TextOf) -> list[Finding]:
        """The findings, each with how long the host was seen to wait there: in the trace where that was
        longest."""
        longest: dict[int, Traced] = {}
        for trace in self.traces:
            for number, traced in _measured(trace, findings, text_of).items():
                if number not in longest or longest[number].us < traced.us:
                    longest[number] = traced
        return [
            replace(finding, traced=longest[id(finding)]) if id(finding) in longest else finding
            for finding in findings
        ]


def reader(
    files: Sequence[Path], moved: Sequence[tuple[str, str]]
) -> Callable[[Iterable[str], TextOf, Progress | None], Traces]:
    """What reads traces for a project, once for as long as its files are the same."""
    known: dict[frozenset[str], tuple[Trace, ...]] = {}

    def traces(paths: Iterable[str], text_of: TextOf, tell: Progress | None) -> Traces:
        found = frozenset(paths)
        if found not in known:
            known.clear()
            known[found] = read(files, Files.of(found, moved), tell)
        return Traces(known[found], text_of)

    return traces


def _measured(trace: Trace, findings: Sequence[Finding], text_of: TextOf) -> dict[int, Traced]:
    """What the trace has of each finding, by its identity: what is found twice is told twice."""
    found: dict[int, Traced] = {}
    device = trace.device
    for place in joined(trace, findings, text_of):
        for wait in place.waits:
            blamed = place.behind(wait) if wait.times_in_steps else ()
            for finding in blamed:
                before = found.get(id(finding), Traced(0.0, 0.0, 0.0))
                idle = wait.idle_us * wait.times_in_steps / wait.times
                found[id(finding)] = Traced(
                    round(before.us + wait.us_per_step, 3),
                    round(before.times + wait.times_per_step, 3),
                    round(before.idle_us + idle / trace.number_of_steps, 3),
                    "" if device is None else device.name,
                    len(trace.steps) if trace.has_steps else 0,
                    max(before.shared, len(blamed)),
                )
    return found
