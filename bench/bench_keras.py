"""The Keras pull requests, told by both instruments: an older and a newer Keras side by side.

    python bench/bench_keras.py [FOLDER_WITH_BOTH]
    python bench/bench_keras.py FOLDER --fetch      # fills the folder, and measures nothing

Takes keras 3.12.0 and 3.15.1 from PyPI unless a folder with `keras-3.12.0/` and `keras-3.15.1/` is given, and
what else they need unless it is in that folder's `dependencies/`.

The linter reads both, and tells for each place that the pull requests were about how many findings it has,
and from which root it is hot. Then one suite of budgets, bench/keras_budgets, runs on both through
`pytest --overhead-budget`, several times by turns: what Keras costs over the eager torch call that does the
same, and the exact counters. torch and the plugin are those of this environment, what else Keras needs is
installed beside. Written to bench/results/keras.json and keras.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench_lint import BenchError, machine, version_of

from pytest_dispatchguard.lint.check import check
from pytest_dispatchguard.lint.request import Request

VERSIONS = OLD, NEW = ("3.12.0", "3.15.1")
PLACES = {
    "flatten to look for symbolic tensors": "any_symbolic_tensors",
    "wrapper built per call": "Operation.__call__",
    "mask and spec traversals of a call": "Layer.__call__",
    "mask put on outputs": "Layer._set_mask_metadata",
    "input spec looked at": "assert_input_compatibility",
}
SUITE = Path(__file__).resolve().parent / "keras_budgets"
RESULTS = Path(__file__).resolve().parent / "results" / "keras.json"

Verdicts = dict[str, dict[str, Any]]
"""What `--overhead-json` says of each test."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, help="has both versions (default: PyPI)")
    parser.add_argument(
        "--fetch", action="store_true", help="only fetch what is needed into FOLDER"
    )
    parser.add_argument(
        "--device", default="cpu", help="cuda, where Keras then puts its weights, too"
    )
    parser.add_argument(
        "--dry", action="store_true", help="only run the suite once on each, on a ghost of cuda"
    )
    parser.add_argument(
        "--compare",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="with a saved run, too",
    )
    parser.add_argument(
        "--tests", default="", metavar="WORDS", help="only these, as with pytest -k"
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of the suite on each version")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-keras-") as scratch:
            folder = options.folder or Path(scratch)
            found = sources(folder)
            if options.fetch:
                dependencies(folder, found)
                return 0
            if options.dry:
                tried(
                    Suite(found, dependencies(folder, found), Path(scratch), "cuda", options.tests)
                )
                return 0
            results = measure(options, found, folder, Path(scratch))
    except BenchError as error:
        print(f"bench_keras: {error}", file=sys.stderr)
        return 2
    options.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    options.output.with_suffix(".md").write_text(page(results), encoding="utf-8")
    return 0


def measure(
    options: argparse.Namespace, found: dict[str, Path], folder: Path, scratch: Path
) -> dict[str, Any]:
    """Both instruments on both versions."""
    lint = {version: linted(path) for version, path in found.items()}
    print("\n".join(lint_table(lint)))
    if find_spec("torch") is None:
        raise BenchError("budgets need torch in this environment: nothing is written")
    suite = Suite(found, dependencies(folder, found), scratch, options.device, options.tests)
    load = [round(os.getloadavg()[0], 2)]
    rounds: dict[str, list[Verdicts]] = {version: [] for version in found}
    for turn in range(options.rounds):
        for version in VERSIONS if turn % 2 == 0 else reversed(VERSIONS):
            say(f"the suite on keras {version}, run {turn + 1} of {options.rounds}")
            rounds[version].append(suite.run(version))
    compared = side_by_side(suite) if options.compare else {}
    load.append(round(os.getloadavg()[0], 2))
    budgets = {version: asdict(summed(runs)) for version, runs in rounds.items()}
    results = {
        "machine": {**machine(), "torch": version_of("torch"), "load_before_and_after": load},
        "device": options.device,
        "rounds": options.rounds,
        "lint": lint,
        "budgets": budgets,
        "compared": compared,
    }
    print(page(results))
    return results


# -- what is measured --------------------------------------------------------------------------------


