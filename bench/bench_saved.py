"""Whether a comparison with a saved run ever fails a call that is the same in both: runs of one suite, saved
minutes apart on a machine that is otherwise quiet, with a core busy, and with both busy and pytest at a lower
priority. Every run is held against every other, by `--overhead-compare`'s own arithmetic, with a limit that
makes times count; and the runs after the first are compared with it by pytest itself.

    python bench/bench_saved.py                 # about seven minutes
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench_lint import BenchError, machine, version_of
from publishing import RESULTS, publish, table

from pytest_dispatchguard.measure.budgets.comparison import against
from pytest_dispatchguard.measure.budgets.paces import paced
from pytest_dispatchguard.measure.revisions import run_files
from pytest_dispatchguard.model.measurements import Interval, Measurement
from pytest_dispatchguard.model.verdicts import Base, Limit, Verdict

CONFIDENCE = 0.999
REGRESSION = Limit("regression", 1.05)
SLOWER = (1.3, 1.5, 2.0, 3.0)
"""Slowdowns that are put on one side of a comparison by arithmetic."""
SUITE = """
import pytest
import torch
from torch import nn

X = torch.ones(4)
WIDE = torch.ones(256, 256)
MODEL = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).eval()
BATCH = torch.ones(2, 8)


def wrapped(x, y):
    tensors = [t for t in (x, y) if isinstance(t, torch.Tensor)]
    return torch.add(*tensors)


def named(number):
    found = {}
    for i in range(number):
        found[str(i)] = i
    return sorted(found)


def many(x):
    for _ in range(5):
        x = torch.mul(x, 1.0)
    return x


def scaled(x):
    return torch.add(torch.mul(x, 2.0), 1.0)


def modelled(x):
    with torch.no_grad():
        return MODEL(x)


budget = pytest.mark.overhead_budget(regression=1.05)


@budget
def test_wrapper(overhead):
    overhead(wrapped, X, X)


@budget
def test_python(overhead):
    overhead(named, 20)


@budget
def test_many(overhead):
    overhead(many, X)


@budget
def test_model(overhead):
    overhead(modelled, BATCH)


@budget
def test_wide(overhead):
    overhead(scaled, WIDE)


@budget
def test_wrapper_held(overhead):
    overhead(wrapped, X, X).against(torch.add, X, X)


@budget
def test_many_held(overhead):
    overhead(many, X).against(torch.mul, X, 1.0).unchecked()


@budget
def test_same_held(overhead):
    overhead(torch.add, X, X).against(torch.add, X, X)
"""
_BUSY = "data = bytearray(1 << 22)\nwhile True:\n    data = bytearray(data)\n"


@dataclass(frozen=True)
class Surrounding:
    """What a run has around it."""

    name: str
    busy: int = 0
    nice: int = 0
    core: int | None = None
    """The only core that pytest may use."""


QUIET = Surrounding("quiet")
ONE_BUSY = Surrounding("one core busy", busy=1)
NICE = Surrounding("two busy loops, pytest at nice 10", busy=2, nice=10)
PINNED = Surrounding("pytest on one core, which is busy", busy=1, core=0)
RUNS = (QUIET, ONE_BUSY, NICE, PINNED, QUIET, ONE_BUSY, NICE, PINNED)


@contextmanager
def around(surrounding: Surrounding) -> Iterator[None]:
    """Keeps the machine busy meanwhile."""
    loops = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(surrounding.busy)]
    if surrounding.core is not None and hasattr(os, "sched_setaffinity"):
        for loop in loops:
            os.sched_setaffinity(loop.pid, {surrounding.core})
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run(folder: Path, surrounding: Surrounding, *options: str) -> None:
    """One run of the suite."""

    def settle() -> None:
        os.nice(surrounding.nice)
        if surrounding.core is not None and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {surrounding.core})

    words = ["-q", "-p", "no:cacheprovider", "--overhead-budget", "--overhead-max-time=2"]
    with around(surrounding):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words, *options, "."],
            cwd=folder,
            check=False,
            capture_output=True,
            text=True,
            preexec_fn=settle,  # noqa: PLW1509 - nothing here has threads
        )
    if done.returncode not in (0, 1):
        raise BenchError(f"pytest ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def measured(say: Any) -> dict[str, Any]:
    """All runs, and what comparing them says."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_calls.py").write_text(SUITE, encoding="utf-8")
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        told: list[dict[str, str]] = []
        began = time.monotonic()
        at = []
        for number, surrounding in enumerate(RUNS):
            say(f"run {number}: {surrounding.name}, load {os.getloadavg()[0]:.1f}")
            at.append(round(time.monotonic() - began))
            options = [f"--overhead-save=run{number}"]
            if number:
                options += ["--overhead-compare=run0", "--overhead-json=out.json"]
            run(folder, surrounding, *options)
            if number:
                rows = json.loads((folder / "out.json").read_text(encoding="utf-8"))["tests"]
                told.append({row["nodeid"]: row["verdict"] for row in rows})
        saved = [
            run_files.load(folder / run_files.FOLDER / f"run{i}.json", f"run{i}")
            for i in range(len(RUNS))
        ]
    return {
        "runs": [{"name": one.name, "at_s": s} for one, s in zip(RUNS, at, strict=True)],
        "by_pytest": told,
        "compared": [row for row in compared(saved)],
    }


