"""A metrics library's own unit tests, with a GPU that is not there for their device.

    python bench/bench_metrics.py [--venvs FOLDER]

pytorch-ignite ships its tests in its source archive (torchmetrics does not); those of fourteen metrics take
each device that torch says is there. They run plain, and by `pytest --overhead-ghost --overhead-lint`, where
each runs on the CPU and on the ghost: there it is to end as on the CPU. Those that do not, and every line of
the library that waits, are listed. Written to bench/results/metrics.json and metrics.md.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench_ghost import clean, environment, published, wishes
from bench_lint import BenchError, machine
from bench_runtime import ended, findings, unpacked

RESULTS = Path(__file__).resolve().parent / "results" / "metrics.json"
PACKAGE, VERSION = "pytorch-ignite", "0.5.5"
NEEDED = ("numpy", "packaging", "pytest", "scikit-learn", "scipy", "scikit-image", "hatchling")
METRICS = (
    "accuracy confusion_matrix cosine_similarity entropy fbeta kl_divergence loss matthews_corrcoef "
    "mean_absolute_error mean_squared_error precision psnr recall top_k_categorical_accuracy"
).split()
# What this library's users call at every step.
SETTINGS = '\n[tool.dispatchguard]\nhot-roots = ["ignite.metrics.*.update"]\n'
GHOST = ("--overhead-ghost", "--overhead-lint=json", "--overhead-lint-output=ghost.json")


def main(arguments: Sequence[str] | None = None) -> int:
    return published("bench_metrics", wishes(__doc__, RESULTS).parse_args(arguments), measure)


def measure(options: argparse.Namespace, scratch: Path) -> tuple[dict[str, Any], str]:
    """Both runs, and what they say of each other, as numbers and as a page."""
    python, versions = environment((options.venvs or scratch) / "metrics", NEEDED)
    folder = unpacked(python, scratch, PACKAGE, VERSION)
    with (folder / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write(SETTINGS)
    plain = run(python, folder, ())
    ghost = run(python, folder, GHOST)
    results = {
        "machine": machine(),
        "package": f"{PACKAGE} {VERSION}",
        "torch": versions["torch"],
        "plain": Counter(plain.values()),
        "on the CPU beside the ghost": Counter(o for n, o in ghost.items() if not on_ghost(n)),
        "on the ghost": Counter(o for name, o in ghost.items() if on_ghost(name)),
        "otherwise": otherwise(plain, ghost),
        "findings": findings(folder / "ghost.json"),
    }
    return results, page(results)


def run(python: Path, folder: Path, words: Sequence[str]) -> dict[str, str]:
    """How each test ended."""
    report = folder / "junit.xml"
    report.unlink(missing_ok=True)
    tests = [f"tests/ignite/metrics/test_{name}.py" for name in METRICS]
    # Those of several processes start them, which no ghost reaches.
    chosen = ["-k", "not distrib", "-p", "no:cacheprovider", f"--junitxml={report}"]
    print(f"bench_metrics: {' '.join(words) or 'plain'}", file=sys.stderr, flush=True)
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", *chosen, *words, "--", *tests],
        cwd=folder,
        env=clean(),
        check=False,
        capture_output=True,
        text=True,
    )
    if not report.exists() or done.returncode not in (0, 1):
        raise BenchError(f"the tests did not run: {(done.stdout + done.stderr)[-2000:]}")
    return ended(report)


def on_ghost(name: str) -> bool:
    """Whether a test runs for cuda."""
    return re.search(r"\bcuda\b", name) is not None


def otherwise(plain: Mapping[str, str], ghost: Mapping[str, str]) -> list[str]:
    """Tests that end otherwise than on the CPU alone."""
    found = []
    for name, outcome in sorted(ghost.items()):
        expected = plain.get(re.sub(r"\bcuda\b", "cpu", name))
        if outcome != expected:
            found.append(f"{name}: {outcome}, on the CPU {expected or 'absent'}")
    return found


def page(results: Mapping[str, Any]) -> str:
    """The tables, for people."""
    about = results["machine"]
    where = f"Python {about['python']}, torch {results['torch']}, {about['cpu']}"
    names = ", ".join(METRICS)
    lines = [
        f"# The metrics of {results['package']} on the ghost",
        "",
        f"{where}. Own unit tests of {len(METRICS)} metrics: {names}.",
        "",
        "| run | tests |",
        "| --- | --- |",
    ]
    for way in ("plain", "on the CPU beside the ghost", "on the ghost"):
        tests = ", ".join(f"{number} {word}" for word, number in results[way].items())
        lines.append(f"| {way} | {tests} |")
    lines += ["", f"{len(results['otherwise'])} end otherwise than on the CPU.", ""]
    lines += [f"- {text}" for text in results["otherwise"]]
    found = results["findings"]
    lines += ["", f"## {sum(found['codes'].values())} lines of the library are told", ""]
    lines += [f"- {text}" for text in found["lines"]]
    lines += [f"- note: {note}" for note in found["notes"]]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
