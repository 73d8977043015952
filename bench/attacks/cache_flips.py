"""Flips bytes of a project's cache, one or a few at a time, and holds what is told then against what was told
before: the same findings and edits, and no failure.

    python bench/attacks/cache_flips.py            # a small project, 500 flips
    python bench/attacks/cache_flips.py FOLDER     # or a copy of one that lies there
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_dispatchguard.lint.check import check
from pytest_dispatchguard.lint.request import Request
from pytest_dispatchguard.lint.store.cache import cache_path
from pytest_dispatchguard.model.reports import Report

PROJECT = {
    "pyproject.toml": "[tool.dispatchguard]\n",
    "pkg/__init__.py": "",
    "pkg/layers.py": """\
import os
import torch

from pkg.helpers import masked


class Gate(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if os.environ.get("GATE"):
            return masked(x)
        mask = torch.zeros(3).to(x.device)
        return x * mask
""",
    "pkg/helpers.py": """\
import torch


def masked(x: torch.Tensor):
    if x.any():
        return x.item()
    return x.cpu()
""",
}
EDITED = "pkg/helpers.py"
"""A file of it that changes now and then, so that more is asked of the cache than what was found in files."""


@dataclass(slots=True)
class Flipped:
    """What came of it."""

    count: int = 0
    anew: int = 0
    """Runs that said that the cache was broken, and began another."""
    wrong: list[str] = field(default_factory=list)
    """A line for each run that failed, or told something else."""


def flip_bytes(root: Path, seed: int, count: int, edited: str | None = None) -> Flipped:
    """Lints a project `count` times with bytes of its cache flipped. With a file that is `edited`, every
    other run is after a change of it, which moves its lines and what is in them."""
    rng = random.Random(seed)
    request = Request((Path(),), root)
    texts = [None] if edited is None else _two_texts(root / edited)
    expected: list[Report] = []
    caches: list[bytes] = []
    cache = cache_path(root)
    for text in texts:
        _write(root, edited, text)
        expected.append(_told(replace(request, cache=False)))
        _told(request)
        caches.append(cache.read_bytes())
    flipped = Flipped()
    for number in range(count):
        now, kept = number % len(texts), rng.randrange(len(caches))
        data = bytearray(caches[kept])
        at = [rng.randrange(len(data)) for _ in range(rng.choice((1, 1, 1, 2, 8)))]
        for place in at:
            data[place] ^= rng.randrange(1, 256)
        cache.write_bytes(data)
        _write(root, edited, texts[now])
        flipped.count += 1
        for run in ("first", "second"):
            try:
                found = check(request).report
            except Exception as error:  # noqa: BLE001 - whatever comes of it is told
                flipped.wrong.append(f"{run} run after a flip at {at}: {error!r}")
                break
            flipped.anew += "broken" in "".join(found.notes)
            if _without_notes(found) != expected[now]:
                flipped.wrong.append(f"{run} run after a flip at {at}: told something else")
    return flipped


def _two_texts(path: Path) -> list[str | None]:
    """A file as it is, and with its lines moved and a function more."""
    text = path.read_text(encoding="utf-8")
    return [text, f"# one line more\n{text}\n\ndef one_more(x):\n    return x\n"]


def _write(root: Path, name: str | None, text: str | None) -> None:
    if name is not None and text is not None:
        (root / name).write_text(text, encoding="utf-8")


def _told(request: Request) -> Report:
    return _without_notes(check(request).report)


def _without_notes(report: Report) -> Report:
    """What is told of the project: that a cache was broken is told of the run."""
    return replace(report, notes=())


def write_project(root: Path) -> None:
    """The small project."""
    for name, text in PROJECT.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="cache-flips-") as scratch:
        root, edited = Path(scratch, "project"), None
        if options.folder is None:
            write_project(root)
            edited = EDITED
        else:
            shutil.copytree(options.folder, root, ignore=shutil.ignore_patterns(".dispatchguard"))
        found = flip_bytes(root, options.seed, options.count, edited)
    for line in found.wrong:
        print(line)
    print(f"{found.count} flips: {len(found.wrong)} wrong, {found.anew} told as broken")
    return bool(found.wrong)


if __name__ == "__main__":
    sys.exit(main())
