"""One trace file, from its bytes to what it tells."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from pytest_dispatchguard.model.traces import Device, Overhead, Ran, Step, Trace, Wait
from pytest_dispatchguard.traces.frames import Files
from pytest_dispatchguard.traces.idle import Windows, windows
from pytest_dispatchguard.traces.recorded import Recorded, read
from pytest_dispatchguard.traces.replay import Replay, Waits, Watch, depths
from pytest_dispatchguard.traces.stream import Tell
from pytest_dispatchguard.traces.timeline import Timeline

_POINTS = 200
"""Of the line that shows how much was queued."""


def analyzed(
    path: Path, files: Files | None = None, tell: Tell | None = None, watch: Watch | None = None
) -> Trace:
    """What a trace tells. `files` are those of the project, whose places are preferred; `tell` is told how
    many bytes are read, of how many; `watch` is told of single waits, idle times and calls."""
    with Timeline() as timeline:
        recorded = read(path, timeline, files or Files(), tell)
        steps, marked = windows(recorded.steps, recorded.optimized, recorded.first, recorded.last)
        replay = Replay(recorded, steps, watch)
        replay.run(timeline)
        return _trace(recorded, replay, steps, marked)


def _trace(recorded: Recorded, replay: Replay, steps: Windows, marked: bool) -> Trace:
    by_work = sorted(replay.devices.items(), key=lambda item: -item[1].busy)
    devices = tuple(
        Device(number, recorded.device_name(number), sums.kernels, round(sums.busy, 3))
        for number, sums in ((recorded.devices.items[lane], sums) for lane, sums in by_work)
    )
    sums = by_work[0][1].steps if by_work else None
    first = recorded.first
    told = []
    for n in range(len(steps)):
        start, end = steps.starts[n], steps.ends[n]
        own = sums[n] if sums else None
        told.append(
            Step(
                steps.names[n],
                round(start - first, 3),
                round(end - start, 3),
                round(own.idle, 3) if own else 0.0,
                round(own.waits, 3) if own else 0.0,
                round(own.late, 3) if own else 0.0,
                round(own.input, 3) if own else 0.0,
                replay.step_waits[n],
                replay.step_launches[n],
            )
        )
    busiest = devices[0].number if devices else None
    waits = [_wait(one, len(steps), busiest) for one in replay.waits.values()]
    leads = [lead for _, lead, _ in replay.samples.values]
    functions = None
    if recorded.stacks:
        functions = {
            line: Ran(costs.calls, costs.in_steps, costs.steps, costs.callees)
            for line, costs in replay.costs.items()
            if line.file and (costs.calls or costs.steps)
        }
    return Trace(
        path=str(recorded.path),
        rank=recorded.rank,
        devices=devices,
        stacks=recorded.stacks,
        marked=marked,
        steps=tuple(told),
        waits=tuple(sorted(waits, key=lambda one: (-one.us, one.line, one.call, one.operator))),
        overheads=_overheads(replay),
        lead_us=round(median(leads), 3) if leads else None,
        depths=depths(replay.samples, first, _POINTS),
        events=recorded.header.events,
        damage=recorded.header.damage,
        functions=functions,
    )


def _wait(waits: Waits, steps: int, device: int | None) -> Wait:
    by_step = [waits.by_step.get(n, (0, 0.0)) for n in range(steps)]
    return Wait(
        line=waits.line,
        call=waits.call,
        kind=waits.kind,
        operator=waits.operator,
        annotation=waits.annotation,
        times=waits.times,
        us=round(waits.us, 3),
        idle_us=round(waits.idle.get(device, 0.0), 3) if device is not None else 0.0,
        gap_us=round(waits.gap.get(device, 0.0), 3) if device is not None else 0.0,
        longest_us=round(waits.longest, 3),
        step_times=tuple(int(times) for times, _ in by_step),
        # Steps without any, most of them, share one zero.
        step_us=tuple(us and round(us, 3) for _, us in by_step),
    )


def _overheads(replay: Replay) -> tuple[Overhead, ...]:
    told = [
        Overhead(
            line=line,
            operators=costs.operators,
            launches=costs.launches,
            host_us=round(max(0.0, costs.host), 3),
            python_us=round(max(0.0, costs.host - costs.inside), 3) if costs.calls else 0.0,
            device_us=round(costs.device, 3),
            tiny=costs.tiny,
            fused=costs.fused,
        )
        for line, costs in replay.costs.items()
        if costs.operators or costs.launches or costs.calls
    ]
    return tuple(sorted(told, key=lambda one: (-one.host_us, one.line)))