def compared(saved: Sequence[Mapping[str, Base]]) -> Iterator[dict[str, Any]]:
    """Each run held against each other."""
    for i, now in enumerate(saved):
        for j, before in enumerate(saved):
            for key in sorted(now.keys() & before.keys()):
                if i != j:
                    yield {"now": i, "before": j, "test": key, **_row(now[key], before[key])}


def _row(now: Base, before: Base) -> dict[str, Any]:
    assert now.measured is not None and before.measured is not None
    found = _held(now.measured, before)
    base = found.base
    assert base is not None and base.change is not None and base.pace is not None
    without = _held(now.measured, before, paced_too=False)
    assert without.base is not None and without.base.change is not None
    by_ratio = now.measured.ratio is not None
    return {
        "held": by_ratio,
        "verdict": found.verdict,
        "change": _figures(base.change),
        "without_controls": {"verdict": without.verdict, **_figures(without.base.change)},
        "pace": _figures(base.pace.change),
        "each": {name: round(change, 4) for name, change in base.pace.each.items()},
        "apart": round(base.pace.apart, 4),
        "slower": {
            f"{times:g}": {
                "verdict": _held(_slowed(now.measured, times), before).verdict,
                "without_controls": _held(
                    _slowed(now.measured, times), before, paced_too=False
                ).verdict,
            }
            for times in SLOWER
        },
    }


def _held(now: Measurement, before: Base, *, paced_too: bool = True) -> Verdict:
    verdict = Verdict("t", "t", "pass", before.counters, (REGRESSION,), measured=now)
    return against(verdict, paced(verdict, before, CONFIDENCE) if paced_too else before)


def _slowed(now: Measurement, times: float) -> Measurement:
    """The same measurement of a call that takes so many times as long."""
    return replace(
        now,
        subject_us=now.subject_us.times(times),
        ratio=now.ratio and now.ratio.times(times),
        beside=tuple(replace(one, subject_us=one.subject_us * times) for one in now.beside),
    )


def _figures(change: Interval) -> dict[str, float]:
    return {
        "value": round(change.value, 4),
        "low": round(change.low, 4),
        "high": round(change.high, 4),
    }


