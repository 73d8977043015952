"""What torch's dispatcher takes of chains of small operations, on today's torch, and of building lazy traces.

    python bench/dispatcher_study.py [--seconds N]

A study of lazy tensors let operations skip torch's dispatcher altogether, and gained 10 to 12% on chains of
8 to 32 additions, subtractions, multiplications and divisions of square tensors of 100 to 10,000 a side, less
as tensors grew, whether the graph was executed or not. Here the same chains run in several ways, in short
blocks that take turns: as users write them, in inference mode, below the keys of autograd, on tensors without
elements, on meta tensors, without Python, and on torch's lazy device. Ratios are paired, with intervals.

What does not depend on the size is measured on tensors without elements: Python's binding, the keys of
autograd, the dispatcher, and what follows it up to the kernel. Written to bench/results/dispatcher.json,
dispatcher.md and dispatcher.svg, which the docs show.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bench_lint import BenchError, machine, version_of

from pytest_dispatchguard.model.measurements import Interval

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "dispatcher.json"
LENGTHS = (8, 16, 32)
SMALL = (10, 30, 100, 300)
"""Elements a side of tensors that all ways run on; the first two are below the study's."""
LARGE = 1000
"""Where a chain takes long, and the same is told by fewer ways."""
LARGEST = 10_000
LARGEST_SECONDS = 60.0
LEAST_ROUNDS = 2
"""Of the largest, whatever they take."""
STUDY = (0.10, 0.12)
"""The gain of the study, as parts of the time."""
CONFIDENCE = 0.99
NAMES = ("add", "sub", "mul", "div")
SIGNS = dict(zip(NAMES, "+-*/", strict=True))

WHOLE = "eager"
WAYS = {
    WHOLE: "as users write it: Python, grad mode on, no tensor that needs a gradient",
    "inference mode": "tensors made in inference mode, and used there",
    "below autograd": "Python, keys of autograd, of views and of writing in place left out",
    "without Python": "the chain in a loop of TorchScript's interpreter, nothing optimised",
    "without Python, below autograd": "that loop with the keys of autograd left out",
    "no elements": "as users write it, on tensors without elements",
    "no elements, below autograd": "as users write it, with the keys of autograd left out",
    "no elements, without Python": "the loop on tensors without elements",
    "no elements, without Python, below autograd": "that loop with the keys of autograd left out",
    "dispatcher": "a loop of is_same_size for each operation: it finds its kernel, which does nothing",
    "meta": "as users write it, on meta tensors",
    "lazy, traced": "torch's lazy device, the trace built and dropped",
    "lazy, traced below autograd": "that with the keys of autograd left out",
    "lazy, executed": "torch's lazy device, with mark_step after each chain",
}
LARGE_WAYS = (WHOLE, "inference mode", "below autograd", "lazy, traced", "lazy, executed")
LARGEST_WAYS = (WHOLE, "inference mode", "lazy, executed")
META = "meta"
"""Measured once: in torch 2.13 it runs hundreds of Python functions for each operation."""
TRACED, TRACED_BELOW = "lazy, traced", "lazy, traced below autograd"
EMPTY, EMPTY_KEYLESS, EMPTY_LOOP, EMPTY_BELOW = (n for n in WAYS if n.startswith("no elements"))
LAYERS: Mapping[str, Mapping[str, float]] = {
    "keys of autograd": {EMPTY: 1, EMPTY_KEYLESS: -1},
    "Python's binding": {EMPTY_KEYLESS: 1, EMPTY_BELOW: -1},
    "dispatcher": {"dispatcher": 1},
    "from there to the kernel": {EMPTY_BELOW: 1, "dispatcher": -1},
    "kernel and memory": {WHOLE: 1, EMPTY: -1},
}
"""The parts of the whole, each a sum of ways times factors. They add up to it by their making."""
KERNEL = "kernel and memory"
SKIPPED = ("keys of autograd", "dispatcher")
"""What is gone where an operation skips the dispatcher."""
BOTH = "both"
IN_LOOP = "keys of autograd in the loop"
"""The same layer without Python around it."""

