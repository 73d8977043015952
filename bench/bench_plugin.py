"""What the pytest plugin takes of people's time: where it is not used, and for fifty budgets.

    python bench/bench_plugin.py

A run of pytest over one trivial test, in an environment that has this package and in one that has pytest
alone, by turns on one core, and the difference of the two that follow one another: by the clock, which is
what people wait for, and in processor time; with `--pythons` by the clock with other versions of Python, too.
Beside them, as a narrower figure for the plugin's own part:
children forked from a process that has imported all that pytest itself needs, with the plugin and with
`-p no:dispatchguard`. Then fifty tests with budgets on torch operations, by times and counters and by
counters alone: whole processes, torch's import included. The table goes to stdout, the numbers with the
machine they are from to bench/results/plugin.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench_lint import BenchError, machine, version_of
from timing_peers import plain_environment

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "plugin.json"
PACKAGE = ("pytest_dispatchguard", "rules", "fixtures", "pyproject.toml", "README.md", "LICENSE")
"""What the package is built from."""
GOALS = {"added ms": 10.0, "50 budgets s": 60.0, "50 counted s": 10.0}

ONE = "abs ceil cos exp floor neg relu round sigmoid sign sin sqrt tanh"
TWO = "add atan2 div eq ge lt matmul maximum minimum mul pow sub"
DEAR = ("cos", "relu", "add", "matmul", "mul")
"""Operations whose wrapper looks for leaves on every call: too much for the budget."""

MODULE = '''\
"""Operations as a library has them: torch's, behind a check of the arguments."""

import torch
from torch.utils import _pytree as pytree


