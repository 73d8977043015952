"""How often a verdict by time is wrong, and how often a slowdown is found: budgets of this project beside
pytest-benchmark, pytest-codspeed and pyperf at their defaults, on one machine in one run.

    python bench/bench_noise.py                                     # some 45 minutes
    python bench/bench_noise.py --verdicts 40 --planted 10 --no-peers

The call takes about 1 us: a Python wrapper around `torch.add` on 4 elements. A/A holds it against a second
function of identical code at a limit of 1.005, as one would to catch 1%: a verdict `fail` is a false alarm.
Slowdowns are planted by real code, whose true size is measured first, by the same machinery for longer;
for a slowdown of s the limit is 1 + s/2. Everything is done twice: as the machine is, and with a process
beside it that keeps another core busy. The verdicts are those that `pytest --overhead-budget` writes for a
generated suite.

After every step the table and the numbers are written whole, so a run that is killed leaves what it did.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench_lint import BenchError, machine, version_of
from publishing import whole
from timing_peers import CLOCK, busy_core, own_rows, peer_python, peers

RESULTS = Path(__file__).resolve().parent / "results" / "noise.json"
HOME = Path(__file__).resolve().parent.parent
CONDITIONS = ("quiet", "busy")
SAME = "A/A"
SAME_LIMIT = 1.005
FOUND = {0.01: 99, 0.02: 100, 0.05: 100, 0.10: 100}
"""The slowdowns, and how many of 100 planted ones are to be found."""
FALSE_ALARMS, SECONDS_EACH = 1, 5.0
"""The other goals: in 1,000 verdicts at most, and for each verdict at most."""

PLAIN = "def {name}(x, y):\n    return add(x, y)\n"
# What creeps into wrappers, by what it is called: one of these is taken for every size that is asked for.
PLANTS = {
    "an argument tested": "if x is None: raise TypeError",
    "two arguments tested": "if x is None or y is None: raise TypeError",
    "a setting tested": "if STRICT: raise TypeError",
    "a setting and an argument tested": "if STRICT or x is None: raise TypeError",
    "a setting and two arguments tested": "if STRICT or x is None or y is None: raise TypeError",
    "three settings and two arguments tested": (
        "if STRICT or LOUD or SLOW or x is None or y is None: raise TypeError"
    ),
    "a wrapper's frame": "return plain(x, y)",
    "a tuple unpacked": "x, y = (*(x, y),)",
    "a list built": "args = [x, y]",
    "a list and a tuple built": "args = [x, y]; args = (*args,)",
    "a dict built": "kwargs = {'x': x, 'y': y}",
    "an attribute tested": "if x.requires_grad and STRICT: raise TypeError",
    "a type tested": "if not isinstance(x, torch.Tensor): raise TypeError",
    "keywords copied": "kwargs = dict(SETTINGS)",
    "a dict built and copied": "kwargs = {**{'x': x, 'y': y}}",
}
SUBJECTS = """\
import torch

add = torch.add
STRICT = LOUD = SLOW = False
SETTINGS = {{"alpha": 1, "out": None}}
DEVICE = "{device}"


{functions}
"""
SUITE = """\
import json
from pathlib import Path

import pytest
import torch

import subjects

X, Y = torch.randn(4, device=subjects.DEVICE), torch.randn(4, device=subjects.DEVICE)
PLAN = json.loads(Path(__file__).with_name("plan.json").read_text())


@pytest.mark.parametrize("name", [
    pytest.param(name, id=f"{number}", marks=pytest.mark.overhead_budget(ratio=limit))
    for number, (name, limit) in enumerate(PLAN)
])
def test_verdict(overhead, name):
    overhead(getattr(subjects, name), X, Y).against(subjects.plain, X, Y)
"""
PEER_SUITE = """\
import json
import os

import pytest
import torch

import subjects

X, Y = torch.randn(4), torch.randn(4)


@pytest.mark.parametrize("name", json.loads(os.environ["NAMES"]))
def test_call(benchmark, name):
    benchmark(getattr(subjects, name), X, Y)
"""
PYPERF_SCRIPT = """\
import os

import pyperf
import torch

import subjects

X, Y = torch.randn(4), torch.randn(4)
pyperf.Runner().bench_func("call", getattr(subjects, os.environ["NAME"]), X, Y)
"""
# An extra test starts both workers of a run; its verdict is not counted, nor is the time of torch's import.
STARTER = ("same", 1.002)


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of comparison: nothing changed, or a slowdown planted."""

    name: str
    function: str
    """In the module of subjects."""
    code: str
    true: float
    """The ratio that long measuring gives."""
    limit: float