Row = dict[str, Any]
Figures = dict[str, float | None]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="for each size and length")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    try:
        results = measure(options.seconds)
    except BenchError as error:
        print(f"dispatcher_study: {error}", file=sys.stderr)
        return 2
    text = page(results)
    options.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    options.output.with_suffix(".md").write_text(text, encoding="utf-8")
    options.output.with_suffix(".svg").write_text(plot(results), encoding="utf-8")
    print(text)
    return 0


# -- what is measured --------------------------------------------------------------------------------


def measure(seconds: float) -> dict[str, Any]:
    """All sizes and lengths."""
    try:
        import torch
    except ImportError:
        raise BenchError("torch is not installed here") from None

    from pytest_dispatchguard.measure.timing import devices
    from pytest_dispatchguard.runtime.aten_loops import as_they_are

    started = time.monotonic()
    torch.set_num_threads(1)
    missing = devices.started(devices.LAZY)
    load = [round(os.getloadavg()[0], 2)]
    every = [way for way in WAYS if not missing or not way.startswith("lazy")]
    usual = [way for way in every if way != META]
    rows: list[Row] = []
    with as_they_are():
        for size in SMALL:
            for length in LENGTHS:
                first = not rows
                rows.append(measured(length, size, seconds, every if first else usual))
    fixed = {row["operations"]: row["fixed_us"] for row in rows if row["size"] == SMALL[0]}
    for length in LENGTHS:
        rows.append(measured(length, LARGE, seconds / 2, [w for w in every if w in LARGE_WAYS]))
        rows[-1] |= shares(fixed[length], rows[-1]["whole_us"])
    rows.append(few_rounds(LENGTHS[0], LARGEST, [w for w in every if w in LARGEST_WAYS]))
    rows[-1] |= shares(fixed[LENGTHS[0]], rows[-1]["whole_us"])
    load.append(round(os.getloadavg()[0], 2))
    return {
        "machine": {**machine(), "torch": version_of("torch"), "load_before_and_after": load},
        "confidence": CONFIDENCE,
        "study": STUDY,
        "lazy": missing or "here",
        "ways": WAYS,
        "rows": rows,
        "seconds": round(time.monotonic() - started),
    }


def measured(length: int, size: int, seconds: float, names: Sequence[str]) -> Row:
    """One chain on tensors of one size, in some ways by turns."""
    from pytest_dispatchguard.measure.timing.interleaved import time_interleaved

    say(f"{length} operations on tensors of {size} a side")
    arms = {name: way() for name, way in ways(length, size).items() if name in names}
    found = time_interleaved(arms, seconds=seconds, confidence=CONFIDENCE)
    whole = found.us({WHOLE: 1}).value
    row = {
        "operations": length,
        "size": size,
        "rounds": found.rounds,
        "whole_us": round(whole, 3),
        "us": {name: round(found.us({name: 1}).value, 3) for name in arms},
        "ratio": {name: figures(found.us({name: 1}), whole) for name in arms},
    }
    if EMPTY in arms:
        empty = led_by(found, EMPTY)
        parts = {name: parts for name, parts in LAYERS.items() if name != KERNEL}
        parts |= {BOTH: total(SKIPPED), IN_LOOP: {EMPTY_LOOP: 1, EMPTY_BELOW: -1}}
        row["fixed_us"] = {name: figures(empty.us(sum_)) for name, sum_ in parts.items()}
        row["share"] = {
            name: figures(found.us(sum_), whole)
            for name, sum_ in {**LAYERS, BOTH: total(SKIPPED)}.items()
        }
    if TRACED_BELOW in arms:
        traced = led_by(found, TRACED)
        trace = traced.us({TRACED: 1}).value
        keys = {TRACED: 1.0, TRACED_BELOW: -1.0}
        sums = {
            SKIPPED[0]: keys,
            SKIPPED[1]: {"dispatcher": 1.0},
            BOTH: {**keys, "dispatcher": 1.0},
        }
        row["of_trace"] = {name: figures(traced.us(sum_), trace) for name, sum_ in sums.items()}
    return row


def led_by(found: Any, name: str) -> Any:
    """The same rounds with another way as the one that differences are paired with."""
    return replace(found, times={name: found.times[name], **found.times})


