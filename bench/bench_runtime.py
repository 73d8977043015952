"""What watching code run costs, and what it finds: the unit tests of a real package, plain and watched.

    python bench/bench_runtime.py [--venvs FOLDER] [--repeats N]

kornia 0.6.1 ships its tests in its source archive; they run as they are, each as often as asked, the ways of
running by turns: plain, `--overhead-record`, `--overhead-lint`, and `--overhead-lint --overhead-ghost`, where
the tests take a GPU that is not there for their device. Ratios are those of wall times within this run. Tests
that end otherwise than in the plain run are listed. Written to bench/results/runtime.json and runtime.md.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from bench_ghost import clean, environment, published, wishes
from bench_lint import BenchError, machine

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "runtime.json"
PACKAGE, VERSION = "kornia", "0.6.1"
NEEDED = ("numpy", "packaging", "pytest")
WAYS: Mapping[str, Sequence[str]] = {
    "plain": (),
    "--overhead-record": ("--overhead-record",),
    "--overhead-lint": ("--overhead-lint=json", "--overhead-lint-output=lint.json"),
    "--overhead-lint --overhead-ghost": (
        "--overhead-lint=json",
        "--overhead-lint-output=ghost.json",
        "--overhead-ghost",
    ),
}
GOALS = {"--overhead-record": 2.0, "--overhead-lint": 5.0, "--overhead-lint --overhead-ghost": 5.0}
"""Times the plain run at most."""
# The archive lacks the fixtures that the tests ask for.
CONFTEST = """\
import pytest, random, torch

@pytest.fixture
def device():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")

@pytest.fixture
def dtype():
    return torch.float32

@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
    random.seed(0)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = wishes(__doc__, RESULTS)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each way (default: 3)")
    return published("bench_runtime", parser.parse_args(arguments), measure)


def measure(options: argparse.Namespace, scratch: Path) -> tuple[dict[str, Any], str]:
    """All runs, by turns in random order, as numbers and as a page."""
    python, versions = environment((options.venvs or scratch) / "runtime", NEEDED)
    folder = unpacked(python, scratch, PACKAGE, VERSION)
    # What the tests lack.
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    outcomes: dict[str, dict[str, str]] = {}
    rng = random.Random(0)
    for number in range(options.repeats):
        for way in rng.sample(list(WAYS), len(WAYS)):
            say(f"{way}, run {number + 1} of {options.repeats}")
            took, outcomes[way] = run(python, folder, WAYS[way])
            seconds[way].append(round(took, 2))
    plain = statistics.median(seconds["plain"])
    profile = folder / ".dispatchguard" / "profile.json"
    recorded = json.loads(profile.read_text(encoding="utf-8"))["files"]
    results = {
        "machine": machine(),
        "package": f"{PACKAGE} {VERSION}",
        "torch": versions["torch"],
        "goals": GOALS,
        "ways": {
            way: {
                "seconds": times,
                "times plain": round(statistics.median(times) / plain, 3),
                "tests": Counter(outcomes[way].values()),
                "otherwise": otherwise(outcomes["plain"], outcomes[way]),
            }
            for way, times in seconds.items()
        },
        "profile": {
            "functions": sum(map(len, recorded.values())),
            "bytes": profile.stat().st_size,
        },
        "findings": {
            "--overhead-lint": findings(folder / "lint.json"),
            "--overhead-lint --overhead-ghost": findings(folder / "ghost.json"),
        },
    }
    return results, page(results)


def unpacked(python: Path, scratch: Path, package: str, version: str) -> Path:
    """A package's source archive, unpacked."""
    command = [str(python), "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation"]
    command += ["--no-binary=:all:", "-d", str(scratch), f"{package}=={version}"]
    subprocess.run(command, check=False, env=clean(), capture_output=True)
    archives = list(scratch.glob("*.tar.gz"))
    if not archives:
        raise BenchError(f"{package} {version} could not be downloaded")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(scratch, filter="data")
    return scratch / archives[0].name.removesuffix(".tar.gz")


def run(python: Path, folder: Path, words: Sequence[str]) -> tuple[float, dict[str, str]]:
    """The seconds that the tests take, and how each ended."""
    report = folder / "junit.xml"
    report.unlink(missing_ok=True)
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    start = time.monotonic()
    done = subprocess.run(
        [*command, *words, "--", "test"],
        cwd=folder,
        env=clean(),
        check=False,
        capture_output=True,
        text=True,
    )
    took = time.monotonic() - start
    if not report.exists() or done.returncode not in (0, 1):
        raise BenchError(f"the tests did not run: {(done.stdout + done.stderr)[-2000:]}")
    return took, ended(report)


def ended(report: Path) -> dict[str, str]:
    """How each test ended."""
    found = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        bad = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        found[name] = bad[0] if bad else "passed"
    return found


def otherwise(plain: Mapping[str, str], watched: Mapping[str, str]) -> list[str]:
    """Tests that end otherwise than in the plain run."""
    return [
        f"{name}: {outcome}, plain {plain.get(name, 'absent')}"
        for name, outcome in sorted(watched.items())
        if plain.get(name) != outcome
    ]


def findings(file: Path) -> dict[str, Any]:
    """How many of each code, and the lines."""
    report = json.loads(file.read_text(encoding="utf-8"))
    rows = report["findings"]
    return {
        "codes": Counter(row["code"] for row in rows),
        "lines": [f"{row['path']}:{row['line']} {row['code']} {row['message']}" for row in rows],
        "notes": report["summary"].get("notes", []),
    }


def page(results: Mapping[str, Any]) -> str:
    """The table, for people."""
    about = results["machine"]
    lines = [
        f"# Watching the tests of {results['package']} run",
        "",
        f"Python {about['python']}, torch {results['torch']}, {about['cpu']}, {about['cores']} processors.",
        "",
        "| run | seconds, median | times plain | goal | tests |",
        "| --- | --- | --- | --- | --- |",
    ]
    for way, row in results["ways"].items():
        tests = ", ".join(f"{number} {word}" for word, number in row["tests"].items())
        goal = results["goals"].get(way)
        lines.append(
            f"| `{way}` | {statistics.median(row['seconds']):.1f} | {row['times plain']:.2f} "
            f"| {goal or ''} | {tests} |"
        )
    profile = results["profile"]
    lines += ["", f"The profile: {profile['functions']} functions, {profile['bytes']:,} bytes.", ""]
    for way, row in results["ways"].items():
        if row["otherwise"]:
            lines += [f"With `{way}` these end otherwise:", ""]
            lines += [f"- {text}" for text in row["otherwise"]] + [""]
    for way, found in results["findings"].items():
        lines += [f"## {way}: {sum(found['codes'].values())} findings", ""]
        lines += [f"- {text}" for text in found["lines"]]
        lines += [f"- note: {note}" for note in found["notes"]] + [""]
    return "\n".join(lines)


def say(text: str) -> None:
    print(f"bench_runtime: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
