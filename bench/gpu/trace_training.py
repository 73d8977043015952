"""A training traced on a GPU, and what is told of its trace held against the waits that were planted in it.

    python bench/gpu/trace_training.py
    python bench/gpu/trace_training.py --dry    # on the CPU: no waits, but all functions

The trace is kept beside the results.

Exit status: 0 if every planted wait is told at its function, as often as it happens, and no other; 1 if not,
2 if there is no GPU.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench_lint import HOME, machine
from gpu import training
from publishing import RESULTS, checked_page, publish, table

from pytest_dispatchguard.model.traces import Trace, Wait
from pytest_dispatchguard.traces.analysis import analyzed
from pytest_dispatchguard.traces.frames import Files

STEPS, BEFORE = 5, 3
"""Steps that are traced, and steps before them: one of torch's own setting up, two of the profiler's."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dry", action="store_true", help="on the CPU")
    parser.add_argument("--output", type=Path, default=RESULTS / "gpu" / "trace.json")
    options = parser.parse_args(arguments)
    if not options.dry and not torch.cuda.is_available():
        print("trace_training: there is no GPU here", file=sys.stderr)
        return 2
    device = torch.device("cpu" if options.dry else "cuda")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    file = options.output.with_name(f"{options.output.stem}d.json.gz")
    traced(device, file)
    here = Path(training.__file__).relative_to(HOME).as_posix()
    trace = analyzed(file, Files.of([here]))
    wrong = [*wrong_functions(trace), *wrong_waits(trace, device)]
    results = {
        "machine": {**machine(), "torch": torch.__version__, "device": device.type},
        "events": trace.events,
        "idle_share": trace.idle_share,
        "causes_us": dict(trace.causes),
        "steps": [asdict(step) for step in trace.steps],
        "waits": [asdict(wait) for wait in trace.waits],
        "wrong": wrong,
    }
    publish(options.output, results, page(results))
    return 1 if wrong else 0


def traced(device: torch.device, file: Path) -> None:
    """Runs the training under the profiler, with stacks."""
    torch.set_num_threads(1)
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(
        activities=activities,
        schedule=schedule(wait=1, warmup=BEFORE - 1, active=STEPS),
        with_stack=True,
    ) as profiler:
        for _ in training.train(device, BEFORE + STEPS):
            profiler.step()
    profiler.export_chrome_trace(str(file))


def wrong_functions(trace: Trace) -> list[str]:
    """What is wrong with the steps and the functions that the trace is said to have."""
    wrong = [f"the trace is damaged: {trace.damage}"] if trace.damage else []
    if len(trace.steps) != STEPS or not trace.marked:
        wrong.append(f"{len(trace.steps)} steps are told, {STEPS} were traced")
    called: Counter[str] = Counter()
    for line, ran in (trace.functions or {}).items():
        called[line.function] += ran.calls if line.ours else 0
    for function in (*training.PLANTED, training.weights_moved.__name__):
        if called[function] != STEPS:
            wrong.append(f"{function} was called {STEPS} times, told are {called[function]}")
    return wrong


def wrong_waits(trace: Trace, device: torch.device) -> list[str]:
    """Planted waits that are not told, and others that are."""
    planted = training.PLANTED if device.type == "cuda" else {}
    told: Counter[str] = Counter()
    for wait in trace.waits:
        if not of_the_profiler(wait):
            told[wait.line.function] += sum(wait.step_times)
    return [
        f"{function or 'no function'}: {STEPS * planted.get(function, 0)} waits are planted, "
        f"{told[function]} told"
        for function in sorted({*planted, *told})
        if told[function] != STEPS * planted.get(function, 0)
    ]


def of_the_profiler(wait: Wait) -> bool:
    """It waits for the device itself, in no function of the training, when it ends."""
    return wait.kind == "device" and wait.line.function not in training.PLANTED


def page(results: Mapping[str, Any]) -> str:
    """The waits for people."""
    about = results["machine"]
    rows = [
        (
            f"{wait['line']['file']}:{wait['line']['line']} {wait['line']['function']}".strip(": "),
            wait["call"],
            wait["operator"],
            str(wait["times"]),
            f"{wait['us']:,.1f}",
            f"{wait['idle_us']:,.1f}",
        )
        for wait in results["waits"]
    ]
    head = ("function", "call", "operator", "times", "µs", "idle µs")
    said = (
        f"{len(results['steps'])} steps on {about['device']}, torch {about['torch']}: "
        f"the device is idle for {results['idle_share']:.0%} of them."
    )
    body = table(head, rows) if rows else ["No waits."]
    return checked_page("A traced training", said, body, results["wrong"])


if __name__ == "__main__":
    sys.exit(main())
