"""What a profiler trace tells: where the host waited for the device, and what kept the device idle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from pytest_dispatchguard.model.findings import Finding

WaitKind = Literal["device", "stream", "event", "copy"]
"""What the host waited for: all work of the device, of a stream, an event, or a copy that blocks."""
Host = Literal["waits", "late launches", "input"]
"""What on the host kept the device idle."""

BUSY_ENOUGH = 0.9
"""Where the device is busy for this share of a step, no change on the host makes the step much shorter."""


@dataclass(frozen=True, slots=True, order=True)
class Line:
    """A place in source code, as a trace names it."""

    file: str
    """As the trace has it, or relative to the project root where the file is one of the project's; empty
    where the trace has no stacks."""
    line: int
    function: str
    exact: bool = False
    """Whether `line` is the line that called; current PyTorch writes the line where the function begins."""
    ours: bool = False
    """Whether the file is one of the project's."""

    @property
    def shown(self) -> str:
        """``train.py:44 in step``; empty where nothing is known."""
        if not self.file:
            return ""
        return f"{self.file}:{self.line}" + (f" in {self.function}" if self.function else "")


NOWHERE = Line("", 0, "")
"""The place of what a trace without stacks has seen."""


@dataclass(frozen=True, slots=True)
class Wait:
    """All the waits of one kind at one place."""

    line: Line
    call: str
    """The runtime's name: ``cudaStreamSynchronize``."""
    kind: WaitKind
    operator: str
    """The outermost operator around it, ``aten::item``; empty where the code called the runtime itself."""
    annotation: str
    """The innermost `record_function` around it that is no step."""
    times: int
    us: float
    """In all."""
    idle_us: float
    """For how long the device stood idle because of these waits: what of the gaps that follow them would be
    closed had the host not waited."""
    gap_us: float
    """How long the gaps in the device's queue are that begin during these waits."""
    longest_us: float
    step_times: tuple[int, ...] = ()
    """How many in each step; what is outside of all steps is missing here."""
    step_us: tuple[float, ...] = ()
    """How long in each step."""

    @property
    def times_in_steps(self) -> int:
        """How many of them fall into a step."""
        return sum(self.step_times)

    @property
    def times_per_step(self) -> float:
        """The mean over steps; 0 where there are none."""
        return sum(self.step_times) / len(self.step_times) if self.step_times else 0.0

    @property
    def us_per_step(self) -> float:
        """The mean over steps; 0 where there are none."""
        return sum(self.step_us) / len(self.step_us) if self.step_us else 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """One step, and the time in which its device had nothing to do, by cause."""

    name: str
    start_us: float
    """From the first event of the trace."""
    us: float
    idle_us: float = 0.0
    waits_us: float = 0.0
    """Idle because the host had waited."""
    late_us: float = 0.0
    """Idle because the host launched too late: its own overhead."""
    input_us: float = 0.0
    """Idle while the host waited for its data loader."""
    waits: int = 0
    launches: int = 0

    @property
    def queued_us(self) -> float:
        """Idle though the next kernel was queued: what the device and its driver need between two."""
        return max(0.0, self.idle_us - self.waits_us - self.late_us - self.input_us)


@dataclass(frozen=True, slots=True)
class Overhead:
    """What one place costs on the host, and what it gives the device to do."""

    line: Line
    operators: int
    """Outermost operators that it calls."""
    launches: int
    host_us: float
    """In its function, without other functions of yours, and without waits."""
    python_us: float
    """Of it, outside of operators and the runtime; 0 where the trace has no stacks."""
    device_us: float
    """What the kernels take that it launches."""
    tiny: int = 0
    """Kernels in chains of kernels that take less time than their launch."""
    fused: int = 0
    """Kernels that `torch.compile` made, or that a graph launched."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How often a function ran."""

    calls: int = 0
    """None of a place that is known from stacks of operators alone."""
    in_steps: int = 0
    """Of its calls, those that began in a step."""
    steps: int = 0
    """The steps in which it was called, or called something."""
    callees: Mapping[Line, int] = field(default_factory=dict)
    """Other functions of the user's that it called, by itself or through libraries, and how often."""


