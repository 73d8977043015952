"""How well two revisions are told apart: false alarms of a revision against itself, and slowdowns found.

    python bench/bench_revisions.py                     # some two hours; 40 minutes with --runs 6
    python bench/bench_revisions.py --runs 2 --no-peers --add     # more of the same, after a break
    python bench/bench_revisions.py --device cuda --no-peers --output gpu.json   # calls on a GPU

A git repository is made with seven kinds of call, from a wrapper of 1 us to a training step of 1 ms. Its work
tree has calls whose code is as committed, and calls that got slower by 2% and by 5%: by checks of their
argument, as many as the size takes, whose true cost is measured first, within one process, old code against
new, each time the bench is called, in each condition. Then `pytest --overhead-against=HEAD` measures all,
again and again: each run starts its pairs of processes anew. The limit is half the slowdown: 1.01 for A/A and
2%, 1.025 for 5%; the counters that are counted by default have limits that nothing reaches. A verdict `fail`
of unchanged code is a false alarm, of a planted slowdown one found. All is done as the machine is, and with a
process beside it that keeps the other core busy.

The peers get the same pairs: each side is saved by a run of its own and compared by the tool's own means
(pyperf's `compare_to`) or, where it has none offline, at the same limit (pytest-benchmark's mean,
CodSpeed's walltime).

After every run the table and the numbers are written whole: a bench that is killed leaves what it did.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from bench_lint import BenchError, machine, version_of
from publishing import publish, table
from timing_peers import CLOCK, PEERS, Peer, busy_core, own_rows, peer_python, peers

RESULTS = Path(__file__).resolve().parent / "results" / "revisions.json"
CONDITIONS = ("quiet", "busy")
KINDS = ("wrapper", "functional", "layer", "tree", "stack", "product", "training")
SAME = "A/A"
SLOWER = {"2% slower": (1.02, 1.01), "5% slower": (1.05, 1.025)}
"""By what they are called: how many times dearer, and the limit."""
FALSE_ALARMS, SECONDS_EACH = 1, 15.0
"""Of 1,000 comparisons at most, and for each of them at most."""
FOUND = {"2% slower": 95, "5% slower": 99}
"""Of 100."""
COPIES = 8
"""Tests of unchanged code, of each kind in a run."""
STARTER = (f"tree~{SAME}~start", 1.0)
"""A test that is never decided: it has all processes started, which takes as long as torch's import, and is
not counted."""
FELT = 1.005
"""How many times dearer a call is, at least, whose checks say what one costs: else more are tried, as noise
alone would ask for so many that compiling them takes minutes."""
_PROBES = 4

SUBJECTS = '''\
"""Calls of seven kinds. `CHECKS` says how often each checks its argument, which is what slows it down."""
import json
from pathlib import Path

import torch
from torch import nn

CHECKS = json.loads(Path(__file__).with_name("checks.json").read_text())
LONG = ("stack", "product", "training")
"""Of these, checks are called in a loop; in the others they are lines of code."""
CHECK = "    if x is None: raise TypeError\\n"
DEVICE = Path(__file__).with_name("device").read_text()
add = torch.add
torch.manual_seed(0)


def check(x):
    if x is None:
        raise TypeError


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x, mask=None):
        x = self.inner(x)
        return torch.relu(x if mask is None else x * mask)


LAYER = Layer().to(DEVICE)
STACK = nn.Sequential(*(Layer() for _ in range(12))).to(DEVICE)
MODEL = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
MODEL.to(DEVICE)
OPTIMIZER = torch.optim.Adam(MODEL.parameters(), foreach=False)
TREE = {"a": [1, (2, 3), {"b": 4}], "c": {"d": [5, 6], "e": (7, [8, 9])}}


def leaves(tree):
    if isinstance(tree, dict):
        return [leaf for name in sorted(tree) for leaf in leaves(tree[name])]
    if isinstance(tree, (list, tuple)):
        return [leaf for one in tree for leaf in leaves(one)]
    return [tree]


def call_wrapper(x):
    return add(x, x)


def call_functional(x):
    return nn.functional.softmax(nn.functional.relu(x), dim=-1)


def call_layer(x):
    return LAYER(x)


def call_tree(x):
    return sum(leaves(TREE))


def call_stack(x):
    return STACK(x)


def call_product(x):
    return torch.matmul(x, x).sum()


def call_training(x):
    OPTIMIZER.zero_grad()
    loss = (MODEL(x) ** 2).mean()
    loss.backward()
    OPTIMIZER.step()
    return loss.detach()


ARGUMENTS = {
    "wrapper": torch.randn(4, device=DEVICE),
    "functional": torch.randn(4, device=DEVICE),
    "layer": torch.randn(4, 8, device=DEVICE),
    "tree": 1,
    "stack": torch.randn(4, 8, device=DEVICE),
    "product": torch.randn(160, 160, device=DEVICE),
    "training": torch.randn(8, 16, device=DEVICE),
}


def subject(kind, number=0):
    """A call of that kind, with `number` checks of its argument before it. Each subject is code of its
    own, as a test's would be."""
    text = Path(__file__).read_text()
    body = text.partition(f"def call_{kind}(x):\\n")[2].partition("\\n\\n\\n")[0]
    one = f"    for _ in range({number}): check(x)\\n" if number and kind in LONG else CHECK * number
    space = {}
    exec(f"def call(x):\\n{one}{body}\\n", globals(), space)
    return space["call"], ARGUMENTS[kind]