@dataclass(slots=True)
class Tally:
    """What one tool said of one case in one condition."""

    tool: str
    condition: str
    case: str
    verdicts: dict[str, int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    """Of each verdict."""
    ratios: list[float] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    """Half of each interval, as a part of the ratio."""
    processes: list[int] = field(default_factory=list)

    def add(
        self,
        verdict: str,
        seconds: float,
        ratio: float | None,
        width: float | None = None,
        processes: int | None = None,
    ) -> None:
        self.verdicts[verdict] = self.verdicts.get(verdict, 0) + 1
        self.seconds.append(round(seconds, 3))
        if ratio is not None and math.isfinite(ratio):
            self.ratios.append(round(ratio, 6))
        if width is not None and math.isfinite(width):
            self.widths.append(round(width, 5))
        if processes is not None:
            self.processes.append(processes)

    @property
    def count(self) -> int:
        return sum(self.verdicts.values())

    @property
    def failed(self) -> int:
        return self.verdicts.get("fail", 0)


class Results:
    """All that is known by now, written whole whenever there is more."""

    def __init__(self, output: Path, options: Mapping[str, object]) -> None:
        self.output = output
        self.options = options
        self.cases: Sequence[Case] = ()
        self.tallies: dict[tuple[str, str, str], Tally] = {}
        self.whole: dict[str, dict[str, float]] = {}
        """By tool and condition: seconds for one A/A verdict alone, all processes with their imports."""
        self.versions: dict[str, str] = {}
        self.started = time.monotonic()
        self.complete = False

    def of(self, tool: str, condition: str, case: str) -> Tally:
        key = (tool, condition, case)
        return self.tallies.setdefault(key, Tally(*key))

    def write(self) -> None:
        self.output.parent.mkdir(parents=True, exist_ok=True)
        whole(self.output, json.dumps(self.as_json(), indent=1) + "\n")
        whole(self.output.with_suffix(".md"), self.as_markdown())

    def as_json(self) -> dict[str, object]:
        return {
            "machine": machine(),
            "versions": self.versions,
            "options": dict(self.options),
            "complete": self.complete,
            "minutes": round((time.monotonic() - self.started) / 60, 1),
            "cases": [asdict(case) for case in self.cases],
            "tallies": [
                {**asdict(t), "count": t.count, **spread(t)} for t in self.tallies.values()
            ],
            "alone": self.whole,
            "goals": {
                "false alarms in 1000": FALSE_ALARMS,
                "found of 100": list(FOUND.values()),
                "seconds": SECONDS_EACH,
            },
            "met": self.met(),
        }

    def met(self) -> dict[str, bool]:
        """Which goals are met, as far as there are results; peers have none."""
        out = {}
        for tally in self.tallies.values():
            if tally.tool != "dispatchguard" or not tally.count:
                continue
            name = f"{tally.case}, {tally.condition}"
            if tally.case == SAME:
                allowed = FALSE_ALARMS * max(1, tally.count / 1000)
                out[f"false alarms: {name}"] = tally.failed <= allowed
            else:
                share = {slower(target): found for target, found in FOUND.items()}[tally.case] / 100
                out[f"found: {name}"] = tally.failed >= share * tally.count
            out[f"seconds: {name}"] = max(tally.seconds) <= SECONDS_EACH
        return out

    def as_markdown(self) -> str:
        about = machine()
        lines = [
            "# Noise: false alarms, and slowdowns found",
            "",
            f"`make bench-noise` on {about['cpu']}, {about['cores']} cores, Python {about['python']}; "
            + ", ".join(f"{name} {number}" for name, number in self.versions.items())
            + ("." if self.complete else ". **Not complete.**"),
            "",
            "| case | code | true ratio | limit |",
            "| --- | --- | --- | --- |",
        ]
        lines += [f"| {c.name} | {c.code} | {c.true:.4f} | {c.limit:.4f} |" for c in self.cases]
        names = [case.name for case in self.cases]
        lines += [
            "",
            "Verdicts *fail* of all verdicts: false alarms for A/A, found for the others; (u) are undecided.",
            "",
            f"| tool | machine | {' | '.join(names)} | {SECONDS} |",
            f"| --- | --- | {' | '.join('---' for _ in names)} | --- | --- |",
        ]
        for tool in dict.fromkeys(tally.tool for tally in self.tallies.values()):
            for condition in CONDITIONS:
                cells = [self.tallies.get((tool, condition, name)) for name in names]
                seconds = [s for tally in cells if tally for s in tally.seconds]
                if seconds:
                    took = f"{statistics.median(seconds):.2f}, {max(seconds):.2f}"
                    alone = self.whole.get(tool, {}).get(condition)
                    took += f" | {alone:.1f}" if alone else " | "
                    lines.append(
                        f"| {tool} | {condition} | {' | '.join(map(cell, cells))} | {took} |"
                    )
        lines += ["", NOTES, ""]
        lines += [f"- {'met' if ok else 'MISSED'}: {name}" for name, ok in self.met().items()]
        return "\n".join(lines) + "\n"


SECONDS = "s a verdict: median, most | s for one verdict alone"
NOTES = (
    "The seconds of a verdict are those between a test's start and its end, without pytest's start and "
    "torch's import; of a peer, those of both runs that it compares. pyperf imports torch in each of its "
    "processes, which is part of its time. One verdict alone is A/A with all starts and imports. A peer's "
    "runs of the old code and of the new one are each compared with each, so its verdicts are not "
    "independent of each other. pytest-benchmark: *fail* where the mean grew by more than s/2, as "
    "`--benchmark-compare-fail=mean:` has it; at its defaults it ends after some 40 calls here, with "
    "`--benchmark-max-time=20` it takes about as long as this project. pytest-codspeed: walltime mode, "
    "*fail* where the median grew by more than s/2. pyperf: *fail* where `compare_to` says significant "
    "and slower."
)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parsed(arguments)
    shown = {
        name: getattr(options, name)
        for name in (
            *("device", "verdicts", "planted", "targets", "sizing_seconds", "repeats"),
            *("peers", "peer_trials", "pyperf_trials", "seed"),
        )
    }
    results = Results(options.output, shown)
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # ended as by Ctrl-C: nothing stays behind
    try:
        with tempfile.TemporaryDirectory(prefix="bench-noise-") as scratch:
            measure(options, results, Path(scratch))
    except BenchError as error:
        print(f"bench_noise: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"bench_noise: stopped; {options.output} has what is done", file=sys.stderr)
        return 130
    print(results.as_markdown())
    return 0


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--verdicts", type=int, default=1000, help="of A/A, in each condition")
    parser.add_argument(
        "--planted", type=int, default=100, help="verdicts of each planted slowdown"
    )
    parser.add_argument(
        "--targets",
        type=lambda text: tuple(int(percent) / 100 for percent in text.split(",")),
        default=tuple(FOUND),
        help="percents of planted slowdowns (default: 1,2,5,10)",
    )
    parser.add_argument(
        "--sizing-seconds", type=float, default=6.0, help="to measure the true size of a slowdown"
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="how often that, and a verdict alone, are measured"
    )
    parser.add_argument("--device", default="cpu", help="cuda, say, where all runs then")
    parser.add_argument("--chunk", type=int, default=70, help="verdicts in one pytest run")
    parser.add_argument("--conditions", default=",".join(CONDITIONS), help="quiet, busy or both")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument(
        "--peer-trials",
        type=int,
        default=5,
        help="runs of each side by pytest-benchmark and pytest-codspeed, each compared with each",
    )
    parser.add_argument(
        "--pyperf-trials", type=int, default=2, help="the same for pyperf, a slow one"
    )
    parser.add_argument("--venvs", type=Path, help="keep the peers' environment in this folder")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--seed", type=int, default=0, help="of the order of tests")
    options = parser.parse_args(arguments)
    options.conditions = options.conditions.split(",")
    unknown = set(options.conditions) - set(CONDITIONS)
    if unknown:
        parser.error(
            f"--conditions: {', '.join(sorted(unknown))} is none of {', '.join(CONDITIONS)}"
        )
    if not set(options.targets) <= set(FOUND):
        parser.error("--targets: 1, 2, 5 and 10 are planted")
    if options.peers and options.device != "cpu":
        parser.error("--device: the peers measure on the CPU: say --no-peers")
    return options


def measure(options: argparse.Namespace, results: Results, scratch: Path) -> None:
    """All steps, in an order that favours nobody."""
    rng = random.Random(options.seed)
    for name in ("torch", "pytest", "pytest-dispatchguard"):
        results.versions[name] = version_of(name)
    if not results.versions["torch"]:
        raise BenchError("torch is not installed in this environment")
    home = options.venvs or scratch / "venvs"
    python = peer_python(home, results.versions) if options.peers else None
    write_subjects(scratch, options.device)
    results.cases = cases(scratch, options)
    results.write()
    for condition in options.conditions:
        with busy_core(wanted=condition == "busy"):
            own_verdicts(condition, options, results, scratch, rng)
            if python is not None:
                peer_verdicts(condition, options, results, python, scratch, rng)
    results.complete = True
    results.write()


# -- what is measured -------------------------------------------------------------------------------


def write_subjects(folder: Path, device: str) -> None:
    """The module of the functions that are compared, and the suites that compare them."""
    functions = [PLAIN.format(name="plain"), PLAIN.format(name="same")]
    for name, extra in PLANTS.items():
        body = extra if extra.startswith("return ") else f"{extra}\n    return add(x, y)"
        functions.append(f"def {identifier(name)}(x, y):\n    {body}\n")
    text = SUBJECTS.format(device=device, functions="\n\n".join(functions))
    for home, suite in ((folder / "own", SUITE), (folder / "peers", PEER_SUITE)):
        home.mkdir()
        (home / "subjects.py").write_text(text, encoding="utf-8")
        (home / "conftest.py").write_text(CLOCK, encoding="utf-8")
        (home / "test_noise.py").write_text(suite, encoding="utf-8")
        (home / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (folder / "peers" / "arm.py").write_text(PYPERF_SCRIPT, encoding="utf-8")


def identifier(name: str) -> str:
    return re.sub(r"\W+", "_", name)


def slower(target: float) -> str:
    return f"{target:.0%} slower"


def cases(scratch: Path, options: argparse.Namespace) -> list[Case]:
    """A/A, and for each target the code whose true size on this machine is nearest to it."""
    say("how much the planted codes cost")
    # A limit right at the ratio is never decided, so that measuring goes on until its time is up.
    rough = sized(scratch, dict.fromkeys(PLANTS, 2.0))
    rough = sized(scratch, rough, f"--overhead-max-time={options.sizing_seconds / 2:g}")
    sizes = {name: ratio - 1 for name, ratio in rough.items()}
    chosen: dict[str, float] = {}
    for target in options.targets:
        left = [name for name in PLANTS if name not in chosen]
        code = min(left, key=lambda name: abs(math.log(max(sizes[name], 1e-4) / target)))
        chosen[code] = rough[code]
    longer = f"--overhead-max-time={options.sizing_seconds:g}"
    runs = [sized(scratch, chosen, longer) for _ in range(options.repeats)]
    out = [Case(SAME, "same", "identical", 1.0, SAME_LIMIT)]
    for target, code in zip(options.targets, chosen, strict=True):
        true = statistics.median(run[code] for run in runs)
        limit = round(1 + (true - 1) / 2, 5)
        out.append(Case(slower(target), identifier(code), code, round(true, 5), limit))
        say(f"{target:.0%}: {code}, in truth {true - 1:.2%}")
    return out


def sized(scratch: Path, plants: Mapping[str, float], *flags: str) -> dict[str, float]:
    """The ratios of planted codes to the plain one, by one run of tests with these limits."""
    plan = [STARTER, *((identifier(name), round(limit, 5)) for name, limit in plants.items())]
    out = {}
    for name, found in zip(plants, own_run(scratch, plan, *flags)[1:], strict=True):
        if found.ratio is None:
            raise BenchError(f"{name} could not be measured: {found.reason}")
        out[name] = found.ratio
    return out


# -- this project -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """One verdict of a run."""

    verdict: str
    ratio: float | None
    width: float | None
    """Half of its interval, as a part of it."""
    seconds: float
    processes: int
    reason: str


def own_verdicts(
    condition: str,
    options: argparse.Namespace,
    results: Results,
    scratch: Path,
    rng: random.Random,
) -> None:
    """Verdicts of all cases, mixed, in runs of some tests each."""
    plan = [
        case
        for case in results.cases
        for _ in range(options.verdicts if case.name == SAME else options.planted)
    ]
    rng.shuffle(plan)
    done = 0
    start = time.monotonic()
    while done < len(plan):
        part = plan[done : done + options.chunk]
        found = own_run(scratch, [STARTER, *((case.function, case.limit) for case in part)])
        for case, one in zip(part, found[1:], strict=True):
            tally = results.of("dispatchguard", condition, case.name)
            tally.add(one.verdict, one.seconds, one.ratio, one.width, one.processes)
            if one.verdict == "error":
                say(f"{case.name}: {one.reason}")
        done += len(part)
        results.write()
        left = (time.monotonic() - start) / done * (len(plan) - done)
        say(f"{condition}: {done} of {len(plan)} verdicts, {left / 60:.0f} min left")
    alone = partial(own_run, scratch, [("same", SAME_LIMIT)])
    results.whole.setdefault("dispatchguard", {})[condition] = timed(alone, options.repeats)
    results.write()


def own_run(scratch: Path, plan: Sequence[tuple[str, float]], *flags: str) -> list[Found]:
    """The verdicts of one pytest run, in the order of its tests."""
    folder = scratch / "own"
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    rows, seconds = own_rows(folder, *flags)
    out = []
    for number in range(len(plan)):
        node = f"test_noise.py::test_verdict[{number}]"
        row = rows[node]
        found = row["ratio"] or {}
        ends = found.get("low"), found.get("high")
        width = None if None in ends else (ends[1] - ends[0]) / 2 / found["value"]
        told = (row["verdict"], found.get("value"), width, seconds[node])
        out.append(Found(*told, row["processes"] or 0, row["reason"]))
    return out


def timed(run: Callable[[], object], times: int) -> float:
    """Seconds of a run, the median of so many."""
    took = []
    for _ in range(times):
        start = time.monotonic()
        run()
        took.append(time.monotonic() - start)
    return round(statistics.median(took), 2)


# -- peers ------------------------------------------------------------------------------------------


def peer_verdicts(
    condition: str,
    options: argparse.Namespace,
    results: Results,
    python: Path,
    scratch: Path,
    rng: random.Random,
) -> None:
    """Each peer: runs of the old code and runs of the new one, and each of the one compared with each of
    the others."""
    heads = [case.function for case in results.cases]
    for peer in peers(python, scratch / "peers", "test_noise.py"):
        of_pyperf = peer.name == "pyperf"
        trials = options.pyperf_trials if of_pyperf else options.peer_trials
        old: list[Any] = []
        new: dict[str, list[Any]] = {name: [] for name in heads}
        for trial in range(trials):
            # The old code is saved by a run of its own, as one saves a baseline.
            arms = [["plain"], heads]
            rng.shuffle(arms)
            for names in arms:
                for name, said in peer.run(names).items():
                    (old if name == "plain" else new[name]).append(said)
            say(f"{condition}: {peer.name}, {trial + 1} of {trials} runs of each side")
        if of_pyperf:
            alone = old[0]["seconds"] + new["same"][0]["seconds"]
        else:
            alone = timed(
                lambda peer=peer: (peer.run(["plain"]), peer.run(["same"])), options.repeats
            )
        results.whole.setdefault(peer.name, {})[condition] = round(alone, 2)
        for case in results.cases:
            key = (peer.name, condition, case.name)
            tally = results.tallies[key] = Tally(*key)
            for before in old:
                for after in new[case.function]:
                    verdict, ratio = peer.compare(before, after, case.limit)
                    tally.add(verdict, before["seconds"] + after["seconds"], ratio)
        results.write()


# -- results ----------------------------------------------------------------------------------------


def spread(tally: Tally) -> dict[str, object]:
    """Figures of a tally that are read more easily than its lists."""
    if not tally.count:
        return {}
    ratios = tally.ratios
    return {
        "failed": tally.failed,
        "ratio_median": round(statistics.median(ratios), 5) if ratios else None,
        "width_median": round(statistics.median(tally.widths), 5) if tally.widths else None,
        "ratio_sd": round(statistics.stdev(ratios), 6) if len(ratios) > 1 else None,
        "seconds_median": round(statistics.median(tally.seconds), 3),
        "seconds_most": max(tally.seconds),
    }


def cell(tally: Tally | None) -> str:
    if tally is None or not tally.count:
        return ""
    unsure = tally.verdicts.get("undecided", 0)
    broken = tally.verdicts.get("error", 0)
    return (
        f"{tally.failed} of {tally.count}"
        + (f" ({unsure} u)" if unsure else "")
        + (f" ({broken} errors)" if broken else "")
    )


def say(text: str) -> None:
    """Progress, apart from the table."""
    print(f"bench_noise: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
