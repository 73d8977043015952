"""Goes through the events of a trace in the order of time, with what each thread and device is doing, and
adds up where the host waited, what kept the device idle, and what each place costs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Protocol

from pytest_dispatchguard.model.traces import NOWHERE, Depth, Line, WaitKind
from pytest_dispatchguard.traces import timeline as kinds
from pytest_dispatchguard.traces.idle import Launched, Part, Windows, explained
from pytest_dispatchguard.traces.recorded import Recorded
from pytest_dispatchguard.traces.timeline import Record
from pytest_dispatchguard.traces.vocabulary import (
    BACKWARD,
    INPUT,
    OPTIMIZER,
    STEP,
    is_fused,
    launches,
    launches_graph,
    wait_kind,
)

_RECENT = 256
"""Waits of a thread that can still explain a gap."""
_PENDING = 200_000
"""Launches whose kernels have not begun."""
_CHAIN = 4
"""So many tiny kernels in a row are worth fusing."""
_SAMPLES = 4_096
_DEEPEST = 5_000
"""Frames of a thread: Python itself allows a thousand, unless told otherwise."""
_MOST_PLACES = 20_000
_MOST_FIGURES = 4_000_000
"""Places of waits times steps: a figure of each is kept for each."""
_MOST_SUMS = 500_000
"""Devices times steps, likewise."""


@dataclass(slots=True)
class Waits:
    """All waits of one kind at one place, added up."""

    line: Line
    call: str
    kind: WaitKind
    operator: str
    annotation: str
    times: int = 0
    us: float = 0.0
    idle: dict[int, float] = field(default_factory=dict)
    """By device: for how long it was idle because of them."""
    gap: dict[int, float] = field(default_factory=dict)
    """By device: its gaps that begin in them."""
    longest: float = 0.0
    by_step: dict[int, list[float]] = field(default_factory=dict)
    """Of a step: how many, and how long."""


@dataclass(slots=True)
class OneWait:
    """A single wait."""

    start: float
    end: float
    left: float
    """Of its length, what accounts for no gap yet of the device that is looked at."""
    waits: Waits
    used: dict[int, float] = field(default_factory=dict)
    """Of its length, what accounts for gaps, by device."""


@dataclass(slots=True)
class Costs:
    """What one place costs, added up."""

    operators: int = 0
    launches: int = 0
    host: float = 0.0
    inside: float = 0.0
    """Of it, in operators and the runtime."""
    device: float = 0.0
    tiny: int = 0
    fused: int = 0
    calls: int = 0
    in_steps: int = 0
    steps: int = 0
    """In which anything happened there."""
    last_step: int = -1
    callees: dict[Line, int] = field(default_factory=dict)

    def happened(self, step: int | None) -> None:
        """Counts the steps, which come in order."""
        if step is not None and step != self.last_step:
            self.last_step = step
            self.steps += 1


@dataclass(slots=True)
class StepSums:
    """What was added up of one step."""

    idle: float = 0.0
    waits: float = 0.0
    late: float = 0.0
    input: float = 0.0
    number_of_waits: int = 0
    launches: int = 0


@dataclass(slots=True)
class DeviceSums:
    """What was added up of one device."""

    number: int
    kernels: int = 0
    busy: float = 0.0
    busy_until: float | None = None
    gaps: list[Part] = field(default_factory=list)
    steps: list[StepSums] = field(default_factory=list)
    chain_line: Line | None = None
    chain: int = 0


@dataclass(slots=True)
class _Frame:
    """Something that a thread is in, and what holds for all that happens in it."""

    end: float
    line: Line
    operator: str
    """The outermost one since the innermost function of the user; empty outside of operators."""
    annotation: str


@dataclass(slots=True)
class _Launch:
    start: float
    end: float
    line: Line
    thread: int
    number: int
    graph: bool


class Sampled:
    """Some of many values, evenly spread: every one, then every second, fourth …"""

    def __init__(self) -> None:
        self.values: list[tuple[float, float, int]] = []
        self._every = 1
        self._seen = 0

    def add(self, value: tuple[float, float, int]) -> None:
        """Adds one, or passes it over."""
        self._seen += 1
        if self._seen % self._every:
            return
        self.values.append(value)
        if len(self.values) >= _SAMPLES:
            self.values = self.values[1::2]
            self._every *= 2


@dataclass(slots=True)
class _Call:
    """A call of the runtime that is going on."""

    end: float
    waits: bool
    launch: _Launch | None = None


@dataclass(slots=True)
class _Thread:
    stack: list[_Frame] = field(default_factory=list)
    call: _Call = field(default_factory=lambda: _Call(-1.0, False))
    waits: deque[OneWait] = field(default_factory=lambda: deque(maxlen=_RECENT))
    inputs: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_RECENT))


class Watch(Protocol):
    """Is told of single events, in the order of time."""

    def waited(self, wait: OneWait, thread: int) -> None:
        """The host waits."""

    def idled(self, part: Part, device: int) -> None:
        """A device has nothing to do."""

    def called(self, line: Line, start: float) -> None:
        """A thread comes to a place in the user's code."""