def sources(folder: Path, versions: Sequence[str] = VERSIONS) -> dict[str, Path]:
    """The versions as they are installed: an unpacked wheel is all that Keras is."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {v: folder / f"keras-{v}" for v in versions}
    for version, path in found.items():
        if path.is_dir():
            continue
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
        if subprocess.run([*command, f"keras=={version}"], check=False).returncode != 0:
            raise BenchError(f"keras {version} could not be downloaded; name a folder that has it")
        with zipfile.ZipFile(folder / f"keras-{version}-py3-none-any.whl") as wheel:
            wheel.extractall(path)
    return found


def dependencies(folder: Path, sources: Mapping[str, Path]) -> Path:
    """A folder with what all versions need: the same for all, and torch not among it."""
    there = folder / "dependencies"
    if there.is_dir():
        return there
    needed = {
        line
        for path in sources.values()
        for distribution in distributions(path=[str(path)])
        for line in distribution.requires or ()
        if "extra ==" not in line
    }
    say(f"installing {', '.join(sorted(needed))}")
    part = folder / "dependencies.part"
    command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(part)]
    if subprocess.run([*command, *sorted(needed)], check=False).returncode != 0:
        raise BenchError(f"what Keras needs could not be installed; fill {there}, or name a folder")
    return part.rename(there)


# -- the linter --------------------------------------------------------------------------------------


def linted(path: Path) -> dict[str, list[dict[str, object]]]:
    # Elsewhere: in a hidden folder, or one named `build`, nothing is held to be hot.
    with tempfile.TemporaryDirectory() as scratch:
        there = Path(shutil.copytree(path, Path(scratch) / "keras"))
        report = check(Request(paths=(there,), cwd=there, jobs=2, cache=False)).report
    out: dict[str, list[dict[str, object]]] = {function: [] for function in PLACES.values()}
    for f in (*report.findings, *report.notes):
        if f.function in out and f.code[:3] in ("DG1", "DG3") and f.hot is not None:
            row = {"code": f.code, "path": f.path, "line": f.span.line, "root": f.hot.root}
            out[f.function].append(row)
    return out


def lint_table(found: Mapping[str, Mapping[str, Sequence[Mapping[str, object]]]]) -> list[str]:
    head = " ".join(f"{v:>8}" for v in VERSIONS)
    lines = [f"{'place':<38} {'function':<28} {head}  hot from"]
    for place, function in PLACES.items():
        counts = " ".join(f"{len(found[v][function]):>8}" for v in VERSIONS)
        roots = {row["root"] for v in VERSIONS for row in found[v][function]}
        lines.append(f"{place:<38} {function:<28} {counts}  {', '.join(sorted(map(str, roots)))}")
    return lines


# -- the budgets -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Figures:
    """What all runs of the suite on one version say together."""

    counters: dict[str, dict[str, int]]
    repeat: bool
    """Whether every run counted the same."""
    verdicts: dict[str, list[str]]
    reasons: dict[str, str]
    reference_us: dict[str, float]
    subject_us: dict[str, float]
    ratio: dict[str, dict[str, float | None]]
    """The median of the runs' ratios; its ends are the outermost of theirs, null where one is not known."""
    control: dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Suite:
    """The suite of budgets, and what it is run with."""

    sources: Mapping[str, Path]
    needed: Path
    scratch: Path
    device: str
    tests: str = ""
    """Which of its tests, as for `pytest -k`; empty for all."""

    def run(self, version: str, *options: str) -> Verdicts:
        """What one run on a version measures."""
        verdicts = self.scratch / "verdicts.json"
        flags = ("--overhead-budget=check", f"--overhead-json={verdicts}")
        done = self.pytest(version, *flags, *options)
        if done.returncode not in (0, 1):  # 1: budgets are exceeded, which is what is looked for
            raise BenchError(f"the suite ended with {done.returncode} on {version}: {done.stdout}")
        tests = json.loads(verdicts.read_text(encoding="utf-8"))["tests"]
        found = {row["nodeid"].partition("::test_")[2]: row for row in tests}
        wrong = [f"{n}: {row['reason']}" for n, row in found.items() if row["ratio"] is None]
        if wrong or not found:
            raise BenchError(f"not measured on {version}: {'; '.join(wrong) or done.stdout}")
        return found

    def pytest(self, version: str, *options: str) -> subprocess.CompletedProcess[str]:
        """One run of pytest on a version."""
        came_with = os.environ.get("PYTHONPATH")
        places = [str(self.sources[version]), str(self.needed), *([came_with] if came_with else [])]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(places),
            "KERAS_BACKEND": "torch",
            "KERAS_HOME": str(self.scratch / "home"),
            "KERAS_EXPECTED": version,
            "KERAS_SUITE_DEVICE": self.device,
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
        command += ["-k", self.tests, *options] if self.tests else options
        return subprocess.run(
            command, cwd=SUITE, env=environment, check=False, capture_output=True, text=True
        )


def tried(suite: Suite) -> None:
    """Whether the suite runs, on a GPU as well: on a ghost of it, each call once."""
    for version in VERSIONS:
        say(f"the suite on keras {version}, on a ghost of {suite.device}")
        done = suite.pytest(version, "--overhead-ghost")
        print(done.stdout)
        if done.returncode != 0:
            raise BenchError(f"the suite ended with {done.returncode} on {version}")


def side_by_side(suite: Suite) -> dict[str, Any]:
    """The newer version held against a saved run of the older one, by `--overhead-compare`."""
    saved = SUITE / ".dispatchguard" / "runs" / f"keras-{OLD}.json"
    say(f"the suite on keras {OLD}, saved, and on {NEW}, compared with it")
    suite.run(OLD, f"--overhead-save={saved.stem}")
    runs = suite.run(NEW, f"--overhead-compare={saved}")
    return {name: row["base"]["change"] for name, row in runs.items()}


