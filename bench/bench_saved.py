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
from publishing import RESULTS, publish, table, written_by

from pytest_dispatchguard.measure.budgets.comparison import against
from pytest_dispatchguard.measure.budgets.paces import paced
from pytest_dispatchguard.measure.revisions import run_files
from pytest_dispatchguard.measure.timing.calibration import undisturbed
from pytest_dispatchguard.measure.timing.calling import Call
from pytest_dispatchguard.measure.timing.controls import Controls
from pytest_dispatchguard.measure.timing.timing import sample
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
_TRACKED, _AROUND = 40, 150
"""Measurements in one process, and blocks of control calls before and after each."""
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
            preexec_fn=settle,
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
        "compared": list(compared(saved)),
        "tracked": tracked(say),
    }


def _wrapped(x: Any, y: Any) -> Any:
    return x.add(y)


def tracked(say: Any) -> dict[str, float]:
    """How far a call's time goes apart over many measurements in one process, a core busy in every other of
    them: as it is, held against control calls among its blocks, and against some before and after it."""
    import torch

    say("control calls among the blocks of a subject, and around it")
    torch.set_num_threads(1)
    four = torch.ones(4)
    logs: dict[str, list[float]] = {"alone": [], "among": [], "around": []}
    for number in range(_TRACKED):
        with around(ONE_BUSY if number % 2 else QUIET), undisturbed():
            outside, inside = Controls(), Controls()
            outside.rounds(_AROUND)
            found = sample(
                *(Call(_wrapped, (four, four)), None),
                enough=lambda _: False,
                seconds=0.4,
                confidence=CONFIDENCE,
                beside=inside.beside,
            )
            outside.rounds(_AROUND)
        log = math.log(found.subject_us.value)
        logs["alone"].append(log)
        logs["among"].append(log - _middle(inside))
        logs["around"].append(log - _middle(outside))
    return {name: round(statistics.stdev(values), 4) for name, values in logs.items()}


def _middle(controls: Controls) -> float:
    return statistics.fmean(map(math.log, controls.found_us().values()))


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
        "fails_from": _fails_from(now.measured, before, paced_too=True),
        "without_controls_from": _fails_from(now.measured, before, paced_too=False),
    }


def _fails_from(now: Measurement, before: Base, *, paced_too: bool) -> float | None:
    """The least slowdown that fails; None if none does."""
    for times in SLOWER:
        if _held(_slowed(now, times), before, paced_too=paced_too).verdict == "fail":
            return times
    return None


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
    rows, tracked_by = results["compared"], results["tracked"]
    by_pytest = Counter(verdict for run in results["by_pytest"] for verdict in run.values())
    kinds = [(held, controls) for held in (False, True) for controls in (True, False)]
    said = (
        f"{len(results['runs'])} runs of one suite, each saved, within "
        f"{results['runs'][-1]['at_s'] // 60 + 1} minutes; nothing in it changes, so that every difference "
        f"is of the machine. Each is held against each other. The limit is {REGRESSION.most:g} times the "
        f"other run, at a confidence of {CONFIDENCE}. A test is measured for two seconds at most, and "
        "other work ran on this machine meanwhile."
    )
    by_itself = f"`pytest --overhead-compare` itself, of each later run with the first: {_words(by_pytest)}."
    where_timed = (
        f"In one process, with a core busy in every other of {_TRACKED} measurements, the time of a call "
        f"has a standard deviation of {tracked_by['alone']:.1%}; divided by that of control calls among "
        f"its blocks, of {tracked_by['among']:.1%}; before and after it, of {tracked_by['around']:.1%}."
    )
    head = (
        *("calls", "comparisons", "fail", "undecided", "pass"),
        *("change off by", "at most", "interval ±"),
    )
    return "\n".join(
        [
            *("# Saved runs", "", said, "", written_by("bench-saved", results), ""),
            *("## The same call in two runs", ""),
            *table(head, [_same(rows, held, controls) for held, controls in kinds]),
            *("", by_itself, "", "## Slowdowns that are found", ""),
            *("The times of one run are multiplied, and it is compared again: how many fail.", ""),
            *table(
                ("calls", *(f"{times:g} times" for times in SLOWER)),
                [_found(rows, held, controls) for held, controls in kinds],
            ),
            *("", "## The pace that control calls show", ""),
            *table(("runs", "times as long", "a control call, off", "at most"), _paces(results)),
            *("", where_timed, ""),
        ]
    )


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {word}" for word, number in sorted(counts.items()))


def _called(held: bool, controls: bool) -> str:
    name = f"{'with' if held else 'without'} a reference"
    return name if controls else f"{name}, control calls left out"


def _same(rows: Sequence[Any], held: bool, controls: bool) -> list[str]:
    chosen = [row for row in rows if row["held"] == held]
    figures = [row if controls else row["without_controls"] for row in chosen]
    changes = [row["change"] if controls else row for row in figures]
    counts = Counter(row["verdict"] for row in figures)
    off = [abs(math.log(change["value"])) for change in changes]
    wide = [math.log(change["high"] / change["low"]) / 2 for change in changes]
    return [
        _called(held, controls),
        str(len(figures)),
        *(str(counts[word]) for word in ("fail", "undecided", "pass")),
        *_percents((statistics.median(off), max(off), statistics.median(wide))),
    ]


def _percents(logs: Sequence[float]) -> list[str]:
    return [f"{math.exp(log) - 1:.1%}" for log in logs]


def _found(rows: Sequence[Any], held: bool, controls: bool) -> list[str]:
    name = "fails_from" if controls else "without_controls_from"
    least = [row[name] or math.inf for row in rows if row["held"] == held]
    found = [sum(one <= times for one in least) / len(least) for times in SLOWER]
    return [_called(held, controls), *(f"{part:.0%}" for part in found)]


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
        off = [
            abs(math.log(change / row["pace"]["value"]))
            for row in rows
            for change in row["each"].values()
        ]
        spread = f"{min(values):.3f} to {max(values):.3f}"
        found.append(
            [f"{name}, against quiet", spread, *_percents((statistics.median(off), max(off)))]
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