def page(results: Mapping[str, Any]) -> str:
    """The results for people."""
    about = results["machine"]
    rows = results["compared"]
    by_pytest = Counter(verdict for run in results["by_pytest"] for verdict in run.values())
    lines = [
        "# Saved runs",
        "",
        f"{len(results['runs'])} runs of one suite, each saved; nothing in it changes, so that every "
        f"difference is of the machine. The limit is {REGRESSION.most:g} times the other run, at the "
        f"confidence of {CONFIDENCE}.",
        "",
        f"Written by `make bench-saved` in {results['seconds']} s: {about['cpu']}, {about['cores']} "
        f"cores, Python {about['python']}, torch {about['torch']}; load "
        f"{' and '.join(map(str, about['load_before_and_after']))} before and after. Other work ran on "
        "this machine meanwhile, and each run is short (two seconds at most for a test).",
        "",
        "## The same call in two runs",
        "",
        *table(
            (
                "calls",
                "comparisons",
                "fail",
                "undecided",
                "pass",
                "times then: median off",
                "most",
                "interval: median ±",
            ),
            [
                *_a_a(rows, held=False, controls=True),
                *_a_a(rows, held=False, controls=False),
                *_a_a(rows, held=True, controls=True),
                *_a_a(rows, held=True, controls=False),
            ],
        ),
        "",
        f"pytest itself, each later run compared with the first: "
        f"{', '.join(f'{number} {word}' for word, number in sorted(by_pytest.items()))}.",
        "",
        "## Slowdowns that are found",
        "",
        "The times of one run are multiplied, and the comparison made again: how many fail.",
        "",
        *table(("calls", *(f"{times:g} times" for times in SLOWER)), _found(rows)),
        "",
        "## How far the control calls were from each other",
        "",
        *table(("runs", "pace, least to most", "certainly apart, most"), _paces(results)),
        "",
    ]
    return "\n".join(lines)


def _a_a(rows: Sequence[Any], *, held: bool, controls: bool) -> list[list[str]]:
    chosen = [row for row in rows if row["held"] == held]
    figures = [
        (row["verdict"], row["change"])
        if controls
        else (row["without_controls"]["verdict"], row["without_controls"])
        for row in chosen
    ]
    counts = Counter(verdict for verdict, _ in figures)
    off = [abs(math.log(change["value"])) for _, change in figures]
    wide = [math.log(change["high"] / change["low"]) / 2 for _, change in figures]
    name = (
        f"{'with' if held else 'without'} a reference, {'with' if controls else 'without'} controls"
    )
    return [
        [
            name,
            str(len(figures)),
            *(str(counts[word]) for word in ("fail", "undecided", "pass")),
            f"{math.exp(statistics.median(off)) - 1:.1%}",
            f"{math.exp(max(off)) - 1:.1%}",
            f"{math.exp(statistics.median(wide)) - 1:.0%}",
        ]
    ]


def _found(rows: Sequence[Any]) -> list[list[str]]:
    found = []
    for held in (False, True):
        for controls in (True, False):
            chosen = [row["slower"] for row in rows if row["held"] == held]
            name = f"{'with' if held else 'without'} a reference, {'with' if controls else 'without'} controls"
            cells = []
            for times in SLOWER:
                verdicts = [
                    row[f"{times:g}"]["verdict" if controls else "without_controls"]
                    for row in chosen
                ]
                cells.append(f"{verdicts.count('fail') / len(verdicts):.0%}")
            found.append([name, *cells])
    return found


def _paces(results: Mapping[str, Any]) -> list[list[str]]:
    found = []
    names = [run["name"] for run in results["runs"]]
    for name in dict.fromkeys(names):
        rows = [
            row
            for row in results["compared"]
            if names[row["now"]] == name and names[row["before"]] == QUIET.name
        ]
        values = [row["pace"]["value"] for row in rows]
        apart = max(row["apart"] for row in rows)
        found.append(
            [
                f"{name}, against quiet",
                f"{min(values):.3f} to {max(values):.3f}",
                f"{math.exp(apart) - 1:.1%}",
            ]
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, and writes the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=RESULTS / "saved.json")
    parser.add_argument("--draw", action="store_true", help="measure nothing, write the page anew")
    options = parser.parse_args(arguments)
    if options.draw:
        results = json.loads(options.output.read_text(encoding="utf-8"))
    else:
        started, load = time.monotonic(), [round(os.getloadavg()[0], 2)]
        try:
            found = measured(lambda said: print(said, file=sys.stderr))
        except BenchError as error:
            print(f"saved: {error}", file=sys.stderr)
            return 2
        load.append(round(os.getloadavg()[0], 2))
        about = {**machine(), "torch": version_of("torch"), "load_before_and_after": load}
        results = {"machine": about, "seconds": round(time.monotonic() - started), **found}
    publish(options.output, results, page(results))
    failed = [row for row in results["compared"] if row["verdict"] == "fail"]
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