@dataclass(frozen=True, slots=True)
class Depth:
    """How much is queued at some moment."""

    at_us: float
    """From the first event of the trace."""
    launches: int
    """Launched, and not begun."""


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator of a trace."""

    number: int
    name: str
    kernels: int
    busy_us: float
    """In the steps; in the whole trace where there are none."""


@dataclass(frozen=True, slots=True)
class Trace:
    """All that is told of one file."""

    path: str
    rank: int | None
    devices: tuple[Device, ...]
    """The busiest first: what is said of idle times is said of that one."""
    stacks: bool
    """Whether places in Python code are known."""
    marked: bool
    """Whether steps are those of the profiler; else they end with each step of an optimizer, or there are
    none and all of the trace counts as one."""
    steps: tuple[Step, ...]
    waits: tuple[Wait, ...]
    """Those that take longest first."""
    overheads: tuple[Overhead, ...]
    """Those with the most host time first."""
    lead_us: float | None = None
    """From a launch to the start of its kernel, the median: how far the host runs ahead of the device."""
    depths: tuple[Depth, ...] = ()
    events: int = 0
    damage: str = ""
    """Why the file could not be read to its end; empty where it was."""
    functions: Mapping[Line, Ran] | None = None
    """How often functions of the user's ran; None where the trace has no stacks."""

    @property
    def has_steps(self) -> bool:
        """Whether its windows are steps of a training, and not the whole trace as one."""
        return self.marked or len(self.steps) > 1

    @property
    def device(self) -> Device | None:
        """The device that the figures are about."""
        return self.devices[0] if self.devices else None

    @property
    def us(self) -> float:
        """All steps together."""
        return sum(step.us for step in self.steps)

    @property
    def idle_us(self) -> float:
        """Time in which the device had nothing to do."""
        return sum(step.idle_us for step in self.steps)

    @property
    def idle_share(self) -> float:
        """Of all steps; 0 where no device was seen."""
        return self.share(self.idle_us)

    def share(self, us: float) -> float:
        """What part of all steps that is."""
        return us / self.us if self.us and self.devices else 0.0

    @property
    def causes(self) -> Mapping[Host, float]:
        """For how long the host kept the device idle, and by what."""
        return {
            "waits": sum(step.waits_us for step in self.steps),
            "late launches": sum(step.late_us for step in self.steps),
            "input": sum(step.input_us for step in self.steps),
        }

    @property
    def host_bound(self) -> bool | None:
        """Whether less host time would make steps shorter; None where no device was seen, or only a part of
        what happened could be read."""
        if not self.devices or not self.steps or self.damage:
            return None
        return self.share(sum(self.causes.values())) > 1 - BUSY_ENOUGH

    @property
    def queued_us(self) -> float:
        """For how long the device was idle though the next kernel was queued: it waited for other streams,
        other ranks or its driver, not for this host."""
        return sum(step.queued_us for step in self.steps)

    @property
    def number_of_steps(self) -> int:
        """For figures per step: 1 where the trace has no steps."""
        return max(1, len(self.steps))


@dataclass(frozen=True, slots=True)
class Joined:
    """What a trace and the linter say of one place in the project, together."""

    line: Line
    waits: tuple[Wait, ...]
    overhead: Overhead | None
    findings: tuple[Finding, ...]
    """Of the line; where a trace knows only the function, those in it that can make such waits."""
    suspects: Mapping[Wait, tuple[Finding, ...]] | None = None
    """Which of the findings can be behind each wait; None where that was not looked at, and all can."""

    def behind(self, wait: Wait) -> tuple[Finding, ...]:
        """Those of the findings that can be why the host waited."""
        return self.findings if self.suspects is None else self.suspects.get(wait, ())

    @property
    def us_per_step(self) -> float:
        """How long the host waits here in a step, the mean."""
        return sum(wait.us_per_step for wait in self.waits)


@dataclass(frozen=True, slots=True)
class Told:
    """One trace, joined with the project that was traced."""

    trace: Trace
    joined: tuple[Joined, ...] = ()
    """Places of the project, those with the longest waits first."""

    @property
    def unknown(self) -> tuple[Wait, ...]:
        """Waits for which the linter has nothing."""
        places = {joined.line: joined for joined in self.joined}
        return tuple(
            wait
            for wait in self.trace.waits
            if wait.line not in places or not places[wait.line].behind(wait)
        )


@dataclass(frozen=True, slots=True)
class TraceLimits:
    """What a trace may have at most; None where there is no limit."""

    waits_per_step: float | None = None
    """Waits of the host for the device; in the whole trace where it has no steps."""
    idle_share: float | None = None
    """The share of the steps in which the device has nothing to do."""


@dataclass(frozen=True, slots=True)
class CheckedTrace:
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
        limits = asdict(self.limits)
        return tuple(
            name
            for name, figure in figures.items()
            if limits[name] is not None and figure > limits[name]
        )

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
        return self.limits != TraceLimits()

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
