"""Lints many mutants in a process; what dies, hangs, fails or says two things is narrowed down to mutants."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from attacks.mutants import Mutant, mutants

LINTS = (sys.executable, str(Path(__file__).with_name("lint_twice.py")))
TOGETHER = 100
"""Mutants in a process: enough that its start costs little."""
SETTINGS = '[tool.dispatchguard]\nhot-roots = ["*"]\n'
"""Everything is hot, so everything is judged."""


@dataclass(frozen=True, slots=True)
class Linted:
    """How mutants are linted."""

    command: Sequence[str] = LINTS
    """Takes a folder; prints a line for everything that is wrong, and ends with 0 where nothing is."""
    seconds: float = 20.0
    """A mutant may take so long; each beside it a second more."""
    kept: Path | None = None
    """A folder for those of which something is wrong."""


def wrong_of(given: Sequence[Mutant], how: Linted) -> str:
    """What is wrong with mutants in one folder; empty where nothing is."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        (folder / "pyproject.toml").write_text(SETTINGS)
        for one in given:
            (folder / one.name).write_bytes(one.data)
        limit = how.seconds + len(given) - 1
        try:
            done = subprocess.run(
                [*how.command, name], capture_output=True, text=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            return f"gave no answer within {limit:g} s"
    if done.returncode < 0:
        return f"died of signal {-done.returncode}"
    said = (done.stdout or done.stderr).strip().splitlines()
    return "; ".join(said[-3:]) or f"ended with {done.returncode}" if done.returncode else ""


def blamed(given: Sequence[Mutant], how: Linted) -> Iterator[str]:
    """A line for each mutant of which something is wrong, or for several that go wrong together."""
    said = wrong_of(given, how)
    if not said:
        return
    if len(given) > 1:
        middle = len(given) // 2
        found = [line for half in (given[:middle], given[middle:]) for line in blamed(half, how)]
        if found:
            yield from found
            return
    for one in given:
        if how.kept is not None:
            how.kept.mkdir(parents=True, exist_ok=True)
            (how.kept / one.name).write_bytes(one.data)
    names = ", ".join(f"{one.name} ({one.made})" for one in given[:3])
    yield f"{names}{' and others' if len(given) > 3 else ''}: {said}"


def attack(
    folders: Sequence[Path], number: int, seed: int, jobs: int, how: Linted
) -> Iterator[list[str]]:
    """Lints so many mutants; what was wrong with each lot of them, as it is done."""
    rest = mutants(folders, number, seed)
    lots = iter(lambda: list(islice(rest, TOGETHER)), [])
    with ThreadPoolExecutor(jobs) as pool:
        # A few lots at a time: 50,000 mutants are not all made before the first is linted.
        while now := list(islice(lots, 4 * jobs)):
            yield from pool.map(lambda lot: list(blamed(lot, how)), now)