class Replay:
    """The state of a run that is gone through again."""

    def __init__(self, recorded: Recorded, steps: Windows, watch: Watch | None = None) -> None:
        self._watch = watch
        self._device_numbers: list[int] = recorded.devices.items
        self._names: list[str] = recorded.names.items
        self._lines: list[Line | None] = recorded.lines.items
        self._steps = steps
        self._threads: dict[int, _Thread] = {}
        self._pending: dict[int, _Launch] = {}
        self._launched = 0
        self._main = 0
        """The thread that launched last."""
        self._ids: list[tuple[str, str]] = recorded.threads.items
        self._leaders: dict[str, int] = {}
        """Of a process, the thread that runs its steps, else its Python code: it waits while threads of
        autograd work."""
        number = max(1, len(steps))
        self._most_places = min(_MOST_PLACES, max(20, _MOST_FIGURES // number))
        self._most_devices = max(8, _MOST_SUMS // number)
        self.devices: dict[int, DeviceSums] = {}
        self.waits: dict[tuple[Line, int, str, str], Waits] = {}
        self.costs: dict[Line, Costs] = {}
        self.step_waits: list[int] = [0] * len(steps)
        self.step_launches: list[int] = [0] * len(steps)
        self.samples = Sampled()
        """Of kernels: when they began, how long after their launch, how many others were queued by then."""

    def run(self, records: Iterable[Record]) -> None:
        """Goes through all records, which come in the order of time."""
        for start, minus, kind, lane, name, link in records:
            if kind == kinds.DEVICE:
                self._kernel(start, start - minus, lane, name, link)
            elif kind in (kinds.RUNTIME, kinds.DRIVER):
                self._runtime(start, start - minus, lane, name, link)
            else:
                self._enter(start, start - minus, kind, lane, name, link)
        self._end()

    # -- the host ------------------------------------------------------------------------------------

    def _thread(self, lane: int, start: float) -> _Thread:
        thread = self._threads.get(lane)
        if thread is None:
            thread = self._threads[lane] = _Thread()
        stack = thread.stack
        while stack and stack[-1].end <= start:
            stack.pop()
        return thread

    def _enter(self, start: float, end: float, kind: int, lane: int, name: int, link: int) -> None:
        thread = self._thread(lane, start)
        stack = thread.stack
        above = stack[-1] if stack else _Frame(end, NOWHERE, "", "")
        line, operator, annotation = above.line, above.operator, above.annotation
        if kind == kinds.PYTHON:
            own = self._lines[link]
            if own is None or (line.ours and not own.ours):
                return  # code beside the project that the project calls: its time is the caller's
            self._leaders.setdefault(self._ids[lane][0], lane)
            if line.file:
                self._costs(line).host -= end - start
            costs = self._costs(own)
            costs.host += end - start
            self._called(line, own, costs, self._steps.at(start))
            line, operator = own, ""
            if self._watch is not None:
                self._watch.called(own, start)
        elif kind == kinds.OPERATOR:
            text = self._names[name]
            if INPUT.search(text):
                thread.inputs.append((start, end))
            own = self._lines[link]
            of_stack = own is not None and (not line.file or line.exact)
            if of_stack:
                assert own is not None
                line = own
            elif not stack and text.startswith(BACKWARD):
                line = self._follow(thread, lane, start)
            if not operator:
                operator = text
                costs = self._costs(line)
                costs.operators += 1
                costs.inside += end - start
                costs.happened(self._steps.at(start))
                if of_stack and self._watch is not None:
                    self._watch.called(line, start)
                if line.exact or not line.file:
                    # Without Python frames, its operators are all that is known of a place.
                    costs.host += end - start
        else:
            text = self._names[name]
            if INPUT.search(text):
                thread.inputs.append((start, end))
            elif text.startswith(STEP):
                self._leaders[self._ids[lane][0]] = lane
            elif not text.startswith(OPTIMIZER):
                annotation = text
        if len(stack) < _DEEPEST:
            stack.append(_Frame(end, line, operator, annotation))

    def _follow(self, thread: _Thread, lane: int, start: float) -> Line:
        """The place that calls a thread of autograd, which has no Python stack. The two work by turns, so
        waits of one delay launches of the other."""
        leader = self._leaders.get(self._ids[lane][0])
        if leader is None or leader == lane:
            return NOWHERE
        caller = self._thread(leader, start)
        thread.waits, thread.inputs = caller.waits, caller.inputs
        return caller.stack[-1].line if caller.stack else NOWHERE

    def _called(self, caller: Line, own: Line, costs: Costs, step: int | None) -> None:
        costs.calls += 1
        costs.in_steps += step is not None
        costs.happened(step)
        if caller.file:
            above = self._costs(caller)
            above.happened(step)
            above.callees[own] = above.callees.get(own, 0) + 1

    def _runtime(self, start: float, end: float, lane: int, name: int, link: int) -> None:
        thread = self._thread(lane, start)
        stack = thread.stack
        frame = stack[-1] if stack else _Frame(end, NOWHERE, "", "")
        call = self._names[name]
        costs = self._costs(frame.line)
        kind = wait_kind(call)
        # What the driver does for the runtime is told as well: `cuStreamSynchronize` of a
        # `cudaStreamSynchronize`. It is one wait, one launch.
        within = thread.call if start < thread.call.end >= end else None
        if within is None:
            thread.call = _Call(end, kind is not None)
        if kind is not None and not (within and within.waits):
            thread.call.waits = True
            one = self._wait(thread, start, end, name, kind, frame)
            if self._watch is not None:
                self._watch.waited(one, lane)
            costs.happened(self._steps.at(start))
            if frame.operator or frame.line.file:
                costs.host -= end - start
            if frame.operator or (within and frame.line.file):
                costs.inside -= end - start
        elif within is None and not frame.operator and frame.line.file:
            costs.inside += end - start
        if launches(call):
            if within and within.launch:
                self._pending[link] = within.launch
            else:
                self._launch(thread, start, end, lane, link, frame.line, launches_graph(call))

    def _launch(
        self,
        thread: _Thread,
        start: float,
        end: float,
        lane: int,
        link: int,
        line: Line,
        graph: bool,
    ) -> None:
        self._launched += 1
        self._main = lane
        self._costs(line).launches += 1
        step = self._steps.at(start)
        if step is not None:
            self.step_launches[step] += 1
        if len(self._pending) >= _PENDING:
            for old in list(self._pending)[: _PENDING // 2]:
                del self._pending[old]
        thread.call.launch = _Launch(start, end, line, lane, self._launched, graph)
        self._pending[link] = thread.call.launch

    def _wait(
        self,
        thread: _Thread,
        start: float,
        end: float,
        name: int,
        kind: WaitKind,
        frame: _Frame,
    ) -> OneWait:
        key = (frame.line, name, frame.operator, frame.annotation)
        waits = self.waits.get(key)
        if waits is None and len(self.waits) >= self._most_places:
            key = (NOWHERE, 0, "", "")
            waits = self.waits.get(key)
        if waits is None:
            line, number, operator, annotation = key
            waits = Waits(line, self._names[number], kind, operator, annotation)
            self.waits[key] = waits
        us = end - start
        waits.times += 1
        waits.us += us
        waits.longest = max(waits.longest, us)
        step = self._steps.at(start)
        if step is not None:
            self.step_waits[step] += 1
            sums = waits.by_step.setdefault(step, [0, 0.0])
            sums[0] += 1
            sums[1] += us
        one = OneWait(start, end, us, waits)
        thread.waits.append(one)
        return one

    def _costs(self, line: Line) -> Costs:
        costs = self.costs.get(line)
        if costs is None:
            costs = self.costs[line] = Costs()
        return costs

    # -- the device ----------------------------------------------------------------------------------

    def _device(self, lane: int) -> DeviceSums:
        device = self.devices.get(lane)
        if device is None and len(self.devices) >= self._most_devices:
            lane = 0  # that of all others
            device = self.devices.get(lane)
        if device is None:
            sums = [StepSums() for _ in range(len(self._steps))]
            device = self.devices[lane] = DeviceSums(self._device_numbers[lane], steps=sums)
            if len(self._steps):
                device.busy_until = self._steps.starts[0]
        return device

    def _kernel(self, start: float, end: float, lane: int, name: int, link: int) -> None:
        device = self._device(lane)
        launch = self._pending.get(link) if link else None
        until = device.busy_until
        if until is None or until < start:
            if until is not None:
                self._gap(device, until, start, launch)
            device.busy_until = end
            busy_from = start
        else:
            device.busy_until = max(until, end)
            busy_from = until
        if end > busy_from:
            device.busy += sum(us for _, us in self._steps.shares(busy_from, end))
        device.kernels += 1
        self._account(device, start, end, self._names[name], launch)
        if launch is not None and not launch.graph:
            del self._pending[link]

    def _account(
        self, device: DeviceSums, start: float, end: float, kernel: str, launch: _Launch | None
    ) -> None:
        """Adds a kernel to the costs of the place that launched it."""
        if launch is None:
            device.chain = 0
            return
        costs = self._costs(launch.line)
        costs.device += end - start
        self.samples.add((start, start - launch.start, self._launched - launch.number))
        if launch.graph or is_fused(kernel):
            costs.fused += 1
            device.chain = 0
        elif end - start < launch.end - launch.start:
            device.chain = device.chain + 1 if device.chain_line == launch.line else 1
            device.chain_line = launch.line
            if device.chain == _CHAIN:
                costs.tiny += _CHAIN
            elif device.chain > _CHAIN:
                costs.tiny += 1
        else:
            device.chain = 0

    def _gap(self, device: DeviceSums, start: float, end: float, launch: _Launch | None) -> None:
        """Adds a gap in a device's queue to the steps and to the waits that account for it."""
        closed = launch is not None
        thread = self._threads.get(launch.thread if launch is not None else self._main, _Thread())
        launched = Launched(launch.start, launch.end) if launch is not None else None
        last = bool(len(self._steps)) and end >= self._steps.ends[-1]
        waits = [*takewhile(lambda wait: wait.end >= start, reversed(thread.waits))][::-1]
        inputs = [*takewhile(lambda one: one[1] > start, reversed(thread.inputs))][::-1]
        number = device.number
        if waits and waits[0].start <= start:
            gaps = waits[0].waits.gap
            gaps[number] = gaps.get(number, 0.0) + end - start
        for wait in waits:
            wait.left = wait.end - wait.start - wait.used.get(number, 0.0)
        parts = explained(start, end, launched, waits, inputs, closes=not (last and not closed))
        for part in parts:
            if self._watch is not None:
                self._watch.idled(part, device.number)
            if isinstance(part.wait, OneWait):
                idle, used = part.wait.waits.idle, part.wait.used
                idle[number] = idle.get(number, 0.0) + part.us
                used[number] = used.get(number, 0.0) + part.us
            for step, us in self._steps.shares(part.start, part.end):
                sums = device.steps[step]
                sums.idle += us
                if part.cause == "waits":
                    sums.waits += us
                elif part.cause == "late":
                    sums.late += us
                elif part.cause == "input":
                    sums.input += us

    def _end(self) -> None:
        """The gaps between the last kernels and the end of the last step."""
        if not len(self._steps):
            return
        for device in self.devices.values():
            if device.busy_until is not None and device.busy_until < self._steps.ends[-1]:
                self._gap(device, device.busy_until, self._steps.ends[-1], None)


def depths(samples: Sampled, first: float, points: int) -> tuple[Depth, ...]:
    """How much was queued over time, at so many moments at most."""
    values = samples.values
    every = max(1, -(-len(values) // points))
    return tuple(
        Depth(round(at - first, 3), max(queued for _, _, queued in values[i : i + every]))
        for i, (at, _, _) in enumerate(values)
        if i % every == 0
    )
