"""How many findings carry a fix, by package and by rule.

    python bench/bench_fixes.py [FOLDER]                     # writes the column "after"
    python bench/bench_fixes.py [FOLDER] --column before

Ten packages of PyPI that nobody tuned a rule on. They were tried in the order of their downloads, of those
whose summary speaks of torch, deep learning or neural networks and whose metadata requires torch: the first
ten with ten findings or more. Left out: what this project has looked at before (bench/results), bindings and
downloads over 50 MB, and small helpers that hold no layers. Wheels are taken from FOLDER, one folder a
package, and from PyPI where it has none.

Every package is linted in this process, with all rules; findings are those of level sure, in hot code.
Written to bench/results/fixes.json and fixes.md; a run keeps the other column.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench_lint import BenchError
from publishing import RESULTS, publish, table
from sample_findings import lint

PACKAGES = (
    "spandrel==0.4.2",
    "torch-audiomentations==0.12.0",
    "cache-dit==1.5.3",
    "nvidia-modelopt==0.47.0",
    "pyiqa==0.1.16",
    "coqui-tts==0.28.0",
    "deepchem==2.8.0",
    "torchscale==0.3.0",
    "pytorchcv==0.0.74",
    "terratorch==1.2.13",
)
COLUMNS = ("before", "after")
NO_FIX, SAFE, UNSAFE = "none", "safe", "unsafe"

Counts = dict[str, dict[str, int]]
"""By package or rule, the findings by what their fix is."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, help="has the wheels, or takes them")
    parser.add_argument("--column", choices=COLUMNS, default="after")
    parser.add_argument("--output", type=Path, default=RESULTS / "fixes.json")
    options = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-fixes-") as scratch:
            found = measure(options.folder or Path(scratch), Path(scratch) / "sources")
    except (BenchError, OSError) as error:
        print(f"bench_fixes: {error}", file=sys.stderr)
        return 2
    kept = json.loads(options.output.read_text("utf-8")) if options.output.exists() else {}
    results = {"packages": PACKAGES, "columns": {**kept.get("columns", {}), options.column: found}}
    publish(options.output, results, page(results))
    return 0


def measure(folder: Path, sources: Path) -> dict[str, Counts]:
    """The findings of all packages by their fixes: by package and by rule."""
    by_package: Counts = {}
    by_rule: Counts = {}
    for package in PACKAGES:
        source = unpacked(package, folder, sources)
        found = [f for f in lint(source, ("DG",), 1)[1] if f.certainty == "sure"]
        fixes = [(f"{f.code} {f.rule}", f.fix.safety if f.fix else NO_FIX) for f in found]
        by_package[package] = dict(Counter(safety for _, safety in fixes))
        for rule, safety in fixes:
            counts = by_rule.setdefault(rule, {})
            counts[safety] = counts.get(safety, 0) + 1
        print(f"{package}: {len(found)} findings", file=sys.stderr)
    return {"packages": by_package, "rules": dict(sorted(by_rule.items()))}


def unpacked(package: str, folder: Path, sources: Path) -> Path:
    """The folder of a package's source, as its wheel or archive has it."""
    name = package.partition("==")[0]
    own = folder / name
    own.mkdir(parents=True, exist_ok=True)
    if not any(own.glob("*.whl")) and not any(own.glob("*.tar.gz")):
        command = (
            *(sys.executable, "-m", "pip", "download", "--quiet"),
            *("--disable-pip-version-check", "--no-deps", "--dest", str(own), package),
        )
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise BenchError(f"{package} cannot be had: {done.stderr.strip()[-300:]}")
    source = (sources / name).resolve()
    for wheel in own.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(source)
        return source
    for archive in own.glob("*.tar.gz"):
        with tarfile.open(archive) as opened:
            opened.extractall(source, filter="data")
    return source


# -- the page ---------------------------------------------------------------------------------------


def page(results: Mapping[str, Any]) -> str:
    """Both tables, before and after."""
    columns: Mapping[str, Mapping[str, Counts]] = results["columns"]
    there = [c for c in COLUMNS if c in columns]
    lines = [
        "# Findings with a fix",
        "",
        (
            "Written by `make bench-fixes`. Findings of level sure in ten packages that nobody tuned a rule "
            "on (how they were chosen: `bench/bench_fixes.py`), and how many of them carry a fix."
        ),
        "",
    ]
    for column in there:
        total = _sum(columns[column]["packages"].values())
        lines += [f"**{column.capitalize()}: {_said(total)}.**", ""]
    for title, by in (("package", "packages"), ("rule", "rules")):
        lines += [f"## By {title}", ""]
        head = [title, *(f"{c}: {w}" for c in there for w in ("findings", "with a fix", "safe"))]
        names = sorted({n for c in there for n in columns[c][by]})
        if by == "packages":
            names = [n for n in results["packages"] if n in names]
        else:
            names.sort(key=lambda n: -_all(columns[there[0]][by].get(n, {})))
        rows = [
            [name, *(cell for c in there for cell in _cells(columns[c][by].get(name, {})))]
            for name in names
        ]
        lines += [*table(head, rows), ""]
    return "\n".join(lines)


def _all(counts: Mapping[str, int]) -> int:
    return sum(counts.values())


def _fixed(counts: Mapping[str, int]) -> int:
    return counts.get(SAFE, 0) + counts.get(UNSAFE, 0)


def _sum(many: Iterable[Mapping[str, int]]) -> Counter[str]:
    return sum((Counter(one) for one in many), Counter())


def _said(counts: Mapping[str, int]) -> str:
    whole = _all(counts)
    return (
        f"{_fixed(counts)} of {whole} findings have a fix ({_share(_fixed(counts), whole)}), "
        f"{counts.get(SAFE, 0)} of these a safe one ({_share(counts.get(SAFE, 0), whole)} of all)"
    )


def _cells(counts: Mapping[str, int]) -> list[str]:
    whole, fixed = _all(counts), _fixed(counts)
    return [str(whole), f"{fixed} ({_share(fixed, whole)})", str(counts.get(SAFE, 0))]


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f}%" if whole else "-"


if __name__ == "__main__":
    sys.exit(main())
