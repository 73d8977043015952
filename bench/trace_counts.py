"""How much of what torch.compile takes is told by counts of dispatches, over models and what users change.

    python bench/trace_counts.py [--draw]

A notebook on trace time counted calls of `__torch_dispatch__`, 72,549 of FakeTensor and 115,542 of
FakeTensorMode for one model, and cut compile time by making fewer: counts explained what timings could not.
Here a conv net with branches, a transformer and hashing attention as in Reformer (bench/trace_models.py) are
compiled as they are written, with dynamic shapes, and with changes that a user can make. Each is compiled
anew at least twice, without torch's caches, and counted as budgets count.

Seconds are those of this process's processor: what else runs on the machine is no part of them, nor is the
C++ compiler, which works in processes of its own. Seconds by part of the compiler are torch's, of the clock.
How much of the seconds each count explains is told by the correlation of their logarithms over all of these.
Written to bench/results/traces.json, traces.md and traces.svg, which the docs show.
"""

from __future__ import annotations

import logging
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from publishing import study, table, where, written_by

from pytest_dispatchguard.model.measurements import Interval

NOTEBOOK = {"fake_dispatches": 72_549, "fake_mode_dispatches": 115_542}
COUNTERS = (
    "fake_mode_dispatches",
    "fake_dispatches",
    "proxy_dispatches",
    "fake_cache_hits",
    "fake_cache_misses",
    "guards",
    "graphs",
)
EXPLAINING = COUNTERS[:6]
PARTS = ("tracing", "backend", "inductor")
PARENTS = {
    "as written": "as written",
    "dynamic shapes": "as written",
    "only the batch dynamic": "as written",
    "fewer, larger operations": "as written",
    "no gradients": "as written",
    "no gradients, nested_compile_region": "no gradients",
    "no gradients, one block compiled": "no gradients",
    "no gradients, Inductor": "no gradients",
}
"""What is done to each model, and what it is held against."""
OF_REPEATED = ("no gradients, nested_compile_region", "no gradients, one block compiled")
BACKEND = "aot_eager"


def main(arguments: Sequence[str] | None = None) -> int:
    return study("traces", __doc__, arguments, measure, page, plot)


# -- what is measured --------------------------------------------------------------------------------


def models() -> dict[str, Any]:
    """Each model: blocks as they are written, blocks of fewer and larger operations, what they are given."""
    import torch
    from trace_models import Branches, Hashing, HashingAtOnce, Heads, OneBranch, Transformer

    def several(number: int, block: Callable[..., Any], *sizes: int) -> Callable[[], list[Any]]:
        return lambda: [block(*sizes) for _ in range(number)]

    return {
        "conv net with branches": (
            several(2, Branches, 16, 4),
            several(2, OneBranch, 16),
            torch.randn(2, 16, 8, 8),
        ),
        "transformer": (
            several(2, Heads, 24, 3),
            several(2, Transformer, 24, 3),
            torch.randn(2, 16, 24),
        ),
        "hashing attention": (
            several(1, Hashing, 32, 2, 8, 8),
            several(1, HashingAtOnce, 32, 2, 8, 8),
            torch.randn(2, 64, 32),
        ),
    }


