"""Published Keras releases, each held against the one before: what became dearer, what cheaper, how surely.

    python bench/bench_releases.py [FOLDER]      # some 22 minutes; FOLDER keeps the wheels
    python bench/bench_releases.py FOLDER --from 3.14.1 --to 3.15.0 --times 8     # one step, again and again

A git repository is made with one commit for each release. At each commit `pytest --overhead-against=HEAD~1`
measures five calls on 4 rows (Dense, ReLU, Identity, add, softmax): processes of both releases take turns.
Where that leaves an interval wider than 3%, as a large change has a verdict at once, or the time is up, the
call is asked for again with `--overhead-precision=3%` and three times as long. All is done twice (or
`--times`), and each answer is held against the first. torch and the plugin are those of this environment;
what else Keras needs is installed beside. Written to bench/results/releases.json and releases.md (or
`--output`).
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, starmap
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

from bench_keras import dependencies, sources
from bench_lint import BenchError
from publishing import RESULTS, checked_page, study, table, written_by
from timing_peers import CLOCK, own_rows

VERSIONS = (
    "3.12.0",
    "3.12.1",
    "3.13.0",
    "3.13.1",
    "3.13.2",
    "3.14.0",
    "3.14.1",
    "3.15.0",
    "3.15.1",
)
CALLS = ("Dense", "ReLU", "Identity", "add", "softmax")
WIDEST = 0.03
"""Half of an interval, at most."""
MORE = (f"--overhead-precision={WIDEST:.0%}", "--overhead-max-time=15")
"""What is asked with where it is wider."""

SUITE = """\
import json
import os

import keras
import pytest
import torch

torch.set_num_threads(1)
CALLED = os.environ["CALLED"].split()
X = torch.ones(4, 8)
DENSE = keras.layers.Dense(8)
DENSE.build((None, 8))
CALLS = {
    "Dense": (DENSE, X),
    "ReLU": (keras.layers.ReLU(), X),
    "Identity": (keras.layers.Identity(), X),
    "add": (keras.ops.add, X, X),
    "softmax": (keras.ops.softmax, X),
}
ANY = dict.fromkeys(
    ("instructions", "py_calls", "c_calls", "dispatches", "functions", "tensor_allocations"), 10**9)


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.overhead_budget(regression=1.0, **ANY))
    for name in CALLS if name in CALLED
])
def test_call(overhead, name):
    overhead(*CALLS[name])
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and publishes; 1 if an interval is too wide, or two answers differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, help="keeps the wheels")
    parser.add_argument("--from", dest="first", choices=VERSIONS[:-1], default=VERSIONS[0])
    parser.add_argument("--to", dest="last", choices=VERSIONS[1:], default=VERSIONS[-1])
    parser.add_argument(
        "--times", type=int, default=2, help="answers to each question (default: 2)"
    )
    parser.add_argument("--output", type=Path, default=RESULTS / "releases.json")
    options = parser.parse_args(arguments)
    versions = VERSIONS[VERSIONS.index(options.first) : VERSIONS.index(options.last) + 1]
    if len(versions) < 2:
        parser.error("--to: a release after that of --from")
    kept: dict[str, Any] = {}

    def measured() -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="bench-releases-") as scratch:
            wheels = options.folder or Path(scratch) / "wheels"
            kept.update(measure(wheels, Path(scratch), versions, options.times))
        return kept

    status = study(
        "releases", None, ["--output", str(options.output)], measured, page, lambda results: ""
    )
    return status or int(bool(wrong(kept)))


def measure(wheels: Path, scratch: Path, versions: Sequence[str], times: int) -> dict[str, Any]:
    """The answers of all steps, so many times."""
    found = sources(wheels, versions)
    beside = dependencies(wheels, found)
    folder = scratch / "repository"
    commits = repository(folder, found)
    os.environ.update(KERAS_BACKEND="torch", PYTHONPATH=f"{folder}{os.pathsep}{beside}")
    rows: list[dict[str, Any]] = []
    for turn in range(times):
        for older, newer in pairwise(versions):
            git(folder, "checkout", "-q", commits[newer])
            step = f"{older} to {newer}"
            told = asked(folder, commits[older], CALLS)
            wide = [call for call, row in told.items() if half_width(row["change"]) > WIDEST]
            if wide:
                told |= asked(folder, commits[older], wide, *MORE)
            rows += ({"step": step, "call": call, "turn": turn, **told[call]} for call in told)
            print(f"bench_releases: {step}, {turn + 1} of {times}", file=sys.stderr, flush=True)
    return {"rows": rows}


def asked(
    folder: Path, commit: str, calls: Iterable[str], *flags: str
) -> dict[str, Mapping[str, Any]]:
    """By call, how many times what it took at a commit it takes now."""
    os.environ["CALLED"] = " ".join(calls)
    told, seconds = own_rows(folder, f"--overhead-against={commit}", *flags, "test_calls.py")
    out = {}
    for node, row in told.items():
        change = (row["base"] or {}).get("change")
        if change is None:
            raise BenchError(f"{commit}: {node}: {row['reason']}")
        out[node.partition("[")[2].rstrip("]")] = {
            "change": change,
            "subject_us": row["subject_us"],
            "instructions": row["counters"].get("instructions"),
            "before": row["base"]["counters"].get("instructions"),
            "seconds": round(seconds[node], 1),
        }
    return out


