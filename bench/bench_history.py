"""What the history of budgets takes with 100,000 rows in it: to keep a run, and to ask for what was kept.

    python bench/bench_history.py

A thousand runs of a hundred tests, kept one after another as pytest keeps them, in a file of SQLite. Then the
trend of one test (all its runs, and its last thirty), the last figures of all tests, one more run, and whole
processes of `dispatchguard history`; each several times. The table goes to stdout, the numbers with the
machine they are from to bench/results/history.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from bench_lint import BenchError, machine

from pytest_dispatchguard.history import store
from pytest_dispatchguard.history.databases import Database
from pytest_dispatchguard.model.history import Checkout, Kept, Run
from pytest_dispatchguard.model.measurements import Interval

RESULTS = Path(__file__).resolve().parent / "results" / "history.json"
GOAL_S = 0.2
BEGAN = datetime(2025, 1, 1)
MACHINE = {"cpu": "a processor", "python": "3.11.7", "torch": "2.13.0"}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--tests", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    try:
        with tempfile.TemporaryDirectory(prefix="bench-history-") as scratch:
            file = Path(scratch, "history.sqlite")
            took = filled(store.database_at(str(file)), options.runs, options.tests)
            asked = queries(file, options.runs, options.tests, options.repeats)
            size = file.stat().st_size
    except BenchError as error:
        print(f"bench_history: {error}", file=sys.stderr)
        return 2
    trend = max(asked["trend"]["most_s"], asked["last 30"]["most_s"])
    results = {
        "machine": {**machine(), "load_before": round(load, 2)},
        "rows": options.runs * options.tests,
        "bytes": size,
        "kept": figures(took),
        "asked": asked,
        "goals": {"trend of a test s": GOAL_S},
        "met": {"trend of a test s": trend <= GOAL_S},
    }
    options.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(table(results))
    return 0


def filled(database: Database, runs: int, tests: int) -> list[float]:
    """Keeps the runs; the seconds of each."""
    took = []
    for number in range(runs):
        if number % 100 == 0:
            print(f"bench_history: {number} of {runs} runs", file=sys.stderr, flush=True)
        took.append(seconds(lambda number=number: keep(database, number, tests)))
    return took


def keep(database: Database, number: int, tests: int) -> None:
    """Keeps one run."""
    at = (BEGAN + timedelta(hours=number)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    run = Run(at, MACHINE, Checkout(f"{number:040x}", "main", False))
    store.add(database, run, [kept(test, number) for test in range(tests)])


def kept(test: int, number: int) -> Kept:
    """What a run of that number found of a test."""
    ratio = 1.2 + (number + test) % 7 / 100
    counters = dict.fromkeys(
        ("instructions", "py_calls", "c_calls", "dispatches", "functions", "tensor_allocations"),
        number // 50,
    )
    return Kept(
        node_id(test),
        "subject",
        "pass",
        counters,
        ratio=Interval(ratio, ratio - 0.02, ratio + 0.02),
        host_us=Interval(2.0, 1.9, 2.1),
        extra_us=Interval(0.4, 0.3, 0.5),
        reference_us=1.6,
    )


def node_id(test: int) -> str:
    return f"tests/operations/test_elementwise.py::test_operation[{test}-float32]"


def queries(file: Path, runs: int, tests: int, repeats: int) -> dict[str, dict[str, float]]:
    """What asking takes: in this process, and as a command."""
    database, middle = store.database_at(str(file)), node_id(tests // 2)
    points = len(store.trends(database, middle, runs)[0].points)
    if points != runs:
        raise BenchError(f"{points} of {runs} runs came back")
    command = [sys.executable, "-m", "pytest_dispatchguard", "history", "--history", str(file)]
    asked: dict[str, Callable[[], Any]] = {
        "trend": lambda: store.trends(database, middle, runs),
        "last 30": lambda: store.trends(database, middle, 30),
        "all tests": lambda: store.newest(database),
        "one more run": lambda: keep(database, runs, tests),
        "command, one test": lambda: run([*command, middle]),
        "command, all tests": lambda: run(command),
    }
    return {name: figures([seconds(ask) for _ in range(repeats)]) for name, ask in asked.items()}


def run(command: Sequence[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"the command failed: {done.stderr.strip()}")


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def figures(took: Sequence[float]) -> dict[str, float]:
    return {"median_s": round(statistics.median(took), 5), "most_s": round(max(took), 5)}


def table(results: dict[str, Any]) -> str:
    """The numbers for people."""
    lines = [f"{results['rows']:,} rows, {results['bytes'] / 1e6:.1f} MB"]
    for name, found in {"a run kept": results["kept"], **results["asked"]}.items():
        median, most = (found[end] * 1000 for end in ("median_s", "most_s"))
        lines.append(f"{name:<20} {median:8.1f} ms, at most {most:.1f} ms")
    lines += [f"goal {'met' if ok else 'MISSED'}: {name}" for name, ok in results["met"].items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