def compare_table(compared: Mapping[str, Mapping[str, float | None]]) -> list[str]:
    rows = [["operation", f"times {OLD}", "low", "high"]]
    for name, change in compared.items():
        rows.append([name, *(two(change[end]) for end in ("value", "low", "high"))])
    return aligned(rows)


def summed(runs: Sequence[Verdicts]) -> Figures:
    """The runs on one version, put together."""
    names = sorted(runs[0], key=lambda name: (name.partition("[")[0], len(name), name))

    def middle(name: str, figure: str) -> float:
        return round(statistics.median(run[name][figure] for run in runs), 3)

    def ratio(name: str) -> dict[str, float | None]:
        found = [run[name]["ratio"] for run in runs]
        return {
            "value": round(statistics.median(r["value"] for r in found), 4),
            "low": end(min, [r["low"] for r in found]),
            "high": end(max, [r["high"] for r in found]),
        }

    def end(outermost: Callable[[Any], float], ends: Sequence[float | None]) -> float | None:
        return None if None in ends else round(outermost(ends), 4)

    counted = [{name: run[name]["counters"] for name in names} for run in runs]
    return Figures(
        counted[0],
        all(other == counted[0] for other in counted),
        {name: [run[name]["verdict"] for run in runs] for name in names},
        {name: runs[0][name]["reason"] for name in names},
        {name: middle(name, "reference_us") for name in names},
        {name: middle(name, "subject_us") for name in names},
        {name: ratio(name) for name in names},
        {name: [round(run[name]["control"], 4) for run in runs] for name in names},
    )


def time_table(budgets: Mapping[str, Any]) -> list[str]:
    """The table of the pull requests. The improvement is that of the ratio: the machine's pace is in both
    of its halves, and so in neither."""
    old, new = budgets[OLD], budgets[NEW]
    head = ["operation", "eager torch", f"Keras {OLD}", f"Keras {NEW}"]
    rows = [[*head, f"ratio {OLD}", f"ratio {NEW}", "improvement", "budget"]]
    for name in old["ratio"]:
        eager = statistics.median([old["reference_us"][name], new["reference_us"][name]])
        times = [
            f"{us:,.1f} µs" for us in (eager, old["subject_us"][name], new["subject_us"][name])
        ]
        ratios = [old["ratio"][name], new["ratio"][name]]
        shown = [f"{two(r['value'])} ({two(r['low'])} to {two(r['high'])})" for r in ratios]
        better = f"{ratios[0]['value'] / ratios[1]['value']:.2f}x"
        verdicts = [" ".join(dict.fromkeys(version["verdicts"][name])) for version in (old, new)]
        rows.append([name, *times, *shown, better, " -> ".join(verdicts)])
    return aligned(rows)


def two(number: float | None) -> str:
    return "?" if number is None else f"{number:.2f}"


def counter_table(budgets: Mapping[str, Any]) -> list[str]:
    old, new = budgets[OLD]["counters"], budgets[NEW]["counters"]
    names = list(next(iter(new.values())))
    rows = [["operation", *(name.replace("tensor_allocations", "tensors") for name in names)]]
    for test in old:
        rows.append([test, *(f"{old[test][n]:,} -> {new[test][n]:,}" for n in names)])
    repeat = all(version["repeat"] for version in budgets.values())
    said = "the same in every run" if repeat else "NOT the same in every run"
    return [*aligned(rows), "", f"counters of {OLD} -> {NEW}: {said}"]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]


# -- results -----------------------------------------------------------------------------------------


def page(results: Mapping[str, Any]) -> str:
    """The tables for people."""
    about = results["machine"]
    loads = " and ".join(map(str, about["load_before_and_after"]))
    parts = {
        "Time": time_table(results["budgets"]),
        "Counters": counter_table(results["budgets"]),
    }
    if results["compared"]:
        title = f"Keras {NEW} compared with a saved run of {OLD}"
        parts[title] = compare_table(results["compared"])
    parts["Findings"] = lint_table(results["lint"])
    text = (
        f"# Keras {OLD} and {NEW} on torch\n\n"
        f"Written by `make bench-keras`: {about['cpu']}, {about['cores']} cores, Python {about['python']}, "
        f"torch {about['torch']}, one thread, device {results['device']}; load {loads} before and after. "
        f"The suite is bench/keras_budgets, run {results['rounds']} times on each version by turns. "
        "A ratio is the median of the runs' ratios of Keras to eager torch, in brackets the outermost ends "
        "of their intervals; the improvement is the older ratio over the newer one.\n"
    )
    for title, lines in parts.items():
        text += f"\n## {title}\n\n```\n" + "\n".join(line.rstrip() for line in lines) + "\n```\n"
    return text


def say(text: str) -> None:
    """Progress, apart from the tables."""
    print(f"bench_keras: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