def shares(fixed: Mapping[str, Figures], whole: float) -> Row:
    """Layers of a chain on large tensors: what does not depend on the size as it was measured on small ones,
    as parts of a whole beside which differences of ways would say nothing."""
    found = {
        name: {end: v / whole if v is not None else None for end, v in ends.items()}
        for name, ends in fixed.items()
    }
    rest = 1 - sum(ends["value"] or 0.0 for name, ends in found.items() if name in LAYERS)
    return {"share": {**found, KERNEL: {"value": rest, "low": None, "high": None}}}


def total(layers: Sequence[str]) -> dict[str, float]:
    """Layers as one sum of ways."""
    parts: dict[str, float] = {}
    for layer in layers:
        for way, factor in LAYERS[layer].items():
            parts[way] = parts.get(way, 0.0) + factor
    return parts


def figures(interval: Interval, of: float = 1.0) -> Figures:
    """A figure with its interval, as a part of another; ends that nobody knows are null."""
    found = {"value": interval.value, "low": interval.low, "high": interval.high}
    return {n: round(v / of, 6) if math.isfinite(v) else None for n, v in found.items()}


def few_rounds(length: int, size: int, names: Sequence[str]) -> Row:
    """Of tensors so large that one chain takes seconds: as many rounds as there is time for."""
    say(f"{length} operations on tensors of {size} a side")
    arms = {name: way() for name, way in ways(length, size).items() if name in names}
    times: dict[str, list[float]] = {name: [] for name in arms}
    start = time.monotonic()
    took = 0.0
    while len(times[WHOLE]) < LEAST_ROUNDS or time.monotonic() - start + took < LARGEST_SECONDS:
        begun = time.monotonic()
        for name in random.sample(list(arms), len(arms)):
            arms[name].fresh()
            with arms[name].around():
                times[name].append(arms[name].block([None]) / 1000)
        took = time.monotonic() - begun
    whole = statistics.median(times[WHOLE])
    ratios = {
        name: [a / b for a, b in zip(found, times[WHOLE], strict=True)]
        for name, found in times.items()
    }
    return {
        "operations": length,
        "size": size,
        "rounds": len(times[WHOLE]),
        "whole_us": round(whole),
        "ratio": {
            name: {"value": round(statistics.median(found), 4), "low": None, "high": None}
            for name, found in ratios.items()
        },
        "seen": {name: [round(r, 4) for r in found] for name, found in ratios.items()},
    }


# -- the ways ----------------------------------------------------------------------------------------


def ways(length: int, size: int) -> dict[str, Callable[[], Any]]:
    """Every way to run a chain: what makes it an arm that takes its turn."""
    import torch

    from pytest_dispatchguard.measure.layers.replays import loop_arm
    from pytest_dispatchguard.measure.timing.interleaved import Arm
    from pytest_dispatchguard.runtime.aten_loops import Operation
    from pytest_dispatchguard.runtime.torch_private import dispatcher, lazy_backend

    below = dispatcher.below_autograd
    execute = lazy_backend.lazy_trace_executed

    def inference() -> Any:
        with torch.inference_mode():
            pair = made(size, size)
        return Arm(chain(length, pair), torch.inference_mode)

    def dispatcher() -> Any:
        nothing = Operation(torch.ops.aten.is_same_size.default, made(0, size))
        return loop_arm([nothing] * length, time.perf_counter_ns, below)

    def lazy(around: Any = nullcontext, after: Callable[[], object] | None = None) -> Any:
        return Arm(chain(length, made(size, size, device="lazy"), after), around, execute)

    return {
        WHOLE: lambda: Arm(chain(length, made(size, size))),
        "inference mode": inference,
        "below autograd": lambda: Arm(chain(length, made(size, size)), below),
        "without Python": lambda: looped(length, made(size, size)),
        "without Python, below autograd": lambda: looped(length, made(size, size), below),
        EMPTY: lambda: Arm(chain(length, made(0, size))),
        EMPTY_KEYLESS: lambda: Arm(chain(length, made(0, size)), below),
        EMPTY_LOOP: lambda: looped(length, made(0, size)),
        EMPTY_BELOW: lambda: looped(length, made(0, size), below),
        "dispatcher": dispatcher,
        META: lambda: Arm(chain(length, made(size, size, device="meta"))),
        TRACED: lazy,
        TRACED_BELOW: lambda: lazy(below),
        "lazy, executed": lambda: lazy(after=torch._lazy.mark_step),
    }


