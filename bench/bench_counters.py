"""Counts the same subjects over and over, under all that might change a count: equal to the unit?

    python bench/bench_counters.py [--processes N] [--repeats N] [--output FILE]

Needs torch; takes pytest-cov and pytest-xdist along where they are installed. Every process is a pytest run
of `--overhead-budget=count` with a hash seed of its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench_lint import machine, version_of

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"

SUBJECTS = """
import torch

class Wrapped(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)
        self.options = {"scale": 2.0, "shift": 1.0}

    def forward(self, x, **kwargs):
        merged = {**self.options, **kwargs}
        names = set(merged)
        y = self.inner(x)
        for name in names:
            y = y * merged[name]
        return torch.nn.functional.relu(y)

def closure(x):
    def inner(*args, **kwargs):
        return torch.softmax(*args, **kwargs)
    return inner(x, dim=-1)

def structures(parts):
    return [{key: value for key, value in part.items()} for part in parts]

def words(text):
    return sorted({word.lower() for word in text.split()})
"""
TESTS = """
import pytest
import torch
from subjects import Wrapped, closure, structures, words

REPEATS = range({repeats})
pytestmark = pytest.mark.overhead_budget(py_allocations=10**6)  # counted where a limit asks for it

@pytest.mark.parametrize("i", REPEATS)
def test_module(overhead, i):
    overhead(Wrapped(), torch.ones(2, 8), shift=3.0)

@pytest.mark.parametrize("i", REPEATS)
def test_closure(overhead, i):
    overhead(closure, torch.ones(4))

@pytest.mark.parametrize("i", REPEATS)
def test_backward(overhead, i):
    x = torch.ones(4, requires_grad=True)
    overhead(lambda: closure(x).sum().backward())

@pytest.mark.parametrize("i", REPEATS)
def test_structures(overhead, i):
    overhead(structures, [{{"a": 1, "b": 2}}] * 3)

@pytest.mark.parametrize("i", REPEATS)
def test_words(overhead, i):
    overhead(words, "the quick brown fox jumps over the lazy dog")
"""
TRACER = """
import sys

def pytest_runtest_setup(item):
    sys.settrace(lambda frame, event, arg: None)
"""


def conditions() -> dict[str, list[str]]:
    """What runs are made under, and the words of the command line for it."""
    found: dict[str, list[str]] = {"plain": [], "a tracer at work": ["-p", "tracer"]}
    if importlib.util.find_spec("pytest_cov"):
        found["coverage"] = ["--cov=subjects", "--cov-branch", "--cov-report="]
    if importlib.util.find_spec("xdist"):
        found["two processes (xdist)"] = ["-n", "2"]
    return found


def run(folder: Path, words: Sequence[str], seed: int) -> list[Mapping[str, Any]]:
    output = folder / "out.json"
    output.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["--overhead-budget=count", f"--overhead-json={output}", *words]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode or not output.exists():
        raise SystemExit(f"pytest failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    rows: list[Mapping[str, Any]] = json.loads(output.read_text())["tests"]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--processes", type=int, default=20, help="pytest runs, over all conditions"
    )
    parser.add_argument("--repeats", type=int, default=50, help="counts of each subject in a run")
    parser.add_argument("--output", type=Path, default=RESULTS / "counters.json")
    arguments = parser.parse_args()
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    by_condition: Counter[str] = Counter()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "subjects.py").write_text(SUBJECTS)
        (folder / "tracer.py").write_text(TRACER)
        (folder / "test_counts.py").write_text(TESTS.format(repeats=arguments.repeats))
        ways = list(conditions().items())
        for number in range(arguments.processes):
            condition, words = ways[number % len(ways)]
            print(f"{number + 1} of {arguments.processes}: {condition}", file=sys.stderr)
            for row in run(folder, words, seed=number):
                test = row["nodeid"].partition("::")[2].partition("[")[0]
                seen[test][json.dumps(row["counters"])] += 1
                by_condition[condition] += 1
    rows = [
        {
            "subject": test,
            "counts": counts.total(),
            "equal": counts.most_common(1)[0][1],
            "counters": json.loads(counts.most_common(1)[0][0]),
            "others": [json.loads(text) for text, _ in counts.most_common()[1:]],
        }
        for test, counts in sorted(seen.items())
    ]
    print(f"{'subject':<18}{'counts':>8}{'equal':>8}  counters")
    for row in rows:
        print(f"{row['subject']:<18}{row['counts']:>8}{row['equal']:>8}  {row['counters']}")
    result = {
        "machine": machine(),
        "versions": {name: version_of(name) for name in ("pytest", "torch", "coverage")},
        "processes": arguments.processes,
        "counts_by_condition": dict(by_condition),
        "seconds": round(time.monotonic() - start, 1),
        "subjects": rows,
    }
    temporary = arguments.output.with_suffix(".tmp")
    temporary.write_text(json.dumps(result, indent=1) + "\n")
    temporary.replace(arguments.output)


if __name__ == "__main__":
    main()
