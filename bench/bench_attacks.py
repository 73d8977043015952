"""Attacks the linter, the posting and the plugin, with everything that is in bench/attacks.

    python bench/bench_attacks.py             # half an hour
    python bench/bench_attacks.py MIRRORS     # replays commits of other repositories, too

MIRRORS is a folder with `<owner>+<name>/repo`, a git directory with history, for each of them; without it
this repository's own last commits are replayed. Everything is seeded: the same seed makes the same
attacks. Ends with 1 if anything was wrong. Mutants of which something is wrong are kept in
bench/attacks/found.

A run of all parts with the usual numbers is written to bench/results/attacks.json and attacks.md, any other
only where `--output` says so.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from attacks import (
    cache_flips,
    dying_subjects,
    mutants,
    mutated,
    odd_answers,
    relinted,
    size_sweeps,
)
from bench_lint import HOME, machine
from publishing import RESULTS, publish, table

FOUND = Path(__file__).resolve().parent / "attacks" / "found"
EDITED = (
    "rules",
    "pytest_dispatchguard/runtime",
    "fixtures/demo",
    "fixtures/DG401",
    "fixtures/DG301",
)
"""What edits are made to: code that calls itself all over, and code that findings stand in."""
STEEP = 1.35
"""The largest exponent that is fine: of n log n between the sizes, and noise."""
NOISE_SECONDS = 0.2
"""No slope is drawn through times below this: they are noise."""
SWEEP_SECONDS = 600.0
"""A case may take so long: every size of it is linted a dozen times, some with all calls counted."""
SHOWN = 20
"""Lines of what was wrong with a part that its page shows."""


@dataclass(slots=True)
class Tally:
    """What came of a part."""

    attempts: int = 0
    wrong: list[str] = field(default_factory=list)
    note: str = ""
    details: list[str] = field(default_factory=list)
    """Lines that its page shows, whatever came of it."""

    def add(self, lines: Iterable[str]) -> None:
        """Counts a line for each attempt; those that are not empty say what was wrong."""
        for line in lines:
            self.attempts += 1
            if line:
                self.wrong.append(line)


def mutated_sources(options: argparse.Namespace, tally: Tally) -> None:
    """Files that nobody wrote, each linted cold, with a new cache, warm, and for its fixes."""
    folders = (*mutants.OWN, *options.sources)
    how = mutated.Linted(kept=FOUND)
    for lot in mutated.attack(folders, options.number, options.seed, options.jobs, how):
        tally.attempts = min(tally.attempts + mutated.TOGETHER, options.number)
        tally.wrong += lot
        if sys.stderr.isatty():
            print(f"\r{tally.attempts:,} mutants", end="", file=sys.stderr, flush=True)
    tally.note = f"of {sum(map(len, mutants.sources(folders)))} files"


def sizes(options: argparse.Namespace, tally: Tally) -> None:
    """Valid code that grows, in four sizes each, and the exponent of what linting it takes."""
    for case in size_sweeps.CASES:
        found = _swept(case)
        if isinstance(found, str):
            tally.add([f"{case}: {found}"])
            continue
        fits = f"time {found['time_exponent']:.2f}, calls {found['call_exponent']:.2f}"
        largest = f"{found['sizes'][-1]:,} in {found['seconds'][-1]:.2f} s"
        tally.details.append(f"{case}: {fits}; {largest}")
        tally.add([f"{case}: grows too fast: {fits}" if _is_steep(found) else ""])
    tally.note = "exponents below"


def _is_steep(found: Mapping[str, Any]) -> bool:
    """Whether a case grows faster than n log n."""
    by_time = found["time_exponent"] > STEEP and found["seconds"][-1] > NOISE_SECONDS
    return by_time or bool(found["call_exponent"] > STEEP)


def _swept(case: str) -> dict[str, Any] | str:
    """The figures of a case, from a process that may die; or what was wrong."""
    with tempfile.TemporaryDirectory(prefix="sizes-") as scratch:
        file = Path(scratch, "sizes.json")
        command = [sys.executable, size_sweeps.__file__, case, "--json", str(file)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=SWEEP_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return f"gave no answer within {SWEEP_SECONDS:g} s"
        if done.returncode:
            said = done.stderr.strip().splitlines()
            return f"ended with {done.returncode}: {said[-1] if said else ''}".rstrip(": ")
        figures: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))[0]
        return figures


def flipped_caches(options: argparse.Namespace, tally: Tally) -> None:
    """Bytes of a cache flipped."""
    with tempfile.TemporaryDirectory(prefix="cache-flips-") as root:
        cache_flips.write_project(Path(root))
        found = cache_flips.flip_bytes(Path(root), options.seed, options.flips, cache_flips.EDITED)
    tally.attempts, tally.wrong = found.count, found.wrong
    tally.note = f"{found.anew} told as broken"


def answers(options: argparse.Namespace, tally: Tally) -> None:
    """Odd answers of a code host."""
    posted = 0
    for kind, odd, outcome in odd_answers.attempts(options.answers, options.seed):
        posted += outcome.ended == "posted"
        what = f"{kind}, {odd.name} to {odd.asked or 'everything'}: {outcome.ended}: {outcome.said}"
        tally.add(["" if outcome.fine else what])
    tally.note = f"{posted} posted, the others one line"


def dying(options: argparse.Namespace, tally: Tally) -> None:
    """Subjects that do not return, measured in every mode."""
    for mode in dying_subjects.MODES:
        with tempfile.TemporaryDirectory(prefix="dying-") as folder:
            tally.attempts += len(dying_subjects.SUBJECTS)
            wrong = dying_subjects.attack(Path(folder), mode)
            tally.wrong += [f"{' '.join(mode)}: {line}" for line in wrong]
    tally.note = f"{len(dying_subjects.SUBJECTS)} in {len(dying_subjects.MODES)} modes"


def commits(options: argparse.Namespace, tally: Tally) -> None:
    """Commits replayed with a cache and with a daemon, against runs without."""
    if options.mirrors is None:
        repositories = [relinted.git_folder_of(HOME)]
    else:
        repositories = sorted(options.mirrors.glob("*/repo"))

    def replayed(git: Path) -> list[str]:
        return list(relinted.replay(git, options.commits, options.seed, daemon=True))

    with ThreadPoolExecutor(options.jobs) as pool:
        compared = 0
        for git, lines in zip(repositories, pool.map(replayed, repositories), strict=True):
            print(f"{git.parent.name}: {len(lines)} comparisons", file=sys.stderr, flush=True)
            compared += bool(lines)
            tally.add(lines)
    relinted.end_daemons()
    tally.note = f"{compared} of {len(repositories)} repositories"


def edits(options: argparse.Namespace, tally: Tally) -> None:
    """Random edits, one after another, linted with a cache and without."""
    shares = [len(range(n, options.edits, options.jobs)) for n in range(options.jobs)]
    seeds = range(options.seed, options.seed + options.jobs)
    with ProcessPoolExecutor(options.jobs) as pool:
        for lines in pool.map(_edited, shares, seeds):
            tally.add(lines)
    tally.note = f"{options.jobs} rows of edits of {len(EDITED)} folders"


def _edited(number: int, seed: int) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="edits-") as scratch:
        root = Path(scratch)
        for name in EDITED:
            shutil.copytree(HOME / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        (root / "pyproject.toml").write_text("[tool.dispatchguard]\n")
        return list(relinted.edited(root, number, seed))


PARTS: dict[str, Callable[[argparse.Namespace, Tally], None]] = {
    "mutants": mutated_sources,
    "sizes": sizes,
    "flips": flipped_caches,
    "answers": answers,
    "dying": dying,
    "commits": commits,
    "edits": edits,
}
USUAL = {"number": 50_000, "flips": 500, "answers": 1_000, "commits": 4, "edits": 200}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mirrors", nargs="?", type=Path)
    parser.add_argument("--number", type=int, help="mutants (default: 50000)")
    parser.add_argument("--flips", type=int, help="flips of a cache (default: 500)")
    parser.add_argument("--answers", type=int, help="random answers (default: 1000)")
    parser.add_argument("--commits", type=int, help="commits of a repository (default: 4)")
    parser.add_argument("--edits", type=int, help="edits (default: 200)")
    parser.add_argument(
        "--sources", type=Path, nargs="*", default=[], help="more folders to mutate"
    )
    parser.add_argument("--only", choices=PARTS, action="append", help="this part; may be repeated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", type=Path, help="write the results here, whatever was run")
    parser.set_defaults(**USUAL)
    options = parser.parse_args(arguments)
    mirrors = [] if options.mirrors is None else [options.mirrors]
    for folder in (*mirrors, *options.sources):
        if not folder.is_dir():
            parser.error(f"{folder} is no folder")
    whole = options.only is None and all(getattr(options, name) == n for name, n in USUAL.items())
    started, found = time.monotonic(), {}
    with own_folders():
        for name in options.only or PARTS:
            found[name] = run(name, options)
    seconds = round(time.monotonic() - started)
    results = {"machine": machine(), "seed": options.seed, "seconds": seconds, "parts": found}
    output = options.output or (RESULTS / "attacks.json" if whole else None)
    if output is None:
        print(page(results))
    else:
        publish(output, results, page(results))
    return int(any(part["wrong"] for part in found.values()))


def run(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """What came of a part; what it raises is wrong as well."""
    print(f"attacks: {name}", file=sys.stderr, flush=True)
    part, tally, began = PARTS[name], Tally(), time.monotonic()
    try:
        part(options, tally)
    except Exception as error:  # noqa: BLE001 - the other parts are attacked all the same
        tally.wrong.append(f"the attack itself: {error!r}")
    told = {"what": part.__doc__, **asdict(tally), "seconds": round(time.monotonic() - began, 1)}
    print(f"attacks: {name}: {len(tally.wrong)} wrong", file=sys.stderr, flush=True)
    return told


@contextmanager
def own_folders() -> Iterator[None]:
    """A key of the cache, and a place for daemons, that are not the user's."""
    with tempfile.TemporaryDirectory(prefix="attacks-") as scratch:
        before = dict(os.environ)
        for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
            os.environ[name] = str(Path(scratch, name))
            Path(scratch, name).mkdir(mode=0o700)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def page(results: Mapping[str, Any]) -> str:
    """The table, for people, and what was wrong."""
    about = results["machine"]
    rows = [
        (
            what["what"].rstrip("."),
            f"{what['attempts']:,}",
            str(len(what["wrong"])),
            f"{what['seconds']:.0f} s",
            what["note"],
        )
        for what in results["parts"].values()
    ]
    where = f"{about['cpu']}, {about['cores']} cores, Python {about['python']}"
    lines = [
        "# Attacks",
        "",
        f"Written by `make attack` in {results['seconds']} s, seed {results['seed']}: {where}.",
        "",
        "Wrong is a crash, an internal error, no answer in time, or another report than without a cache.",
        "",
        *table(("attack", "attempts", "wrong", "took", ""), rows),
        "",
    ]
    for name, what in results["parts"].items():
        if what["details"]:
            lines += [f"## {name.capitalize()}", "", *(f"- {line}" for line in what["details"]), ""]
        if what["wrong"]:
            lines += [f"## What was wrong: {name}", ""]
            lines += [f"- `{line}`" for line in what["wrong"][:SHOWN]]
            more = len(what["wrong"]) - SHOWN
            lines += [f"- and {more:,} more", ""] if more > 0 else [""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