def measure() -> dict[str, Any]:
    """Every model in every way that it has."""
    import torch

    torch.manual_seed(0)
    logging.getLogger("torch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="torch")
    rows = []
    for model, (blocks, larger, x) in models().items():
        repeats = len(blocks()) > 1
        for way in PARENTS if repeats else [way for way in PARENTS if way not in OF_REPEATED]:
            say(f"{model}: {way}")
            rows.append({"model": model, "way": way, **counted(way, blocks, larger, x)})
    good = [row for row in rows if "counters" in row]
    return {
        "notebook": NOTEBOOK,
        "rows": rows,
        "explained": {name: explained(good, name) for name in EXPLAINING},
        "explained with aot_eager": {
            name: explained([r for r in good if "Inductor" not in r["way"]], name)
            for name in EXPLAINING
        },
    }


def counted(way: str, blocks: Any, larger: Any, x: Any) -> dict[str, Any]:
    """The counters of one model compiled in one way, and the seconds of its quickest compilation."""
    import torch

    from pytest_dispatchguard.runtime.compiled import counts as compiled

    subject, given = prepared(way, blocks, larger, x)
    recording = torch.no_grad if "no gradients" in way else nullcontext
    took: list[float] = []

    def run() -> None:
        start = time.process_time()
        with recording():
            subject(given)
        took.append(time.process_time() - start)

    try:
        found = compiled.counted(run, lambda: None)
    except Exception as error:
        why = compiled.failure(error)
        if why is None:
            raise
        say(f"cannot be compiled: {why}")
        return {"failed": str(why)}
    assert found is not None
    rounds = [took[i : i + compiled.CALLS] for i in range(0, len(took), compiled.CALLS)]
    return {
        "counters": {name: found.values[name] for name in COUNTERS},
        "varying": [name for name in found.varying if name in COUNTERS],
        # Later calls compile as well where shapes turn out to be dynamic. What disturbs only adds.
        "processor_s": round(min(sum(one) - len(one) * min(one) for one in rounds), 3),
        "compile_s": dict(found.facts.compile_s),
        "recompiles": found.values["recompiles"],
        "graph_breaks": found.values["graph_breaks"],
    }


def prepared(way: str, blocks: Any, larger: Any, x: Any) -> tuple[Any, Any]:
    """A model made ready for one way, and what it is given."""
    import torch
    from trace_models import Region, Stack

    kind = Region if "nested_compile_region" in way else Stack
    model = kind((larger if "fewer" in way else blocks)())
    # Where shapes were dynamic torch leaves a mark on the tensor, and they are so wherever it is given next.
    x = x.clone()
    if "one block" in way:
        for block in model.blocks:
            block.compile(backend=BACKEND, dynamic=False)
        return model, x
    if way == "only the batch dynamic":
        torch._dynamo.maybe_mark_dynamic(x, 0)
    dynamic = {"dynamic shapes": True, "only the batch dynamic": None}.get(way, False)
    backend = "inductor" if "Inductor" in way else BACKEND
    return torch.compile(model, backend=backend, dynamic=dynamic), x


def explained(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, float]:
    """How well a count goes with the seconds: the correlation of their logarithms, and of their ranks."""
    counts = [float(row["counters"][name]) for row in rows]
    seconds = [row["processor_s"] for row in rows]
    logs = [[math.log(max(value, 1e-3)) for value in values] for values in (counts, seconds)]
    by_log = statistics.correlation(*logs)
    return {
        "of logarithms": round(by_log, 3),
        "of ranks": round(statistics.correlation(ranks(counts), ranks(seconds)), 3),
        "explained": round(by_log**2, 3),
    }


def ranks(values: Sequence[float]) -> list[float]:
    """The place of each among all; the mean of theirs where several are equal."""
    order = sorted(values)
    return [order.index(value) + (order.count(value) - 1) / 2 for value in values]


# -- results -----------------------------------------------------------------------------------------


def page(results: Mapping[str, Any]) -> str:
    """The tables, for people."""
    rows = [row for row in results["rows"] if "counters" in row]
    notebook = results["notebook"]
    counters = [name for name in COUNTERS if name != "graphs"]
    lines = [
        "# What compiling takes, told by counts",
        "",
        written_by("bench-traces", results)
        + f" Backend {BACKEND}, training mode, static shapes, gradients, unless the row says otherwise. "
        "Seconds are of the processor, in the quicker of two or three compilations.",
        "",
        "## Counts and seconds",
        "",
        *table(
            ["model", "way", *counters, "seconds", "ms each fake_mode_dispatch"],
            [
                [
                    row["model"],
                    row["way"],
                    *(f"{row['counters'][name]:,}" for name in counters),
                    f"{row['processor_s']:.2f}",
                    f"{1000 * row['processor_s'] / row['counters'][COUNTERS[0]]:.2f}",
                ]
                for row in rows
            ]
            + [
                [
                    "the notebook's",
                    "",
                    *(f"{notebook[name]:,}" if name in notebook else "" for name in counters),
                    "",
                    "",
                ]
            ],
        ),
        "",
        *(
            f"- {row['model']}, {row['way']}: {row['failed']}"
            for row in results["rows"]
            if "failed" in row
        ),
        *(
            f"- {row['model']}, {row['way']}: not the same every time: {', '.join(row['varying'])}"
            for row in rows
            if row["varying"]
        ),
        "",
        "## What changes do",
        "",
        "Times what the model takes that it is held against.",
        "",
        *table(
            ["model", "way", "held against", "fake_mode_dispatches", "seconds"], change_rows(rows)
        ),
        "",
        "## By part of the compiler",
        "",
        "Seconds of the clock, as torch tells them: of a busy machine they are more than those above.",
        "",
        *table(
            ["model", "way", *PARTS, "graphs", "breaks", "recompiles"],
            [
                [
                    row["model"],
                    row["way"],
                    *(f"{row['compile_s'][part]:.2f}" for part in PARTS),
                    *(
                        str(n)
                        for n in (row["counters"]["graphs"], row["graph_breaks"], row["recompiles"])
                    ),
                ]
                for row in rows
            ],
        ),
        "",
        "## How much of the seconds each count explains",
        "",
        f"Over all {len(rows)} rows, and over those without Inductor.",
        "",
        *table(
            [
                "count",
                "correlation of logarithms",
                "of ranks",
                "explained",
                "explained without Inductor",
            ],
            [
                [
                    name,
                    f"{found['of logarithms']:.2f}",
                    f"{found['of ranks']:.2f}",
                    f"{found['explained']:.0%}",
                    f"{results['explained with aot_eager'][name]['explained']:.0%}",
                ]
                for name, found in results["explained"].items()
            ],
        ),
        "",
    ]
    return "\n".join(lines)


def change_rows(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Each way beside what it is held against."""
    known = {(row["model"], row["way"]): row for row in rows}
    found = []
    for row in rows:
        parent = known.get((row["model"], PARENTS[row["way"]]))
        if parent is None or parent is row:
            continue
        times = [
            row["counters"][COUNTERS[0]] / parent["counters"][COUNTERS[0]],
            row["processor_s"] / parent["processor_s"],
        ]
        found.append([row["model"], row["way"], parent["way"], *(f"{t:.2f}" for t in times)])
    return found


def plot(results: Mapping[str, Any]) -> str:
    """Seconds over dispatches: a line through the ways of each model."""
    from pytest_dispatchguard.report.charts.charts import Caption, Series, lines

    rows = [row for row in results["rows"] if "counters" in row]
    series = []
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model and "Inductor" not in row["way"]]
        series.append(Series(model, tuple(map(point, own))))
    generating = [row for row in rows if "Inductor" in row["way"]]
    if generating:
        series.append(Series("all three, Inductor", tuple(map(point, generating))))
    share = results["explained with aot_eager"][COUNTERS[0]]["explained"]
    caption = Caption(
        "Compile time goes with dispatches",
        f"3 models and what users change: dispatches explain {share:.0%} with aot_eager; {where(results)}",
    )
    return lines(
        caption,
        series,
        log_x=True,
        log_y=True,
        x_label="dispatches to FakeTensorMode",
        y_label="seconds of the processor",
    )


def point(row: Mapping[str, Any]) -> tuple[float, Interval]:
    seconds = row["processor_s"]
    return float(row["counters"][COUNTERS[0]]), Interval(seconds, seconds, seconds)


def say(text: str) -> None:
    print(f"trace_counts: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
