"""Reads large profiler traces: time and memory, beside `json.load` and HolisticTraceAnalysis.

    python bench/bench_trace.py [--sizes 100 250 1000 2000] [--venvs FOLDER]

The traces are those of a simulated device (tests/traces/generating.py), seeded, with Python frames and the
arguments that the profiler writes. Each is read in a process of its own, and what is told of waits is held
against what happened. `json.load` reads traces of up to --peers megabytes; HolisticTraceAnalysis, in an
environment of its own, reads those of up to --slow-peers, and analyses nothing. The table goes to stdout, the
numbers to bench/results/trace.json and trace.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_lint import BenchError, machine
from publishing import publish, save, table

HOME = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HOME / "tests" / "traces"))

from generating import SPELLINGS, Event, Maker, Run  # noqa: E402 - lies beside the tests

RESULTS = Path(__file__).resolve().parent / "results" / "trace.json"
PEER = "HolisticTraceAnalysis"
GOALS = {"100 MB s": 10.0, "1 GB MiB": 300.0, "growth from 250 MB to the largest": 1.1}
LIMIT_S = 300
MB = 1_000_000

READ = """\
from pathlib import Path
from pytest_dispatchguard.traces.analysis import analyzed
trace = analyzed(Path(sys.argv[1]))
told = {"events": trace.events, "waits": sum(w.times for w in trace.waits), "damage": trace.damage,
        "idle": round(trace.idle_share, 4)}
"""
LOAD = """\
with open(sys.argv[1]) as file:
    told = {"events": len(json.load(file)["traceEvents"])}
"""
ANALYSE = """\
from pathlib import Path
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=str(Path(sys.argv[1]).parent))
told = {"ranks": len(analysis.t.get_all_traces())}
"""
AROUND = """\
import json, resource, sys, time
began = time.perf_counter()
{work}
seconds = time.perf_counter() - began
who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
used = [resource.getrusage(one) for one in who]
status = open("/proc/self/status").read()  # getrusage may count what started this process
mine = int(status.partition("VmHWM:")[2].split()[0])
print("RESULT " + json.dumps({{
    **told, "s": seconds, "cpu_s": sum(one.ru_utime + one.ru_stime for one in used),
    "mib": max(mine, used[1].ru_maxrss) / 1024,
}}))
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 250, 1000, 2000])
    parser.add_argument("--peers", type=int, default=1000, help="the largest that json.load reads")
    parser.add_argument("--slow-peers", type=int, default=100, help=f"and that {PEER} does")
    parser.add_argument("--venvs", type=Path, help="where the environment of the other stays")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-trace-") as scratch:
            results = measure(options, Path(scratch))
    except BenchError as error:
        print(f"bench_trace: {error}", file=sys.stderr)
        return 2
    publish(options.output, results, page(results))
    return 0


