"""What differs from process to process though the code does not, and by how much it moves a call.

    python bench/process_luck.py        # some 6 minutes

One process stays, and others take turns with it one after the other (the lock step that compares two
revisions), alike but for one thing: the layout of addresses, the hash seed, the size of the environment,
the length of the folder's path, what was allocated before, the order of imports, huge pages for what malloc
gives, or text of the module that no call runs. What the ratios scatter by is what that thing does. They are
held against processes that are alike in all, and against forks of one process, as workers fork. The last
rows let all of them differ, in both processes alike and in each by itself: what pairs of processes leave
open."""

from __future__ import annotations

import gc
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from publishing import study, table, written_by

from pytest_dispatchguard.measure.timing.calling import Call
from pytest_dispatchguard.measure.timing.lockstep import Ends, Partner, follow, lead, turns_of
from pytest_dispatchguard.measure.workers.lockstep import Pipes

MODULE = """
import torch

STRICT = False
{filler}

class Layer:
    def __init__(self):
        self.settings = {{"a": 1, "b": 2, "c": 3}}
        self.weight = torch.randn(8, 8)

    def __call__(self, *args, **kwargs):
        return self.call(*args, **kwargs)

    def call(self, x, mask=None):
        for name in self.settings:
            if name.startswith("z"):
                raise TypeError(name)
        if mask is not None:
            x = x * mask
        return torch.add(x, x)

layer = Layer()
small = torch.randn(4)
wide = torch.randn(64, 64)

def twelve(x):
    for _ in range(12):
        x = layer(x)
    return x

def wrapper(x):
    if STRICT:
        raise TypeError(x)
    return torch.add(x, x)

def product(x):
    return torch.matmul(x, x)

TREE = {{"a": [1, (2, 3), {{"b": 4}}], "c": {{"d": [5, 6], "e": (7, [8, 9])}}}}

def leaves(tree):
    if isinstance(tree, dict):
        return [leaf for name in sorted(tree) for leaf in leaves(tree[name])]
    if isinstance(tree, (list, tuple)):
        return [leaf for one in tree for leaf in leaves(one)]
    return [tree]

SUBJECTS = {{
    "a tree": (leaves, TREE),
    "a wrapper": (wrapper, small),
    "a layer": (layer, small),
    "twelve layers": (twelve, small),
    "a product": (product, wide),
}}
"""
PROCESSES = 8
SUBJECTS = ("a tree", "a wrapper", "a layer", "twelve layers", "a product")
_FIXED = 0x0040000
_CHANCE = random.Random(7)


@dataclass(frozen=True)
class Luck:
    """What a process starts with."""

    layout: bool = False
    """Whether its addresses are random."""
    seed: int = 0
    padding: int = 0
    """Bytes of the environment."""
    folder: int = 0
    """Letters that the folder's name is longer by."""
    filler: int = 0
    """Functions in the module that nobody calls."""
    allocated: int = 0
    """What is allocated, and kept, before the module is imported: the seed of sizes; 0 for nothing."""
    order: int = 0
    """The order in which others are imported before it: a seed; 0 for nothing."""
    huge: bool = False
    """Whether malloc asks for huge pages."""
    forks: bool = False
    """Whether each meeting is in a fork of its own."""


def _drawn(**names: Callable[[], Any]) -> Callable[[Luck], Luck]:
    return lambda luck: replace(luck, **{name: draw() for name, draw in names.items()})


_SEED = _drawn(seed=lambda: _CHANCE.randrange(1, 100_000))
_PADDING = _drawn(padding=lambda: _CHANCE.randrange(4096))
_FOLDER = _drawn(folder=lambda: _CHANCE.randrange(120))
_FILLER = _drawn(filler=lambda: _CHANCE.randrange(60))
_LAYOUT = _drawn(layout=lambda: True)
_ALLOCATED = _drawn(allocated=lambda: _CHANCE.randrange(1, 100_000))
_ORDER = _drawn(order=lambda: _CHANCE.randrange(1, 100_000))


def _all(luck: Luck) -> Luck:
    for draw in (_LAYOUT, _SEED, _PADDING, _FOLDER, _ALLOCATED, _ORDER, _FILLER):
        luck = draw(luck)
    return luck


FACTORS: Mapping[str, Callable[[Luck], Luck]] = {
    "nothing": lambda luck: luck,
    "address layout": _LAYOUT,
    "hash seed": _SEED,
    "size of the environment": _PADDING,
    "length of the folder's path": _FOLDER,
    "what was allocated before": _ALLOCATED,
    "order of imports": _ORDER,
    "huge pages for malloc": _drawn(huge=lambda: True),
    "another fork of one process": _drawn(forks=lambda: True),
    "text that no call runs": _FILLER,
    "all of these": _all,
}
PAIRS = "text that no call runs, in pairs that differ in all else"


