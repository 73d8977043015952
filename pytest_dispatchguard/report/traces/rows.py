"""The rows of all tables about traces: waits by place, overheads by place, ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median_low
from typing import Any

from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.model.traces import Line, Overhead, Told, Trace, Wait, WaitKind
from pytest_dispatchguard.report.traces.wording import called, percent, place, verdict
from pytest_dispatchguard.report.wording import count, duration

_STRAGGLES = 0.05
"""So much more of a step than the median of all ranks makes a straggler."""
_SHORTEST_US = 0.05
"""Less of a step is an error of rounding."""


@dataclass(frozen=True, slots=True)
class Waited:
    """The waits of one kind at one place, in one trace or in several: figures are means over these."""

    line: Line
    call: str
    kind: WaitKind
    operator: str
    annotation: str
    times: float
    """Per step."""
    us: float
    """Per step."""
    idle: float
    """What part of a step the device is idle because of it."""
    longest_us: float
    findings: tuple[Finding, ...]
    traces: int
    """In how many it is."""

    @property
    def around(self) -> str:
        """The call of the runtime and what it happened in."""
        return called(self.call, self.operator, self.annotation)

    def place(self, shown: Callable[[str], str] = str) -> str:
        """Where it is; without stacks, the call."""
        return place(self.line, self.findings, shown) or self.around


@dataclass(frozen=True, slots=True)
class Waits:
    """The waits of one trace or of several ranks, those that take longest first."""

    known: tuple[Waited, ...]
    """With a finding or note."""
    unknown: tuple[Waited, ...]
    """In files of the project, of which the linter says nothing."""
    others: tuple[Waited, ...]
    """Where the linter was not asked, or nothing is known of the line."""
    outside: tuple[Wait, ...]
    """Outside of steps."""

    @property
    def all(self) -> tuple[Waited, ...]:
        """Those in steps."""
        found = (*self.known, *self.unknown, *self.others)
        return tuple(sorted(found, key=_longest_first))

    @property
    def tables(self) -> list[tuple[str, tuple[Waited, ...]]]:
        """Each with its title; those without rows are left out."""
        others = "Waits in other code" if self.known or self.unknown else "Waits for the device"
        found = [
            ("Waits that the linter knows", self.known),
            ("Waits that the linter does not know", self.unknown),
            (others, self.others),
        ]
        return [(title, rows) for title, rows in found if rows]


def waits_of(told: Sequence[Told], *, linted: bool) -> Waits:
    """All waits, sorted by whether the linter knows them."""
    groups: dict[tuple[Any, ...], list[tuple[Trace, Wait]]] = {}
    outside: list[Wait] = []
    findings: dict[tuple[Any, ...], tuple[Finding, ...]] = {}
    for one in told:
        places = {joined.line: joined for joined in one.joined}
        for wait in one.trace.waits:
            if wait.times_in_steps:
                key = (wait.line, wait.call, wait.operator, wait.annotation)
                groups.setdefault(key, []).append((one.trace, wait))
                if wait.line in places:
                    findings[key] = places[wait.line].behind(wait)
            if wait.times > wait.times_in_steps:
                outside.append(wait)
    known, unknown, others = [], [], []
    for key, group in groups.items():
        waited = _together(group, findings.get(key, ()), len(told))
        if waited.findings:
            known.append(waited)
        elif linted and waited.line.ours:
            unknown.append(waited)
        else:
            others.append(waited)
    sides = [tuple(sorted(side, key=_longest_first)) for side in (known, unknown, others)]
    return Waits(sides[0], sides[1], sides[2], tuple(outside))


def _together(
    group: Sequence[tuple[Trace, Wait]], findings: tuple[Finding, ...], traces: int
) -> Waited:
    first = group[0][1]
    return Waited(
        first.line,
        first.call,
        first.kind,
        first.operator,
        first.annotation,
        sum(wait.times_per_step for _, wait in group) / traces,
        sum(wait.us_per_step for _, wait in group) / traces,
        sum(trace.share(wait.idle_us) for trace, wait in group) / traces,
        max(wait.longest_us for _, wait in group),
        findings,
        len(group),
    )


def _longest_first(one: Waited) -> tuple[Any, ...]:
    return -one.us, one.line, one.call, one.operator, one.annotation


WAITS = ("times a step", "time a step", "longest", "device idle")


def wait_cells(one: Waited) -> tuple[str, ...]:
    """The figures of a wait, under `WAITS`."""
    return often(one.times), duration(one.us), duration(one.longest_us), percent(one.idle)


def often(times: float) -> str:
    """``2``, ``0.33``."""
    return f"{times:.0f}" if times == int(times) or times >= 10 else f"{times:.2g}"


def waiting(waits: Iterable[Waited]) -> str:
    """How much is waited in all: ``3 a step, 1.8 ms a step at 2 places``."""
    waits = list(waits)
    if not waits:
        return "none in steps"
    times, us = sum(one.times for one in waits), sum(one.us for one in waits)
    places = len({(one.line, "" if one.line.file else one.around) for one in waits})
    return f"{often(times)} a step, {duration(us)} a step at {count(places, 'place')}"


def outside(waits: Iterable[Wait]) -> str:
    """Waits that are in no step; empty for none. The profiler waits for the device itself when it ends."""
    waits = list(waits)
    if not waits:
        return ""
    times = sum(wait.times - wait.times_in_steps for wait in waits)
    us = sum(wait.us - sum(wait.step_us) for wait in waits)
    names = ", ".join(dict.fromkeys(wait.call for wait in waits))
    own = any(wait.kind == "device" and not wait.line.file for wait in waits)
    why = "; the profiler itself waits for the device at its end" if own else ""
    return f"Outside of steps: {count(times, 'wait')}, {duration(us)} ({names}{why})."


@dataclass(frozen=True, slots=True)
class Cost:
    """What one place costs, of one trace or of several."""

    overhead: Overhead
    findings: tuple[Finding, ...]

    def place(self, shown: Callable[[str], str] = str) -> str:
        """Where it is."""
        return place(self.overhead.line, (), shown) or "(without a stack)"

    @property
    def cells(self) -> tuple[str, ...]:
        """The figures, under `COSTS`."""
        cost = self.overhead
        python = duration(cost.python_us) if cost.python_us else ""
        return (
            duration(cost.host_us),
            python,
            str(cost.operators),
            str(cost.launches),
            duration(cost.device_us),
        )

    @property
    def remarks(self) -> list[str]:
        """What compiling would change, and what is compiled."""
        cost, told = self.overhead, []
        if cost.tiny:
            told.append(
                f"{count(cost.tiny, 'tiny kernel')} in chains: torch.compile or a CUDA graph would swallow "
                "them"
            )
        if cost.fused:
            told.append(f"{count(cost.fused, 'kernel')} compiled or launched by a graph already")
        return told


COSTS = ("host", "Python", "operators", "launches", "device")
"""All over the whole trace."""


def costs_of(told: Sequence[Told]) -> list[Cost]:
    """What each place costs, the dearest first; of several ranks in all."""
    found: dict[Line, Overhead] = {}
    findings: dict[Line, tuple[Finding, ...]] = {}
    for one in told:
        # What makes the host wait is told with its waits.
        findings |= {joined.line: joined.findings for joined in one.joined if not joined.waits}
        for cost in one.trace.overheads:
            before = found.get(cost.line)
            found[cost.line] = cost if before is None else _added(before, cost)
    costs = sorted(found.values(), key=lambda cost: (-cost.host_us, cost.line))
    return [Cost(cost, findings.get(cost.line, ())) for cost in costs]


def _added(a: Overhead, b: Overhead) -> Overhead:
    return Overhead(
        a.line,
        a.operators + b.operators,
        a.launches + b.launches,
        a.host_us + b.host_us,
        a.python_us + b.python_us,
        a.device_us + b.device_us,
        a.tiny + b.tiny,
        a.fused + b.fused,
    )


def parts_of_a_step(trace: Trace) -> list[tuple[str, float]]:
    """What the device does in a step, the mean: busy, and idle by cause."""
    if not trace.devices or trace.damage or not trace.us:
        return []
    steps, causes = trace.number_of_steps, trace.causes
    parts = [
        ("busy", trace.us - trace.idle_us),
        ("idle: waits", causes["waits"]),
        ("idle: late launches", causes["late launches"]),
        ("idle: data loader", causes["input"]),
        ("idle: queued", trace.queued_us),
    ]
    return [(name, us / steps) for name, us in parts if us / steps >= _SHORTEST_US]


def sentence(told: Told, waits: Waits, shown: Callable[[str], str] = str) -> str:
    """The verdict on one trace, with the place whose waits keep the device idle for longest."""
    keeping: dict[str, float] = {}
    for one in waits.all:
        if one.idle > 0:
            place = one.place(shown)
            at = (
                place
                if place.startswith("in ")
                else f"at {place}"
                if one.line.file
                else f"in {place}"
            )
            keeping[at] = keeping.get(at, 0.0) + one.idle
    if not keeping:
        return verdict(told.trace)
    most = max(keeping, key=lambda at: keeping[at])
    if len(keeping) == 1:
        return verdict(told.trace, f"waits {most}")
    places = count(len(keeping), "place")
    return verdict(told.trace, f"waits at {places} ({percent(keeping[most])} {most})")


RANKS = ("rank", "steps", "a step", "device idle", "host", "waits a step")


def rank_rows(told: Sequence[Told]) -> list[tuple[str, ...]]:
    """A row for each of several traces, under `RANKS`."""
    rows: list[tuple[str, ...]] = []
    for one in told:
        trace = one.trace
        times = sum(step.waits for step in trace.steps) / trace.number_of_steps
        idle = percent(trace.idle_share) if trace.devices and not trace.damage else "?"
        host = percent(_host(trace)) if trace.devices and not trace.damage else "?"
        rank = "?" if trace.rank is None else str(trace.rank)
        step = duration(trace.us / trace.number_of_steps)
        rows.append((rank, str(len(trace.steps)), step, idle, host, often(times)))
    return rows


def _host(trace: Trace) -> float:
    return trace.share(sum(trace.causes.values()))


def stragglers(told: Sequence[Told]) -> list[str]:
    """Ranks that the others wait for: their steps take longer, or their host keeps the device idle for
    longer."""
    traces = [one.trace for one in told if one.trace.us and not one.trace.damage]
    if len(traces) < 2:
        return []
    steps = {id(trace): trace.us / trace.number_of_steps for trace in traces}
    usual, host = median_low(steps.values()), median_low(map(_host, traces))
    slow = [trace for trace in traces if steps[id(trace)] > usual * (1 + _STRAGGLES)]
    if slow:
        return [
            f"{_name(trace)} is slower than the others: {duration(steps[id(trace)])} a step, and the median "
            f"is {duration(usual)}"
            for trace in slow
        ]
    # Ranks that synchronize take the same time, whoever keeps the others waiting.
    return [
        f"{_name(trace)} keeps the others waiting: its host leaves the device idle {percent(_host(trace))} "
        f"of a step, and the median is {percent(host)}"
        for trace in traces
        if trace.devices and _host(trace) > host + _STRAGGLES
    ]


def _name(trace: Trace) -> str:
    return trace.path if trace.rank is None else f"rank {trace.rank}"


def together(told: Sequence[Told]) -> str:
    """The verdict on several ranks."""
    traces = [one.trace for one in told if one.trace.devices and not one.trace.damage]
    if not traces:
        return f"{count(len(told), 'trace')}, none of which tells idle times"
    idle = fmean(trace.idle_share for trace in traces)
    host = fmean(map(_host, traces))
    return (
        f"{count(len(told), 'trace')}: devices are idle {percent(idle)} of a step, "
        f"{percent(host)} because of their hosts"
    )
