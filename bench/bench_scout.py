"""Asks whether the scout leaves out functions in which the rules would have found something.

    python bench/bench_scout.py FOLDER…

Each folder, one package or more, is linted twice: with the functions that the scout picks out, and with all
hot functions. The table goes to stdout, the same numbers to bench/results/scout.json. Only figures are
kept, never the code.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from pytest_dispatchguard.lint.check import check
from pytest_dispatchguard.lint.pipeline import judge_files
from pytest_dispatchguard.lint.request import Request
from pytest_dispatchguard.lint.syntax.chunks import Outline, worth_judging

RESULTS = Path(__file__).resolve().parent / "results" / "scout.json"


@dataclass(slots=True)
class Row:
    """One package."""

    package: str
    findings: int = 0
    """With the functions that the scout picks out, notes and what is shown with `--pedantic` included."""
    lost: int = 0
    """More with all hot functions."""
    parsed: int = 0
    """Bytes of functions that are parsed."""
    hot: int = 0
    """Bytes of all hot functions."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    options = parser.parse_args(arguments)
    missing = [folder for folder in options.folders if not folder.is_dir()]
    if missing:
        print(f"bench_scout: {missing[0]} is no folder", file=sys.stderr)
        return 2
    rows = []
    for folder in options.folders:
        start = time.perf_counter()
        rows.append(compared(folder.resolve()))
        print(f"{folder.name}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    RESULTS.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    print(table(rows))
    return 0


def compared(folder: Path) -> Row:
    """What the scout picks out of a package, and what it leaves."""
    row = Row(folder.name)

    def picked(facts: Any, hot: Any, *rest: Any) -> list[Outline]:
        found = worth_judging(facts, hot, *rest)
        row.parsed += sum(o.end_byte - o.start_byte for o in found)
        return found

    def everything(facts: Any, hot: Any, _seen: Any, *rest: Any) -> list[Outline]:
        found = worth_judging(facts, hot, hot, *rest)  # as though tensors had been seen in each
        row.hot += sum(o.end_byte - o.start_byte for o in found)
        return found

    before, after = found_with(folder, picked), found_with(folder, everything)
    row.findings, row.lost = len(before), len(after - before)
    return row


def found_with(folder: Path, worth: Callable[..., list[Outline]]) -> set[str]:
    """All findings, where `worth` says which functions are parsed."""
    with tempfile.TemporaryDirectory(prefix="bench-scout-") as scratch:
        config = Path(scratch) / "pyproject.toml"
        config.write_text("[tool.dispatchguard]\npedantic = true\nnotes = true\n", encoding="utf-8")
        request = Request(paths=(folder,), cwd=folder, jobs=1, cache=False, config_file=config)
        with mock.patch.object(judge_files, "worth_judging", worth):
            found = check(request).report.findings
    return {json.dumps([f.code, f.path, asdict(f.span), f.certainty]) for f in found}


def table(rows: Sequence[Row]) -> str:
    total = Row(
        "all",
        *(sum(getattr(row, n) for row in rows) for n in ("findings", "lost", "parsed", "hot")),
    )
    lines = [
        "| package | findings | lost | parsed, of hot functions |",
        "| --- | ---: | ---: | ---: |",
    ]
    for row in (*rows, total):
        share = f"{row.parsed / max(row.hot, 1):.0%}"
        lines.append(f"| {row.package} | {row.findings:,} | {row.lost} | {share} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