class Process:
    """One process with the subjects, which takes turns on request."""

    def __init__(self, home: Path, luck: Luck, ends: Ends) -> None:
        folder = home / ("f" * (luck.folder + 1)) / str(luck.filler)
        folder.mkdir(parents=True, exist_ok=True)
        filler = "".join(f"def unused{i}(x): return x + {i}\n" for i in range(luck.filler))
        (folder / "subjects.py").write_text(MODULE.format(filler=filler), encoding="utf-8")
        environment = {
            **{
                name: os.environ[name]
                for name in ("PATH", "PYTHONPATH", "HOME")
                if name in os.environ
            },
            "PYTHONHASHSEED": str(luck.seed),
            "OMP_NUM_THREADS": "1",
            "PAD": "." * luck.padding,
        }
        if luck.huge:
            environment["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1"
        words = [
            sys.executable,
            "-W",
            "ignore",
            __file__,
            "--serve",
            str(ends.reading),
            str(ends.writing),
        ]
        self.process = subprocess.Popen(
            [*words, json.dumps([luck.layout, luck.allocated, luck.order, luck.forks])],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(ends.reading, ends.writing),
            text=True,
        )

    def ask(self, subject: str, part: str, meeting: int) -> None:
        """Asks for a meeting."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([subject, part, meeting]) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """What came of it."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        """Ends it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)


def serve(reading: int, writing: int, luck: str) -> int:
    """The life of such a process."""
    layout, allocated, order, forks = json.loads(luck)
    if not layout and sys.platform == "linux":
        import ctypes

        libc = ctypes.CDLL(None)
        now = libc.personality(0xFFFFFFFF)
        if now != -1 and not now & _FIXED and libc.personality(now | _FIXED) != -1:
            os.execv(sys.executable, sys.orig_argv)
    sizes = random.Random(allocated)
    kept = [bytearray(sizes.randrange(1, 3000)) for _ in range(5000 if allocated else 0)]
    others = ["csv", "decimal", "email.message", "fractions", "html.parser", "sqlite3", "wave"]
    random.Random(order).shuffle(others)
    for name in others if order else ():
        import_module(name)
    sys.path.insert(0, str(Path.cwd()))
    import subjects  # type: ignore[import-not-found]  # written by whoever starts it
    import torch

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        if forks and (child := os.fork()):
            os.waitpid(child, 0)
            continue
        subject, part, meeting = json.loads(line)
        function, given = subjects.SUBJECTS[subject]
        partner = Partner(Ends(reading, writing), meeting, 60.0)
        turns = turns_of(Call(function, (given,)), None)
        found = (
            lead(turns, partner, 1.0, 0.999) if part == "lead" else follow(turns, partner, 0.999)
        )
        change = found.change
        print(json.dumps(change and [change.value, change.low, change.high]), flush=True)
        if forks:
            os._exit(0)
    del kept
    return 0


@dataclass
class Row:
    """What one thing does to one subject."""

    factor: str
    subject: str
    changes: list[float] = field(default_factory=list)
    """Logarithms, a process each."""
    widths: list[float] = field(default_factory=list)

    @property
    def scatter(self) -> float:
        """The standard deviation between processes."""
        return statistics.stdev(self.changes) if len(self.changes) > 1 else math.nan


def measured(factor: str, processes: int, home: Path) -> list[Row]:
    """The rows of one factor."""
    rows = {subject: Row(factor, subject) for subject in SUBJECTS}
    meeting = 0
    with closing(Pipes()) as pipes:
        mine, theirs = pipes.of(0, base=True), pipes.of(0, base=False)
        usual, stays, comes = Luck(), None, None
        for _ in range(processes):
            if factor == PAIRS:
                usual = _PADDING(_SEED(usual))
                other = _FILLER(usual)
                if stays is not None:
                    stays.end()
                    stays = None
            else:
                other = FACTORS[factor](usual)
            stays = stays or Process(home, usual, mine)
            comes = comes or Process(home, other, theirs)
            for subject, row in rows.items():
                meeting += 1
                stays.ask(subject, "follow", meeting)
                comes.ask(subject, "lead", meeting)
                value, low, high = comes.answer()
                stays.answer()
                row.changes.append(math.log(value))
                row.widths.append((high - low) / 2 / value)
            if not other.forks:
                comes.end()
                comes = None
        for process in (stays, comes):
            if process is not None:
                process.end()
    return list(rows.values())


def page(results: Mapping[str, Any]) -> str:
    """The table."""
    by_factor: dict[str, list[Mapping[str, Any]]] = {}
    for row in results["rows"]:
        by_factor.setdefault(row["factor"], []).append(row)
    rows = [
        [factor, *(f"{row['scatter']:.2%} (±{row['width']:.2%})" for row in found)]
        for factor, found in by_factor.items()
    ]
    return "\n".join(
        [
            "# What differs from process to process",
            "",
            written_by("bench-luck", results),
            "",
            "The standard deviation, between processes, of the time of one call; in parentheses what the",
            "blocks of one process leave open (half the interval, at its confidence).",
            "",
            *table(["what differs", *SUBJECTS], rows),
            "",
        ]
    )


def measure() -> dict[str, Any]:
    """All rows."""
    rows = []
    with tempfile.TemporaryDirectory() as home:
        for factor in [*FACTORS, PAIRS]:
            for row in measured(factor, PROCESSES, Path(home)):
                about = {"factor": row.factor, "subject": row.subject, "scatter": row.scatter}
                width = statistics.mean(row.widths)
                rows.append({**about, "width": width, "changes": row.changes})
                print(f"{factor}, {row.subject}: {row.scatter:.2%}", file=sys.stderr, flush=True)
    return {"rows": rows}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        raise SystemExit(serve(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
    raise SystemExit(study("luck", __doc__, None, measure, page, lambda results: ""))