def made(*shape: int, device: str = "cpu") -> list[Any]:
    """Two tensors that a chain can go on with for ever."""
    import torch

    return [torch.rand(shape, device=device) + 1 for _ in range(2)]


def chain(length: int, pair: Sequence[Any], after: Callable[[], object] | None = None) -> Any:
    """A block of chains as users write them."""
    from pytest_dispatchguard.measure.timing.calling import block_of

    lines = [f"r = {'r' if i else 'x'} {SIGNS[NAMES[i % 4]]} y" for i in range(length)]
    values = {"x": [pair[0]], "y": [pair[1]]}
    if after is not None:
        lines.append("after()")
        values["after"] = [after]
    return block_of(lines, values, time.perf_counter_ns)


def looped(
    length: int,
    pair: Sequence[Any],
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Any:
    """The same chains in a loop below Python, results freed where Python frees them."""
    import torch

    from pytest_dispatchguard.measure.layers.replays import timed
    from pytest_dispatchguard.measure.timing.interleaved import Arm
    from pytest_dispatchguard.runtime.aten_loops import loop_of

    body = "\n".join(
        f"      %r{i + 1} : Tensor = aten::{name}(%r{i}, %y{', %one' * (name in ('add', 'sub'))})"
        for i, name in ((i, NAMES[i % 4]) for i in range(length))
    )
    source = (
        "graph(%times : int, %x : Tensor, %y : Tensor):\n"
        "  %on : bool = prim::Constant[value=1]()\n"
        "  %one : int = prim::Constant[value=1]()\n"
        "  %last : Tensor = prim::Loop(%times, %on, %x)\n"
        "    block0(%i : int, %before : Tensor):\n"
        f"{body.replace('%r0', '%x')}\n"
        f"      -> (%on, %r{length})\n"
        "  return (%last)\n"
    )
    function = torch._C._create_function_from_graph("chain", torch._C.parse_ir(source))
    bare = loop_of([])
    with around():
        function(2, *pair)
    bare(2)
    clock = time.perf_counter_ns
    return Arm(
        timed(lambda times: function(times, *pair), clock),
        around,
        empty=timed(bare, clock),
        least=5,  # to begin a loop takes as long as some operations
    )


# -- results -----------------------------------------------------------------------------------------


def page(results: Mapping[str, Any]) -> str:
    """The tables, for people."""
    about, rows = results["machine"], results["rows"]
    low, high = (f"{part:.0%}" for part in results["study"])
    loads = " and ".join(map(str, about["load_before_and_after"]))
    intro = (
        f"Written by `make bench-dispatcher` in {results['seconds']} s: {about['cpu']}, {about['cores']} "
        f"cores, Python {about['python']}, torch {about['torch']}, one thread; load {loads} before and "
        "after. Chains of add, sub, mul and div of two square tensors (float32). In brackets intervals of "
        f"{results['confidence']:.0%}. Layers of tensors of {LARGE:,} a side and more are those of the "
        f"smallest tensors over the larger whole. Of {LARGEST:,} a side there is one length, and the few "
        "rounds that 5 minutes for the whole study leave room for, hence no interval."
    )
    skipped = (
        f"`skipped` is what an operation saves that skips the dispatcher: {' and '.join(SKIPPED)}. The "
        f"study: {low} to {high}, less as tensors grow. Keys are what leaving them out saves from Python, "
        "where they take more than in a loop of nothing else."
    )
    lines = [
        "# The dispatcher's share of chains of small operations",
        "",
        intro,
        "",
        "## What an operation takes whatever its tensors' size, in µs",
        "",
        *table(["layer", *(f"{n} operations" for n in LENGTHS)], fixed_rows(rows)),
        "",
        "## Layers, as parts of the eager chain",
        "",
        skipped,
        "",
        *table(
            ["side", "operations", "eager, µs an operation", *LAYERS, "skipped"], share_rows(rows)
        ),
        "",
        "## The ways, as parts of the eager chain",
        "",
        *table(["way", *(f"{r['size']:,} x {r['operations']}" for r in rows)], way_rows(rows)),
        "",
        *(f"- {name}: {about}" for name, about in results["ways"].items()),
        "",
    ]
    if results["lazy"] == "here":
        lines += [
            "## What skipping the dispatcher would save of building a lazy trace",
            "",
            f"Nothing is computed. The study: {low} to {high}.",
            "",
            *table(
                ["side", "operations", "trace, µs an operation", *SKIPPED, "both"], trace_rows(rows)
            ),
            "",
        ]
    else:
        lines += [f"Nothing lazy was measured: {results['lazy']}.", ""]
    return "\n".join(lines)


def fixed_rows(rows: Sequence[Row]) -> list[list[str]]:
    first = {row["operations"]: row for row in rows if row["size"] == SMALL[0]}
    return [
        [name, *(shown(row["fixed_us"][name], partial(each, n)) for n, row in first.items())]
        for name in (*LAYERS, IN_LOOP)
        if name != KERNEL
    ]


def each(operations: int, chain_us: float) -> str:
    return f"{chain_us / operations:.3f}"


def share_rows(rows: Sequence[Row]) -> list[list[str]]:
    found = []
    for row in rows:
        whole = f"{row['whole_us'] / row['operations']:,.2f}"
        cells = [shown(row["share"][name], per_cent) for name in (*LAYERS, BOTH)]
        found.append([f"{row['size']:,}", str(row["operations"]), whole, *cells])
    return found


def way_rows(rows: Sequence[Row]) -> list[list[str]]:
    return [[name, *(shown(row["ratio"].get(name), three) for row in rows)] for name in WAYS]


def trace_rows(rows: Sequence[Row]) -> list[list[str]]:
    return [
        [
            f"{row['size']:,}",
            str(row["operations"]),
            f"{row['us'][TRACED] / row['operations']:.2f}",
            *(shown(row["of_trace"][name], per_cent) for name in (*SKIPPED, BOTH)),
        ]
        for row in rows
        if "of_trace" in row
    ]


def shown(figures: Figures | None, said: Callable[[float], str]) -> str:
    """A figure with its interval, where it has one."""
    if figures is None or figures["value"] is None:
        return ""
    value, low, high = said(figures["value"]), figures["low"], figures["high"]
    if low is None or high is None or said(low) == said(high):
        return value
    return f"{value} ({said(low)} to {said(high)})"


def per_cent(part: float) -> str:
    if 0 < part < 0.0001:
        return "<0.01%"
    return f"{part:.1%}" if abs(part) >= 0.01 else f"{part:.2%}"


def three(number: float) -> str:
    return f"{number:.2f}" if number < 10 else f"{number:.0f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def plot(results: Mapping[str, Any]) -> str:
    """The share of the dispatcher over the size of tensors."""
    from pytest_dispatchguard.report.charts.charts import Caption, Mark, Series, lines

    about, rows = results["machine"], results["rows"]

    def of(row: Row, layer: str, key: str) -> tuple[float, Interval]:
        value, low, high = (row[key][layer][end] for end in ("value", "low", "high"))
        known = value if low is None else low, value if high is None else high
        return float(row["size"]), Interval(100 * value, 100 * known[0], 100 * known[1])

    series = [
        Series(
            f"eager, {length} operations",
            tuple(of(row, BOTH, "share") for row in rows if row["operations"] == length),
        )
        for length in LENGTHS
    ]
    traces = [row for row in rows if "of_trace" in row and row["operations"] == LENGTHS[1]]
    if traces:
        series.append(
            Series(
                f"lazy trace, {LENGTHS[1]} operations",
                tuple(of(row, BOTH, "of_trace") for row in traces),
            )
        )
    caption = Caption(
        "What skipping the dispatcher would save",
        f"chains of add, sub, mul and div, square tensors; {about['cpu']}, {about['cores']} cores, "
        f"Python {about['python']}, torch {about['torch']}",
    )
    study = Mark("the study's gain", *(100 * part for part in results["study"]))
    return lines(
        caption,
        series,
        log_x=True,
        levels=[study],
        x_label="elements a side",
        y_label="% of the time of the chain",
    )


def say(text: str) -> None:
    print(f"dispatcher_study: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