def check(x):
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"not a tensor: {x!r}")
'''
CHEAP_WRAPPER = """

def {name}({given}):
    check(x)
    return torch.{name}({given})
"""
DEAR_WRAPPER = """

def {name}({given}):
    for leaf in pytree.tree_leaves(({given},)):
        check(leaf)
    return torch.{name}({given})
"""
FORKED = """\
import os, random, sys, time
import pytest

pairs, without, common = int(sys.argv[1]), sys.argv[2:4], ["-q", "-p", "no:cacheprovider", *sys.argv[4:]]


def run(extra):
    start = time.perf_counter()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(pytest.main([*extra, *common]))
    if os.waitpid(child, 0)[1]:
        sys.exit("pytest failed in a child")
    return (time.perf_counter() - start) * 1000


out = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
pytest.main([*without, *common])  # imports what pytest needs, and nothing of the plugin's
os.dup2(out, 1)
if any(name.partition(".")[0] == "pytest_dispatchguard" for name in sys.modules):
    sys.exit("the plugin was imported where it should not be")
rng = random.Random(0)
for pair in range(-5, pairs):
    taken = {}
    for extra in rng.sample([(), tuple(without)], 2):
        taken[extra] = run(extra)
    if pair >= 0:
        print(taken[()], taken[tuple(without)], flush=True)
"""
TESTS = """\
import pytest
import torch

import wrapped


@pytest.mark.overhead_budget(ratio=2.0, instructions=60, dispatches=1)
@pytest.mark.parametrize("n", [4, 32])
@pytest.mark.parametrize("name, arity", {cases})
def test_op(overhead, name, arity, n):
    torch.manual_seed(0)
    given = [torch.rand(n, n) for _ in range(arity)]
    overhead(getattr(wrapped, name), *given).against(getattr(torch, name), *given)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=100, help="of runs over a trivial test")
    parser.add_argument("--repeats", type=int, default=3, help="runs of the fifty budgets")
    parser.add_argument(
        "--pythons",
        nargs="+",
        default=[],
        help="other interpreters for the runs over a trivial test",
    )
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    try:
        with tempfile.TemporaryDirectory(prefix="bench-plugin-") as scratch:
            unused = added(Path(scratch), options.pairs)
            unused["pythons"] = {
                version: found
                for number, python in enumerate(options.pythons)
                for version, found in [by_other(Path(scratch) / str(number), python, options.pairs)]
            }
            fifty = budgets(Path(scratch), options.repeats)
    except BenchError as error:
        print(f"bench_plugin: {error}", file=sys.stderr)
        return 2
    results = report(unused, fifty, load)
    options.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(table(results))
    return 0


# -- installed and unused ----------------------------------------------------------------------------


def added(scratch: Path, pairs: int) -> dict[str, Any]:
    """Milliseconds that the plugin adds to a run that does not use it."""
    folder = trivial(scratch)
    without = ("-p", "no:dispatchguard")
    others = sorted({e.name for e in entry_points(group="pytest11")} - {"dispatchguard"})
    common = [word for name in others for word in ("-p", f"no:{name}")]
    if "dispatchguard" not in pytest_run(folder, "--trace-config", *common)[2]:
        raise BenchError("the plugin is not installed in this environment: pip install -e .")
    runs = by_turns(folder, environments(scratch / "environments"), pairs)
    figures = {}
    for number, name in enumerate(("clock", "processor")):
        figures[name] = compared(*([taken[number] for taken in series] for series in runs))
    say(f"the same in {4 * pairs} pairs of children of one process")
    words = [sys.executable, "-c", FORKED, str(4 * pairs), *without, *common]
    done = subprocess.run(words, cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"the forked runs failed: {done.stderr[-800:]}")
    taken_ms = [[float(word) for word in line.split()] for line in done.stdout.splitlines()]
    figures["children"] = compared(*([pair[side] for pair in taken_ms] for side in (0, 1)))
    return {"pairs": pairs, **figures}


def trivial(scratch: Path) -> Path:
    """A folder with one test that does nothing."""
    folder = scratch / "trivial"
    folder.mkdir(parents=True)
    (folder / "test_nothing.py").write_text("def test_nothing():\n    pass\n", encoding="utf-8")
    return folder


def by_turns(
    folder: Path, pythons: Sequence[str], pairs: int
) -> tuple[list[tuple[float, float]], ...]:
    """Milliseconds of runs with the plugin and of runs without, by the clock and of the processor."""
    rng = random.Random(0)
    runs: tuple[list[tuple[float, float]], ...] = ([], [])
    with one_core():
        for pair in range(-2, pairs):  # the first compile what has not been
            if pair % 20 == 0:
                say(f"a trivial run where it is installed and where it is not, {pair} of {pairs}")
            for side in rng.sample([0, 1], 2):
                taken = pytest_run(folder, python=pythons[side])
                if pair >= 0:
                    runs[side].append((taken[0] * 1000, taken[1] * 1000))
    return runs


def by_other(scratch: Path, python: str, pairs: int) -> tuple[str, dict[str, Any]]:
    """The version of another interpreter, and what the plugin adds with it, by the clock."""
    folder = trivial(scratch)
    asked = [python, "-c", "import platform; print(platform.python_version())"]
    done = subprocess.run(asked, check=False, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"{python} is no Python that runs: {done.stderr[-400:]}")
    runs = by_turns(folder, environments(scratch / "environments", python), pairs)
    return done.stdout.strip(), compared(*([taken[0] for taken in series] for series in runs))


def environments(home: Path, python: str = sys.executable) -> tuple[str, str]:
    """The Pythons of an environment with this package, as people install it, and of one without."""
    source = home / "source"
    source.mkdir(parents=True)
    for name in PACKAGE:
        found = ROOT / name
        copy = shutil.copytree if found.is_dir() else shutil.copy
        copy(found, source / name)
    pythons = []
    for name, wanted in (("with", [str(source)]), ("without", [])):
        say(f"making an environment {name} the plugin")
        made = [python, "-m", "venv", str(home / name)]
        if subprocess.run(made, check=False, env=plain_environment()).returncode != 0:
            raise BenchError(f"{python} could not make an environment")
        pythons.append(str(home / name / "bin" / "python"))
        pip = [pythons[-1], "-m", "pip", "install", "-q", f"pytest=={version_of('pytest')}"]
        if subprocess.run([*pip, *wanted], check=False, env=plain_environment()).returncode != 0:
            raise BenchError("pip could not make the environments of whole processes")
    return pythons[0], pythons[1]


@contextmanager
def one_core() -> Iterator[None]:
    """Has all processes that are started in it run on one core, where the system can."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def compared(one: Sequence[float], other: Sequence[float]) -> dict[str, Any]:
    """Runs with the plugin beside those without."""
    return {
        "with_ms": round(statistics.median(one), 1),
        "without_ms": round(statistics.median(other), 1),
        "added_ms": interval([a - b for a, b in zip(one, other, strict=True)]),
    }


def interval(values: Sequence[float]) -> dict[str, float]:
    """The median, and what it lies between in 95 of 100 such series."""
    ordered = sorted(values)
    rank = max(0, math.floor(len(ordered) / 2 - 0.98 * math.sqrt(len(ordered))))
    found = (statistics.median(ordered), ordered[rank], ordered[-1 - rank])
    return dict(zip(("value", "low", "high"), (round(v, 2) for v in found), strict=True))


def pytest_run(
    folder: Path, *arguments: str, status: int = 0, python: str = sys.executable
) -> tuple[float, float, str]:
    """Seconds of a whole process by the clock, those of the processor, and what it said."""
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    before = processor_seconds()
    start = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env=plain_environment(), check=False, capture_output=True, text=True
    )
    seconds = time.perf_counter() - start
    processor = processor_seconds() - before
    if done.returncode != status:
        raise BenchError(
            f"pytest ended with {done.returncode}: {(done.stdout + done.stderr)[-800:]}"
        )
    return seconds, processor, done.stdout


def processor_seconds() -> float:
    """What all processes that have ended took so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# -- fifty budgets -----------------------------------------------------------------------------------


def budgets(scratch: Path, repeats: int) -> dict[str, Any]:
    """Seconds of fifty budgets, and what was decided."""
    if find_spec("torch") is None:
        raise BenchError("budgets need torch in this environment: nothing is written")
    folder = scratch / "fifty"
    suite(folder)
    out: dict[str, Any] = {}
    for mode in ("check", "count"):
        seconds, verdicts = [], []
        for repeat in range(repeats):
            say(f"fifty budgets, --overhead-budget={mode}, run {repeat + 1} of {repeats}")
            file = folder / "verdicts.json"
            asked = (f"--overhead-budget={mode}", f"--overhead-json={file}")
            seconds.append(round(pytest_run(folder, *asked, status=1)[0], 2))
            tests = json.loads(file.read_text(encoding="utf-8"))["tests"]
            verdicts.append(Counter(test["verdict"] for test in tests))
        out[mode] = {
            "seconds": seconds,
            "median_s": statistics.median(seconds),
            "verdicts": [dict(sorted(found.items())) for found in verdicts],
        }
    return out


def suite(folder: Path) -> None:
    """Twenty-five operations of two sizes each."""
    folder.mkdir()
    cases = [(name, arity) for arity, names in ((1, ONE), (2, TWO)) for name in names.split()]
    module = MODULE
    for name, arity in cases:
        form = DEAR_WRAPPER if name in DEAR else CHEAP_WRAPPER
        module += form.format(name=name, given=", ".join("xy"[:arity]))
    (folder / "wrapped.py").write_text(module, encoding="utf-8")
    (folder / "test_fifty.py").write_text(TESTS.format(cases=cases), encoding="utf-8")


# -- results -----------------------------------------------------------------------------------------


def report(unused: dict[str, Any], fifty: dict[str, Any], load: float) -> dict[str, Any]:
    """Everything measured, as JSON."""
    dear = 2 * len(DEAR)
    wanted = {"fail": dear, "pass": 50 - dear}
    return {
        "machine": {**machine(), "load_before": round(load, 2)},
        "versions": {name: version_of(name) for name in ("pytest", "torch")},
        "unused": unused,
        "fifty": fifty,
        "goals": GOALS,
        "met": {
            "added ms": below(unused["clock"]["added_ms"], GOALS["added ms"]),
            "50 budgets s": max(fifty["check"]["seconds"]) <= GOALS["50 budgets s"],
            "50 counted s": max(fifty["count"]["seconds"]) <= GOALS["50 counted s"],
            "all decided, and rightly": all(
                found == wanted for mode in fifty.values() for found in mode["verdicts"]
            ),
        },
    }


def below(figure: dict[str, float], goal: float) -> bool | None:
    """Whether a figure is surely below the goal, surely not, or neither."""
    if figure["high"] <= goal:
        return True
    return False if figure["low"] > goal else None


def table(results: dict[str, Any]) -> str:
    """The numbers for people."""
    lines = []
    for name in ("clock", "processor", "children"):
        found, more = results["unused"][name], results["unused"][name]["added_ms"]
        lines.append(
            f"a trivial run, {name}: {found['with_ms']} ms with the plugin, {found['without_ms']} ms "
            f"without; it adds {more['value']} ms ({more['low']} to {more['high']})"
        )
    for version, found in results["unused"]["pythons"].items():
        more = found["added_ms"]
        lines.append(
            f"the same with Python {version}, clock: {found['with_ms']} ms with the plugin, "
            f"{found['without_ms']} ms without; it adds {more['value']} ms ({more['low']} to {more['high']})"
        )
    for mode, found in results["fifty"].items():
        times = ", ".join(f"{s:.1f}" for s in found["seconds"])
        came = "; ".join(", ".join(f"{n} {v}" for v, n in v.items()) for v in found["verdicts"])
        lines.append(f"50 budgets, {mode}: {times} s ({came})")
    said = {True: "met", False: "MISSED", None: "too noisy to tell"}
    lines += [f"goal {said[ok]}: {name}" for name, ok in results["met"].items()]
    return "\n".join(lines)


def say(text: str) -> None:
    """Progress, apart from the table."""
    print(f"bench_plugin: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