def as_now(name):
    """The call of a test, in this revision."""
    kind, case, _ = name.split("~")
    return subject(kind, CHECKS.get(case, {}).get(kind, 0))
'''
SUITE = """\
import json
import os
from pathlib import Path

import pytest
import torch

import subjects

torch.set_num_threads(1)
PLAN = json.loads(Path(os.environ["PLAN"]).read_text())  # the same for both revisions
ANY = dict.fromkeys(
    ("instructions", "py_calls", "c_calls", "dispatches", "functions", "tensor_allocations"), 10**9)


@pytest.mark.parametrize("name", [
    pytest.param(name, id=name, marks=pytest.mark.overhead_budget(regression=limit, **ANY))
    for name, limit in PLAN
])
def test_verdict(overhead, name):
    overhead(*subjects.as_now(name))
"""
SIZES = """\
import json
from pathlib import Path

import pytest
import torch

import subjects

torch.set_num_threads(1)


NUMBERS, LIMIT = json.loads(Path(__file__).with_name("sizes.json").read_text())


@pytest.mark.parametrize("kind", list(NUMBERS))
@pytest.mark.overhead_budget(ratio=LIMIT)
def test_size(overhead, kind):
    call, x = subjects.subject(kind, NUMBERS[kind])
    plain, x = subjects.subject(kind)
    overhead(call, x).against(plain, x).unchecked()
"""
PEER_SUITE = """\
import json
import os

import pytest
import torch

import subjects

torch.set_num_threads(1)


@pytest.mark.parametrize("name", json.loads(os.environ["NAMES"]))
def test_call(benchmark, name):
    benchmark(*subjects.as_now(name))
"""
PYPERF_SCRIPT = """\
import os

import pyperf
import torch

import subjects

torch.set_num_threads(1)
pyperf.Runner().bench_func("call", *subjects.as_now(os.environ["NAME"]))
"""


@dataclass
class Tally:
    """The verdicts of one tool on one kind of comparison."""

    tool: str
    condition: str
    case: str
    verdicts: dict[str, int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    changes: list[float] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    """Half of each interval, as a part."""
    kinds: list[str] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    """Of verdicts that are wrong."""

    @property
    def count(self) -> int:
        return sum(self.verdicts.values())

    @property
    def failed(self) -> int:
        return self.verdicts.get("fail", 0)


class Results:
    """What was measured so far, and where it is written."""

    def __init__(self, output: Path, gpu: Mapping[str, str]) -> None:
        self.output = output
        self.tallies: dict[tuple[str, str, str], Tally] = {}
        self.about: dict[str, Any] = {**machine(), "torch": version_of("torch"), **gpu}
        self.sizes: dict[str, dict[str, dict[str, list[float]]]] = {}
        """By condition, case and kind: how many times dearer a call truly is, each time it was measured."""
        self.call_us: dict[str, float] = {}
        self.starts: list[float] = []
        """Seconds of each run's first test, which starts its processes."""
        self.checks: dict[str, dict[str, dict[str, int]]] = {}
        """By condition, case and kind: how many checks are planted."""
        self.started = time.monotonic()

    def read(self) -> None:
        """Goes on from what was written; BenchError where another machine wrote it."""
        if not self.output.exists():
            return
        known = json.loads(self.output.read_text(encoding="utf-8"))
        if {name: known["machine"].get(name) for name in self.about} != self.about:
            raise BenchError(f"{self.output} is of another machine: leave --add out")
        self.about |= known["machine"]
        self.sizes, self.call_us = known["true_sizes"], known["call_us"]
        self.checks, self.starts = known["checks"], known["starts"]
        for one in known["tallies"]:
            self.tallies[one["tool"], one["condition"], one["case"]] = Tally(**one)
        self.started -= known["seconds"]

    def of(self, tool: str, condition: str, case: str) -> Tally:
        """The tally of a tool in a condition."""
        key = (tool, condition, case)
        return self.tallies.setdefault(key, Tally(*key))

    def write(self) -> None:
        """Writes numbers and page."""
        seconds = round(time.monotonic() - self.started)
        results = {
            "machine": self.about,
            "seconds": seconds,
            "true_sizes": self.sizes,
            "call_us": self.call_us,
            "checks": self.checks,
            "starts": self.starts,
            "tallies": [asdict(one) for one in self.tallies.values()],
            "met": self.met(),
        }
        publish(self.output, results, self.page(seconds))

    def page(self, seconds: int) -> str:
        """The tables."""
        about = self.about
        head = ["tool", "condition", SAME, *SLOWER, "seconds each, median", "most"]
        rows = []
        for tool, condition in dict.fromkeys(key[:2] for key in self.tallies):
            of = [self.tallies.get((tool, condition, case)) for case in (SAME, *SLOWER)]
            seen = [second for one in of if one for second in one.seconds]
            took = [f"{statistics.median(seen):.1f}", f"{max(seen):.1f}"] if seen else ["", ""]
            rows.append([tool, condition, *map(cell, of), *took])
        planted_in = [f"{case}, {condition}" for case in SLOWER for condition in self.sizes]
        kinds = [
            [
                kind,
                f"{self.call_us.get(kind, 0):,.1f} µs",
                *(
                    between(sizes[case].get(kind, ()))
                    for case in SLOWER
                    for sizes in self.sizes.values()
                ),
                *(self._spread(kind, condition) for condition in CONDITIONS),
            ]
            for kind in KINDS
            if kind in self.call_us
        ]
        return "\n".join(
            [
                "# Two revisions, told apart",
                "",
                (
                    f"Written by `make bench-revisions` in {seconds} s: {about['cpu']}, {about['cores']} "
                    f"cores, Python {about['python']}, torch {about['torch']}, one thread"
                    + (f"; calls on an {about['gpu']}." if "gpu" in about else ".")
                ),
                "",
                "Verdicts `fail`: false alarms in the column A/A, slowdowns found in others; u: undecided.",
                "The limit is half the slowdown (1.01 for A/A); pyperf knows of no limit. Seconds are",
                "those of a test; a run's first one, which starts all processes, is not counted"
                + (f" (it took {statistics.median(self.starts):.0f} s)." if self.starts else "."),
                "",
                *table(head, rows),
                "",
                "The kinds of calls, what was planted in truth, and how far a revision seems from itself:",
                "standard deviation and the largest of all comparisons, and the median half interval.",
                "",
                *table(["kind", "a call takes", *planted_in, *CONDITIONS], kinds),
                "",
                *(
                    f"- goal {'met' if fine else 'MISSED'}: {goal}"
                    for goal, fine in self.met().items()
                ),
                "",
            ]
        )

    def _spread(self, kind: str, condition: str) -> str:
        one = self.tallies.get(("dispatchguard", condition, SAME))
        pairs = zip(one.kinds, one.changes, one.widths, strict=True) if one else ()
        found = [(change - 1, wide) for its, change, wide in pairs if its == kind]
        if len(found) < 2:
            return ""
        off = [change for change, _ in found]
        wide = statistics.median(w for _, w in found)
        return f"{statistics.stdev(off):.2%}, {max(map(abs, off)):.2%}; ±{wide:.2%}"

    def met(self) -> dict[str, bool]:
        """By goal, with what was seen, whether it is met."""
        out = {}
        for condition in CONDITIONS:
            of = {
                case: self.tallies.get(("dispatchguard", condition, case))
                for case in (SAME, *SLOWER)
            }
            same = of[SAME]
            if same is None:
                continue
            most = FALSE_ALARMS * max(1.0, same.count / 1000)
            out[f"{condition}: {cell(same)} false alarms"] = same.failed <= most
            for case, least in FOUND.items():
                one = of[case]
                if one is not None and one.count:
                    fine = one.failed >= least / 100 * one.count
                    out[f"{condition}: {case}, {cell(one)} found"] = fine
            seen = [second for one in of.values() if one for second in one.seconds]
            out[f"{condition}: at most {max(seen):.1f} s a test"] = max(seen) <= SECONDS_EACH
        return out


def between(ratios: Sequence[float]) -> str:
    """By how much more, or by how much at least and at most."""
    ends = dict.fromkeys(f"{one - 1:.2%}" for one in (min(ratios), max(ratios))) if ratios else ()
    return " to ".join(ends)


def cell(tally: Tally | None) -> str:
    """A tally in few words."""
    if tally is None or not tally.count:
        return ""
    unsure, broken = tally.verdicts.get("undecided", 0), tally.verdicts.get("error", 0)
    return (
        f"{tally.failed} of {tally.count}"
        + (f" ({unsure} u)" if unsure else "")
        + (f" ({broken} errors)" if broken else "")
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=18, help="runs in each condition (default: 18)")
    parser.add_argument("--conditions", nargs="+", choices=CONDITIONS, default=list(CONDITIONS))
    parser.add_argument("--add", action="store_true", help="to what was measured before")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--peer-runs", type=int, default=4, help="of each side (default: 4)")
    parser.add_argument("--venvs", type=Path, help="keep the peers' environment in this folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--device", default="cpu", help="cuda, say, where all calls then are")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--copies", type=int, default=COPIES, help="of unchanged calls in a run")
    parser.add_argument("--sizing-seconds", type=float, default=10.0, help="for a slowdown's size")
    parser.add_argument(
        "--sizings", type=int, default=4, help="times, at most, that sizes are mended"
    )
    options = parser.parse_args(arguments)
    if not options.no_peers and options.device != "cpu":
        parser.error("--device: the peers measure on the CPU: say --no-peers")
    results = Results(options.output, {} if options.device == "cpu" else gpu_name())
    if options.add:
        results.read()
    rng = random.Random(options.seed)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-revisions-") as scratch:
            measure(options, results, Path(scratch), rng)
    except BenchError as error:
        print(f"bench_revisions: {error}", file=sys.stderr)
        return 2
    return int(not all(results.met().values()))


def measure(
    options: argparse.Namespace, results: Results, scratch: Path, rng: random.Random
) -> None:
    """All conditions, this project first."""
    folder = scratch / "project"
    folder.mkdir()
    (folder / "device").write_text(options.device, encoding="utf-8")
    make_repository(folder)
    for condition in options.conditions:
        with busy_core(wanted=condition == "busy"):
            if options.runs:
                results.checks[condition] = planted(folder, condition, options, results)
            write_project(folder, results.checks[condition])
            start = time.monotonic()
            for number in range(options.runs):
                one_run(folder, condition, options, results, rng)
                results.write()
                left = (time.monotonic() - start) / (number + 1) * (options.runs - number - 1)
                say(f"{condition}: run {number + 1} of {options.runs}, {left / 60:.0f} min left")
    if options.no_peers:
        return
    python = peer_python(options.venvs or scratch / "venvs", results.about)
    for condition in options.conditions:  # on the CPU
        write_project(folder, results.checks[condition])
        with busy_core(wanted=condition == "busy"):
            for peer in peers(python, folder, "test_peers.py"):
                if not peer.name.startswith(tuple(options.peers)):
                    continue
                peer_verdicts(peer, condition, options, results, rng)


def write_project(folder: Path, checks: Mapping[str, Mapping[str, int]]) -> None:
    """The files of a revision."""
    files = {
        "subjects.py": SUBJECTS,
        "test_speed.py": SUITE,
        "test_peers.py": PEER_SUITE,
        "conftest.py": CLOCK,
        "arm.py": PYPERF_SCRIPT,
        "checks.json": json.dumps(checks),
        "pytest.ini": "[pytest]\npython_files = test_speed.py\n",
        ".gitignore": ".dispatchguard\n__pycache__\nseconds\n*.json\n!checks.json\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def make_repository(folder: Path) -> None:
    """Commits the quick revision."""
    write_project(folder, {})
    who = ("-c", "user.name=bench", "-c", "user.email=bench@example.org")
    for words in (("init", "-q"), ("add", "-A"), (*who, "commit", "-q", "-m", "as it was")):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


def planted(
    folder: Path, condition: str, options: argparse.Namespace, results: Results
) -> dict[str, dict[str, int]]:
    """How many checks slow each kind down by as much as is asked, by case; and their true sizes. As many as
    before, where these still do."""
    say(f"{condition}: how much a check costs in each kind of call")
    write_project(folder, {})
    (folder / "test_sizes.py").write_text(SIZES, encoding="utf-8")
    known = results.checks.get(condition) or guessed(folder, options, results)
    true_sizes = results.sizes.setdefault(condition, {})
    out = {}
    for case, (times, _) in SLOWER.items():
        numbers = dict(known[case])
        seen: dict[str, tuple[float, float]] = {}
        open_kinds = list(options.kinds)
        # What a check costs depends on how many there are.
        for left in reversed(range(options.sizings)):
            seen |= sizes(
                folder, {kind: numbers[kind] for kind in open_kinds}, times, options.sizing_seconds
            )
            say(f"{case}, with {numbers}: { {kind: seen[kind][0] for kind in open_kinds} }")
            short = {kind: (times - 1) / max(seen[kind][0] - 1, FELT - 1) for kind in seen}
            open_kinds = [kind for kind in seen if not 0.85 < short[kind] < 1.0]
            if not open_kinds or not left:
                break
            for kind in open_kinds:
                numbers[kind] = max(1, math.ceil(numbers[kind] * short[kind]))
        of_case = true_sizes.setdefault(case, {})
        for kind, (ratio, _) in seen.items():
            of_case.setdefault(kind, []).append(round(ratio, 5))
        out[case] = numbers
    (folder / "test_sizes.py").unlink()
    return out


def guessed(
    folder: Path, options: argparse.Namespace, results: Results
) -> dict[str, dict[str, int]]:
    """How many checks that may take, by what a few cost."""
    probe = {"wrapper": 4, "functional": 8, "layer": 40, "tree": 20}
    probe |= {"stack": 100, "product": 60, "training": 300}
    probe = {kind: probe[kind] for kind in options.kinds}
    seconds = options.sizing_seconds
    first = sizes(folder, probe, 1.04, seconds * 0.3)
    for _ in range(_PROBES):
        unfelt = {kind: 4 * probe[kind] for kind, (ratio, _) in first.items() if ratio < FELT}
        if not unfelt:
            break
        probe |= unfelt
        first |= sizes(folder, unfelt, 1.04, seconds * 0.3)
    for kind, (_, us) in first.items():
        results.call_us.setdefault(kind, round(us, 2))
    return {
        case: {
            kind: max(1, round(probe[kind] * (times - 1) / max(ratio - 1, FELT - 1)))
            for kind, (ratio, _) in first.items()
        }
        for case, (times, _) in SLOWER.items()
    }


def sizes(
    folder: Path, numbers: Mapping[str, int], limit: float, seconds: float
) -> dict[str, tuple[float, float]]:
    """By kind: how many times dearer a call is with so many checks, and its time in microseconds. Near to
    the limit all the time is used."""
    (folder / "sizes.json").write_text(json.dumps([numbers, limit]), encoding="utf-8")
    rows, _ = own_rows(folder, f"--overhead-max-time={seconds:g}", "test_sizes.py")
    out = {}
    for node, row in rows.items():
        if row["ratio"] is None:
            raise BenchError(f"{node}: {row['reason']}")
        out[node.partition("[")[2].rstrip("]")] = (row["ratio"]["value"], row["reference_us"])
    return out


def one_run(
    folder: Path,
    condition: str,
    options: argparse.Namespace,
    results: Results,
    rng: random.Random,
) -> None:
    """A run of all kinds: copies as they were, and one of each slowdown."""
    kinds, copies = options.kinds, options.copies
    plan = [(f"{kind}~{SAME}~{i}", 1.01) for kind in kinds for i in range(copies)]
    plan += [(f"{kind}~{case}~0", limit) for case, (_, limit) in SLOWER.items() for kind in kinds]
    rng.shuffle(plan)
    plan.insert(0, STARTER)
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    os.environ["PLAN"] = str(folder / "plan.json")
    rows, seconds = own_rows(folder, "--overhead-against=HEAD", "test_speed.py")
    for node, verdict in rows.items():
        kind, case, number = node.partition("[")[2].rstrip("]").split("~")
        if number == "start":
            results.starts.append(round(seconds[node], 1))
            continue
        tally = results.of("dispatchguard", condition, case)
        tally.verdicts[verdict["verdict"]] = tally.verdicts.get(verdict["verdict"], 0) + 1
        tally.seconds.append(round(seconds[node], 2))
        change = (verdict.get("base") or {}).get("change")
        if change is None:
            say(f"{node}: {verdict['reason']}")
        else:
            tally.kinds.append(kind)
            tally.changes.append(round(change["value"], 5))
            tally.widths.append(round((change["high"] - change["low"]) / 2 / change["value"], 5))
        if (verdict["verdict"] == "fail") != (case in SLOWER):
            tally.reasons.append(f"{node}: {verdict['reason']}")


def peer_verdicts(
    peer: Peer,
    condition: str,
    options: argparse.Namespace,
    results: Results,
    rng: random.Random,
) -> None:
    """A peer on the same pairs: each saved run of the old revision held against each of the new one."""
    runs, at_once = options.peer_runs, [options.kinds]
    if peer.name == "pyperf":
        # It takes a minute or more for each name, and each in processes of its own.
        runs, at_once = max(1, runs // 2), [[kind] for kind in options.kinds]
    for kinds in at_once:
        names = [f"{kind}~{case}~0" for case in (SAME, *SLOWER) for kind in kinds]
        quick = [f"{kind}~{SAME}~0" for kind in kinds]
        old: list[Mapping[str, Any]] = []
        new: list[Mapping[str, Any]] = []
        for number in range(runs):
            sides = [(old, quick), (new, names)]
            rng.shuffle(sides)
            for kept, asked in sides:
                kept.append(peer.run(asked))
            say(f"{condition}: {peer.name}, {number + 1} of {runs} runs of {', '.join(kinds)}")
        for case in (SAME, *SLOWER):
            tally = results.of(peer.name, condition, case)
            limit = 1.01 if case == SAME else SLOWER[case][1]
            for before, after, kind in product(old, new, kinds):
                one, other = before[f"{kind}~{SAME}~0"], after[f"{kind}~{case}~0"]
                verdict, change = peer.compare(one, other, limit)
                tally.verdicts[verdict] = tally.verdicts.get(verdict, 0) + 1
                tally.seconds.append(round(one["seconds"] + other["seconds"], 2))
                if change is not None:
                    tally.kinds.append(kind)
                    tally.changes.append(round(change, 5))
                    tally.widths.append(0.0)
        results.write()


def gpu_name() -> dict[str, str]:
    """What accelerator is here."""
    import torch

    return {"gpu": torch.cuda.get_device_name()}


def say(text: str) -> None:
    """Progress, apart from the table."""
    print(f"bench_revisions: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
