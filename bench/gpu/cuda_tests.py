"""Runs the tests that need CUDA: those with the mark `gpu`.

    python bench/gpu/cuda_tests.py
    python bench/gpu/cuda_tests.py --dry    # without CUDA: all of them are found, and each skips for its want

Exit status: 0 where all pass, 1 where some do not, 2 where they could not be run. Outcomes are written after
each test.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench_lint import HOME, machine
from publishing import RESULTS, publish, save

PLUGIN = "pytest_dispatchguard.plugin"
MARKED = re.compile(r"\bmark\.gpu\b")
WANT = "no cuda device here"
"""Why they skip where there is none, in tests/conftest.py."""
LONGEST = 500
"""Characters of what a test said when it failed."""


@dataclass(eq=False)
class Outcomes:
    """What comes of the tests; a plugin of pytest."""

    output: Path
    wanted: str
    """The outcome that all should have."""
    collected: int = 0
    found: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.collected = len(session.items)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.wrong.append(f"{report.nodeid}: {_last_line(report.longreprtext)}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        self.found[report.nodeid] = report.outcome
        said = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        fits = WANT in said if self.wanted == "skipped" else True
        if report.outcome != self.wanted or not fits:
            self.wrong.append(f"{report.nodeid}: {report.outcome}: {_last_line(said)}")
        save(self.output, self.results())

    def results(self) -> dict[str, Any]:
        counted = {o: [*self.found.values()].count(o) for o in ("passed", "failed", "skipped")}
        return {
            "machine": machine(),
            "collected": self.collected,
            **counted,
            "outcomes": self.found,
            "wrong": self.wrong,
        }


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith("E ")] or text.splitlines()
    return " ".join((lines or [""])[0].split())[:LONGEST]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dry", action="store_true", help="without CUDA")
    parser.add_argument("--output", type=Path, default=RESULTS / "gpu" / "tests.json")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # pytest ends as by Ctrl-C
    options.output = options.output.absolute()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    os.chdir(HOME)
    outcomes = Outcomes(options.output, "skipped" if options.dry else "passed")
    known = () if entry_points(group="pytest11", name="dispatchguard") else ("-p", PLUGIN)
    words = ["-m", "gpu", "-q", "-p", "no:cacheprovider", *known, *map(str, files())]
    status = pytest.main(words, plugins=[outcomes])
    if outcomes.collected != len(outcomes.found):
        outcomes.wrong.append(f"{outcomes.collected} tests are marked, {len(outcomes.found)} ran")
    if not outcomes.collected:
        outcomes.wrong.append(f"no test could be run: pytest ended with {int(status)}")
    publish(options.output, outcomes.results(), page(outcomes))
    return 1 if outcomes.wrong else 0


def files() -> list[Path]:
    """The test files that have such tests."""
    return [
        path.relative_to(HOME)
        for path in sorted((HOME / "tests").rglob("test_*.py"))
        if MARKED.search(path.read_text(encoding="utf-8"))
    ]


def page(outcomes: Outcomes) -> str:
    """In words."""
    told = outcomes.results()
    said = ", ".join(f"{told[name]} {name}" for name in ("passed", "failed", "skipped"))
    lines = [f"# Tests that need CUDA\n\n{told['collected']} tests: {said}.\n"]
    return "\n".join([*lines, *(f"- wrong: {line}" for line in outcomes.wrong), ""])


if __name__ == "__main__":
    sys.exit(main())
