"""Counts the same subjects over and over, under all that might change a count: equal to the unit?

    python bench/bench_counters.py [--processes N] [--repeats N] [--compiled] [--output FILE]

Needs torch; takes pytest-cov and pytest-xdist along where they are installed. Every process is a pytest run
of `--overhead-budget=count` with a hash seed of its own. `--compiled` counts what torch.compile makes of
subjects instead, once a process; the default backend of two of them needs a C++ compiler.
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
COMPILED = """
import torch
from torch import nn

class Scaled(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return x * self.scale

class Scales(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.layers = nn.ModuleList(Scaled(1.0 + i) for i in range(number))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

def small(x):
    return torch.nn.functional.relu(x * 2 + 1)

def broken(x):
    x = x + 1
    print(end="")
    if x.sum() > 0:
        x = x * 2
    return x - 1

def sizes(compiled):
    return lambda parts: [compiled(part) for part in parts]

conv = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(10)
)
conv(torch.ones(2, 3, 16, 16))
linears = nn.Sequential(*(nn.Linear(8, 8) for _ in range(20)))
"""
COMPILED_TESTS = """
import torch
from subjects import Scales, broken, conv, linears, sizes, small

def eager(f):
    return torch.compile(f, backend="aot_eager")

def test_small(overhead):
    overhead(eager(small), torch.ones(4))

def test_small_inductor(overhead):
    overhead(torch.compile(small), torch.ones(4))

def test_linears(overhead):
    overhead(eager(linears), torch.ones(2, 8))

def test_linears_inductor(overhead):
    overhead(torch.compile(linears), torch.ones(2, 8))

def test_backward(overhead):
    step = eager(linears)
    overhead(lambda x: step(x).sum().backward(), torch.ones(2, 8))

def test_conv_net(overhead):
    overhead(eager(conv.eval()), torch.ones(2, 3, 16, 16))

def test_constants_of_instances(overhead):
    overhead(eager(Scales(20)), torch.ones(4))

def test_graph_breaks(overhead):
    overhead(eager(broken), torch.ones(4))

def test_recompiles(overhead):
    overhead(sizes(eager(small)), [torch.ones(n) for n in (2, 3, 4)])
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
    parser.add_argument(
        "--compiled", action="store_true", help="what torch.compile makes of subjects, instead"
    )
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    name = "counters-compiled.json" if arguments.compiled else "counters.json"
    output: Path = arguments.output or RESULTS / name
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    by_condition: Counter[str] = Counter()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tests = COMPILED_TESTS if arguments.compiled else TESTS.format(repeats=arguments.repeats)
        (folder / "subjects.py").write_text(COMPILED if arguments.compiled else SUBJECTS)
        (folder / "tracer.py").write_text(TRACER)
        (folder / "test_counts.py").write_text(tests)
        ways = [("plain", [])] if arguments.compiled else list(conditions().items())
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
    print(f"{'subject':<28}{'counts':>8}{'equal':>8}  counters")
    for row in rows:
        print(f"{row['subject']:<28}{row['counts']:>8}{row['equal']:>8}  {row['counters']}")
    result = {
        "machine": machine(),
        "versions": {name: version_of(name) for name in ("pytest", "torch", "coverage")},
        "processes": arguments.processes,
        "counts_by_condition": dict(by_condition),
        "seconds": round(time.monotonic() - start, 1),
        "subjects": rows,
    }
    temporary = output.with_suffix(".tmp")
    temporary.write_text(json.dumps(result, indent=1) + "\n")
    temporary.replace(output)


if __name__ == "__main__":
    main()