def measure(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    load = os.getloadavg()[0]
    peer = installed(options.venvs or scratch / "venv")
    block = Block()
    runs: list[dict[str, Any]] = []
    results: dict[str, Any] = {}
    for size in options.sizes:
        path = scratch / "trace" / "rank0.json"
        path.parent.mkdir(exist_ok=True)
        waits = block.write(path, size * MB)
        say(f"{size} MB are written")
        mine = timed([sys.executable], READ, path)
        if "waits" in mine and (mine["waits"], mine["damage"]) != (waits, ""):
            raise BenchError(f"{mine['waits']} waits are told, there are {waits}")
        runs.append({"mb": size, "by": "dispatchguard", **mine})
        if size <= options.peers and fits(size):
            runs.append({"mb": size, "by": "json.load", **timed([sys.executable], LOAD, path)})
            if isinstance(peer, Path) and size <= options.slow_peers:
                runs.append({"mb": size, "by": PEER, **timed([str(peer)], ANALYSE, path)})
        path.unlink()
        for run in runs:
            if run["mb"] == size:
                say(json.dumps(run))
        results = {
            "machine": {**machine(), "load_before": round(load, 2)},
            "runs": runs,
            "peer": "" if isinstance(peer, Path) else peer,
            "goals": GOALS,
            "met": met(runs),
        }
        save(options.output, results)  # what ran is kept, whatever comes after
    return results


@dataclass(frozen=True)
class Line:
    """An event as text, with places for its time and its correlation."""

    text: str
    ts: int
    correlation: int | None


class Block:
    """Some steps of a training, written again and again, each time later."""

    def __init__(self, seed: int = 1, steps: int = 40) -> None:
        spelling = SPELLINGS["cuda"]
        maker = Maker(random.Random(seed), sorted(spelling.waits))
        self.run = Run(spelling, "frames").run(maker.program(steps))
        self.lines = [self.line(event) for event in self.run.events]
        self.template = ",\n".join(line.text for line in self.lines)
        self.us = self.run.now - self.run.truth.steps[0][0] + 10
        self.correlations = self.run.correlation + 1

    def line(self, event: Event) -> Line:
        args = dict(event["args"])
        correlation = args.get("correlation")
        if correlation is not None:
            args["correlation"] = "#"
        args |= {"Ev Idx": 12345, "Record function id": 0}
        if event["cat"] == "cpu_op":
            args |= {"Input Dims": [[64, 128], [128, 256], []], "Input type": ["float"] * 2}
            args |= {"Sequence number": 77, "Fwd thread id": 0}
        if event["cat"] == "kernel":
            args |= {"grid": [50, 1, 1], "block": [256, 1, 1], "registers per thread": 38}
            args |= {"queued": 0, "context": 1, "blocks per SM": 0.6, "warps per SM": 5.0}
        text = json.dumps({**event, "ts": "@", "args": args}).replace("%", "%%")
        text = text.replace('"@"', "%d.%03d").replace('"#"', "%d")
        return Line(text, event["ts"], correlation)

    def blocks(self) -> Iterator[str]:
        """Parts of a file, without end."""
        number = 0
        while True:
            values: list[int] = []
            for line in self.lines:
                values += (line.ts + number * self.us, number % 1000)
                if line.correlation is not None:
                    values.append(line.correlation + number * self.correlations)
            yield self.template % tuple(values)
            number += 1

    def write(self, path: Path, size: int) -> int:
        """Writes a trace of about a size; how many waits are in it."""
        written = blocks = 0
        with path.open("w", encoding="utf-8") as file:
            file.write('{"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": [\n')
            for text in self.blocks():
                file.write(text if not blocks else f",\n{text}")
                written, blocks = written + len(text), blocks + 1
                if written >= size:
                    break
            file.write("\n]}\n")
        return blocks * len(self.run.truth.waits)


def timed(python: Sequence[str], work: str, path: Path) -> dict[str, Any]:
    """What a process of its own takes for some work on a file."""
    command = [*python, "-c", AROUND.format(work=work), str(path)]
    environment = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", str(HOME))}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, env=environment
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"not done after {LIMIT_S} s"}
    told = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or not told:
        return {"failed": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]}
    result: dict[str, Any] = json.loads(told[-1].removeprefix("RESULT "))
    return result


def installed(folder: Path) -> Path | str:
    """The Python that has the other tool; why there is none."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PEER]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return f"{PEER} does not install: {lines[-1] if lines else done.returncode}"
    return python


def fits(mb: int) -> bool:
    """Whether memory has room for a whole file, parsed: some ten times its size."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024 > 10 * mb * MB
    return False


def met(runs: Sequence[Mapping[str, Any]]) -> dict[str, bool]:
    """Which goals are met, of those that were measured."""
    mine = {run["mb"]: run for run in runs if run["by"] == "dispatchguard" and "s" in run}
    found = {}
    if 100 in mine:
        found["100 MB s"] = mine[100]["s"] <= GOALS["100 MB s"]
    if 1000 in mine:
        found["1 GB MiB"] = mine[1000]["mib"] <= GOALS["1 GB MiB"]
    if 250 in mine and max(mine) > 250:
        name = "growth from 250 MB to the largest"
        found[name] = mine[max(mine)]["mib"] <= mine[250]["mib"] * GOALS[name]
    return found


def page(results: Mapping[str, Any]) -> str:
    about = results["machine"]
    written = (
        f"Written by `make bench-trace`: {about['cpu']}, {about['cores']} cores, Python "
        f"{about['python']}; load {about['load_before']} before."
    )
    rows = []
    for run in results["runs"]:
        if "failed" in run:
            rows.append((f"{run['mb']:,}", run["by"], run["failed"][:80], "", "", ""))
            continue
        figures = (f"{run['s']:.1f}", f"{run['cpu_s']:.1f}", f"{run['mib']:,.0f}")
        rows.append(
            (
                f"{run['mb']:,}",
                run["by"],
                *figures,
                f"{run.get('waits', ''):,}" if "waits" in run else "",
            )
        )
    goals = [
        f"- {name}: {'met' if good else 'missed'} (goal {results['goals'][name]:g})"
        for name, good in results["met"].items()
    ]
    head = ("MB", "read by", "s", "CPU s", "peak MiB", "waits")
    note = [results["peer"], ""] if results["peer"] else []
    return "\n".join(
        [
            "# Large traces",
            "",
            written,
            "",
            *table(head, rows),
            "",
            *note,
            *goals,
            "",
        ]
    )


def say(text: str) -> None:
    print(f"bench_trace: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