def repository(folder: Path, found: Mapping[str, Path]) -> dict[str, str]:
    """A repository with a commit for each release: by version, the commit."""
    folder.mkdir()
    git(folder, "init", "-q")
    commits = {}
    for version, path in found.items():
        rmtree(folder / "keras", ignore_errors=True)
        copytree(path / "keras", folder / "keras")
        (folder / "test_calls.py").write_text(SUITE, encoding="utf-8")
        (folder / "conftest.py").write_text(CLOCK, encoding="utf-8")
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        (folder / ".gitignore").write_text("seconds\nout.json\n__pycache__\n.dispatchguard\n")
        git(folder, "add", "-A", "-f", "keras")
        git(folder, "add", "-A")
        who = ("-c", "user.name=bench", "-c", "user.email=bench@example.org")
        git(folder, *who, "commit", "-q", "-m", f"Keras {version}")
        commits[version] = git(folder, "rev-parse", "HEAD").strip()
    return commits


def git(folder: Path, *words: str) -> str:
    """What git says."""
    return subprocess.run(
        ["git", *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


def answers(results: Mapping[str, Any]) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """By step and call, the rows of all turns."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in results["rows"]:
        found.setdefault((row["step"], row["call"]), []).append(row)
    return found


def half_width(change: Mapping[str, float]) -> float:
    """Half of an interval, as a part of the figure."""
    return (change["high"] - change["low"]) / 2 / change["value"]


def differ(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """By how much two answers differ, as a part of the first."""
    return abs(math.log(other["value"] / one["value"]))


def allowed(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """By how much they may: independent errors add up as squares."""
    return math.hypot(half_width(one), half_width(other))


def apart(answered: Iterable[Sequence[Mapping[str, Any]]]) -> str:
    """The standard deviation of answers to the same question, over several questions."""
    logs = [[math.log(row["change"]["value"]) for row in rows] for rows in answered]
    if any(len(of_one) < 2 for of_one in logs):
        return ""
    return f"{math.sqrt(statistics.fmean(map(statistics.variance, logs))):.2%}"


def wrong(results: Mapping[str, Any]) -> list[str]:
    """What must hold and does not."""
    out = []
    for (step, call), rows in answers(results).items():
        for row in rows:
            wide = half_width(row["change"])
            if not wide <= WIDEST:
                out.append(f"{step}, {call}: ±{wide:.1%}")
        first, *others = (row["change"] for row in rows)
        for other in others:
            if differ(first, other) > allowed(first, other):
                out.append(f"{step}, {call}: {first['value']:.3f}, then {other['value']:.3f}")
    return out


def page(results: Mapping[str, Any]) -> str:
    """The table: each step's factors, how far answers are apart, and the product of all steps."""
    found = answers(results)
    steps = list(dict.fromkeys(step for step, _ in found))
    rows = []
    for step in steps:
        cells = []
        for call in CALLS:
            changes = [row["change"] for row in found[step, call]]
            wide = max(map(half_width, changes))
            cells.append(" / ".join(f"{c['value']:.3f}" for c in changes) + f" ±{wide:.1%}")
        rows.append([step, *cells, apart(found[step, call] for call in CALLS)])
    whole = [
        f"{math.prod(found[step, call][0]['change']['value'] for step in steps):.3f}"
        for call in CALLS
    ]
    counted = []
    for call in CALLS:
        first, last = found[steps[0], call][0], found[steps[-1], call][0]
        counted.append(f"{first['before']:,} to {last['instructions']:,}")
    last = [f"{found[steps[-1], call][0]['subject_us']:.1f} µs" for call in CALLS]
    seconds = [row["seconds"] for row in results["rows"]]
    changes = [[row["change"] for row in rows] for rows in found.values()]
    again = [(first, other) for first, *others in changes for other in others]
    most = max(starmap(differ, again), default=0.0)
    outside = sum(differ(*two) > min(map(half_width, two)) for two in again)
    body = [
        "How many times what a call took in the release before it takes now: the answers, one after the",
        "other, and the widest of their half intervals (99.9%). In the last column the standard deviation of",
        f"answers to the same question, of all five calls. At most {max(seconds):.1f} s a test.",
        "",
        f"All {len(again)} pairs of answers differ by at most {most:.2%}, and {outside} by more than the",
        "narrower of their intervals, as one pair in fifty does (99.9% intervals). They may differ by",
        "what both intervals allow together.",
        "",
        *table(
            ["step", *CALLS, "apart"],
            [*rows, ["all steps", *whole, ""], ["instructions", *counted, ""], ["now", *last, ""]],
        ),
    ]
    title = "Keras releases, one after the other"
    return checked_page(title, written_by("bench-releases", results), body, wrong(results))


if __name__ == "__main__":
    raise SystemExit(main())
