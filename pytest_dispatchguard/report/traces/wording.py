"""What is said of a trace in every format: the verdict with its evidence, how far the host runs ahead,
places, and how to record what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.model.traces import BUSY_ENOUGH, Line, Trace
from pytest_dispatchguard.report.wording import count, duration

STACKS = (
    "The trace has no stacks, so waits are shown by operator and by `record_function`. To see lines, record "
    "with `profile(with_stack=True, ...)`; for the call stacks of operators too, add "
    "`experimental_config=torch._C._profiler._ExperimentalConfig(verbose=True)`."
)
STEPS = (
    "The profiler marked no steps: call `prof.step()` after each, with a `schedule` of several active "
    "steps."
)
_WORTH_A_WORD = 0.01
"""A part of a step that is worth a word."""
_ALSO = 0.05
"""A part of a step that is worth work after the largest."""


def percent(share: float) -> str:
    """``48%``; what is there but not a hundredth is ``<1%``."""
    if 0 < share < 0.01:
        return "<1%"
    if 0.99 < share < 1:
        return ">99%" if share >= 0.995 else "99%"
    return f"{share:.0%}"


def place(line: Line, findings: Sequence[Finding] = (), shown: Callable[[str], str] = str) -> str:
    """``train.py:44 in step``. Where a trace knows the function alone, its first line is told with it, unless
    the linter knows better: ``in step (train.py:40)``. Empty where nothing is known."""
    if not line.file:
        return ""
    file = shown(line.file) if line.ours else line.file
    lines = {(finding.elsewhere or finding).span.line for finding in findings}
    if not line.exact and len(lines) == 1:
        return f"{file}:{lines.pop()} in {line.function}"
    if not line.exact and line.function:
        return f"in {line.function} ({file}:{line.line})"
    return f"{file}:{line.line}" + (f" in {line.function}" if line.function else "")


def called(call: str, operator: str, annotation: str) -> str:
    """``cudaStreamSynchronize in aten::to in my range``."""
    return " in ".join(filter(None, (call, operator, annotation)))


def verdict(trace: Trace, waits: str = "waits") -> str:
    """Whether the host keeps the device idle, in one sentence with the evidence; `waits` says which do."""
    if trace.damage:
        return (
            f"the file is damaged: {trace.damage}; idle times cannot be told from a part, and what follows "
            "is of the part that could be read"
        )
    if not trace.devices:
        return (
            "no device in this trace: it was recorded on a CPU, or without the device's activity "
            "(`ProfilerActivity.CUDA`), so nothing can be said of waits and idle times"
        )
    if not trace.us:
        return "nothing in this trace takes time"
    idle = trace.idle_share
    if trace.host_bound:
        return (
            f"the device is idle {percent(idle)} of {_unit(trace)}: {', '.join(_parts(trace, waits))}; "
            f"{_work(trace)}"
        )
    if idle < 1 - BUSY_ENOUGH:
        return (
            f"the device is busy {percent(1 - idle)} of {_unit(trace)}: nothing on the host will make "
            f"{_unit(trace)} much shorter"
        )
    host = trace.share(sum(trace.causes.values()))
    rest = f"; {percent(host)} stands behind the host" if host >= _WORTH_A_WORD else ""
    queued = trace.share(trace.queued_us)
    almost = "" if round(queued, 2) == round(idle, 2) else f", {percent(queued)}"
    return (
        f"the device is idle {percent(idle)} of {_unit(trace)}{almost} though the next kernel is queued: "
        f"it waits for other streams, other ranks or its driver, not for this host{rest}"
    )


def _unit(trace: Trace) -> str:
    return "a step" if trace.has_steps else "the trace"


def _parts(trace: Trace, waits: str) -> list[str]:
    """What stands behind idle times, the largest first."""
    causes = trace.causes
    told = [
        (causes["waits"], f"behind {waits}"),
        (causes["late launches"], "behind launches that come too late"),
        (causes["input"], "behind the data loader"),
        (trace.queued_us, "though the next kernel is queued"),
    ]
    told.sort(key=lambda pair: -pair[0])
    shares = [(trace.share(us), words) for us, words in told]
    return [
        f"{percent(share)} {words}"
        for number, (share, words) in enumerate(shares)
        if share >= _WORTH_A_WORD or (number == 0 and share > 0)
    ]


def _work(trace: Trace) -> str:
    names = {"waits": "the waits", "late launches": "host overhead", "input": "the data loader"}
    rows = sorted(trace.causes.items(), key=lambda row: -row[1])
    first, *rest = [names[cause] for cause, us in rows if trace.share(us) >= _ALSO] or [
        names[rows[0][0]]
    ]
    if rest:
        return f"work on {first} first, then on {' and '.join(rest)}"
    return f"{first} {'are' if first == 'the waits' else 'is'} what to work on"


def about(trace: Trace) -> str:
    """How many steps of what length, on what: ``6 steps of 175 ms on Tesla V100``."""
    steps = len(trace.steps)
    told = f"{count(steps, 'step')} of {duration(trace.us / steps)}" if steps else "no steps"
    if not trace.marked and steps == 1:
        told = f"{duration(trace.us)} without marked steps"
    device = trace.device
    if device is not None:
        told += f" on {device.name or f'device {device.number}'}"
    if len(trace.devices) > 1:
        told += f" (the busiest of {len(trace.devices)} devices)"
    return f"rank {trace.rank}: {told}" if trace.rank is not None else told


def lead(trace: Trace) -> str:
    """How far the host runs ahead; empty where no launch was seen to start anything."""
    if trace.lead_us is None:
        return ""
    told = (
        f"the host runs {duration(trace.lead_us)} ahead of the device (from a launch to the start of its "
        "kernel, the median)"
    )
    if trace.depths:
        queued = [depth.launches for depth in trace.depths]
        most = max(queued)
        told += (
            f", with {median(queued):.0f} launches queued, {most} at most"
            if most
            else ", and nothing is ever queued"
        )
    return told


def hints(traces: Iterable[Trace], root: str, *, linted: bool) -> list[str]:
    """What would tell more: stacks, steps, the files of the project."""
    traces = list(traces)
    told = []
    if any(not trace.stacks for trace in traces):
        told.append(STACKS)
    if any(not trace.marked for trace in traces):
        told.append(STEPS)
    lines = [line for trace in traces for line in _lines(trace)]
    if linted and lines and not any(line.ours for line in lines):
        told.append(
            f"No file of the trace is one of the project at {root}: name the project with --project, or say "
            "where its files are with --map FROM=TO."
        )
    return told


def _lines(trace: Trace) -> list[Line]:
    found = [*(wait.line for wait in trace.waits), *(cost.line for cost in trace.overheads)]
    return [line for line in found if line.file]
