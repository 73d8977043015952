"""Do native instructions repeat, and what does counting them take?

    python bench/bench_native.py [--runs N] [--output FILE]

Every run is a pytest of its own with `--overhead-budget=count --overhead-native`, on subjects from a plain
Python function to a layer of torch, in one folder and in another: as two revisions of a project have. The
spread is the largest number over the smallest. Written to bench/results/native.json and native.md.

Exit status: 0 if every subject repeats to 0.1% within a folder, 1 if one does not, 2 if nothing can count.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench_lint import BenchError, machine, version_of
from publishing import RESULTS, publish, table

from pytest_dispatchguard.runtime.counters.native import EVENTS, NAME, why_no_events

TESTS = """
import asyncio
import torch

def words(text):
    return sorted({word.lower() for word in text.split()})

def wrapped(*args):
    return torch.add(*args)

async def later(x):
    return torch.relu(x)

def test_subjects(overhead):
    x = torch.ones(4)
    layer = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
    overhead(words, "the quick brown fox jumps over the lazy dog " * 4)
    overhead(torch.add, x, x)
    overhead(wrapped, x, x)
    overhead(torch.ones(64, 64).matmul, torch.ones(64, 64)).named("matmul 64x64")
    overhead(layer, torch.ones(2, 8)).named("two linear layers")
    overhead(torch.add, x, x).setup(lambda: None).named("add, with setup")
    overhead.awaited(later, x)
"""
FOLDERS = ("one", "a-longer-name-for-the-other")
ENOUGH = 0.001


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5, help="runs in each of two folders")
    parser.add_argument("--output", type=Path, default=RESULTS / "native.json")
    options = parser.parse_args(arguments)
    try:
        results = measured(options.runs)
    except BenchError as error:
        print(f"bench_native: {error}", file=sys.stderr)
        return 2
    publish(options.output, results, page(results))
    worst = max(spread(row[folder]) for row in results["subjects"].values() for folder in FOLDERS)
    return 0 if worst <= ENOUGH else 1


def measured(runs: int) -> dict[str, Any]:
    """The numbers of every subject, by folder, and what the runs took."""
    found: dict[str, dict[str, list[int]]] = {}
    took: dict[str, list[float]] = {"counters alone": [], "native instructions, too": []}
    with tempfile.TemporaryDirectory() as top:
        for folder in FOLDERS:
            place = Path(top, folder)
            place.mkdir()
            (place / "test_native.py").write_text(TESTS, encoding="utf-8")
            for _ in range(runs):
                seconds, _ = run(place)
                took["counters alone"].append(seconds)
                seconds, counters = run(place, "--overhead-native")
                took["native instructions, too"].append(seconds)
                for subject, number in counters.items():
                    found.setdefault(subject, {}).setdefault(folder, []).append(number)
    return {
        "machine": machine(),
        "torch": version_of("torch"),
        "way": "valgrind" if why_no_events() else EVENTS,
        "runs": runs,
        "subjects": found,
        "seconds": took,
    }


def run(folder: Path, *words: str) -> tuple[float, dict[str, int]]:
    """How long a run took, and the native instructions of its subjects."""
    told = folder / "told.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    command += ["--overhead-budget=count", f"--overhead-json={told}"]
    start = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, check=False)
    seconds = time.monotonic() - start
    if done.returncode:
        raise BenchError(done.stdout.decode(errors="replace"))
    rows = json.loads(told.read_text(encoding="utf-8"))["tests"]
    missing = [row["reason"] for row in rows if NAME not in row["counters"]]
    if words and missing:
        raise BenchError(missing[0])
    return seconds, {row["subject"]: row["counters"].get(NAME, 0) for row in rows}


def spread(numbers: Sequence[int]) -> float:
    """How much the largest number is over the smallest."""
    return max(numbers) / min(numbers) - 1


def page(results: Mapping[str, Any]) -> str:
    """The subjects, one a line."""
    rows = []
    for subject, by_folder in results["subjects"].items():
        here, there = (by_folder[folder] for folder in FOLDERS)
        apart = spread([sorted(numbers)[len(numbers) // 2] for numbers in (here, there)])
        least = max(spread(here), spread(there))
        different = max(len(set(here)), len(set(there)))
        rows.append((subject, f"{here[0]}", f"{least:.3%}", f"{different}", f"{apart:.3%}"))
    took = {what: sorted(times)[len(times) // 2] for what, times in results["seconds"].items()}
    about = results["machine"]
    where = f"{about['cpu']}, {about['cores']} cores, Python {about['python']}, torch {results['torch']}"
    head = ("subject", "instructions", "spread", "different numbers", "between folders")
    return "\n".join(
        [
            "# Native instructions",
            "",
            f"Written by `make bench-native`: {where}, counted by {results['way']}.",
            "",
            f"{results['runs']} runs in each of two folders. Spread: the largest number over the smallest,",
            "of runs in one folder. Between folders: the same of their medians, as between two revisions.",
            "",
            *table(head, rows),
            "",
            "; ".join(f"{what}: {seconds:.1f} s a run" for what, seconds in took.items()) + ".",
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
