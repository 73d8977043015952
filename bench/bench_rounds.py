"""By what two processes that take turns are best compared: the mean of the fastest fifth of their blocks, or
the median of the ratios of neighboring blocks.

    python bench/bench_rounds.py [--pairs 40]     # about a minute

Pairs of processes take turns with one and the same call, 400 rounds each. The first 50 of these, the next 50
and so on give an answer each by either way, and so do 100, 200 and 400; the table says by how much answers
differ: half of what lies between the 16th and the 84th of a hundred, in percent. What processes differ by for
good is part of it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import torch
from bench_lint import machine
from publishing import publish
from torch import nn

from pytest_dispatchguard.measure.timing import lockstep
from pytest_dispatchguard.measure.timing.calling import Call
from pytest_dispatchguard.measure.timing.lockstep import Partner, follow, lead, turns_of
from pytest_dispatchguard.measure.workers.lockstep import Pipes

RESULTS = Path(__file__).resolve().parent / "results" / "rounds.json"
ROUNDS = (50, 100, 200, 400)
PATIENCE = 60.0

Times = Sequence[float]


def by_fastest(here: Times, there: Times) -> float:
    """How many times as long a call takes here, by the fastest blocks."""
    return lockstep._fast(here) / lockstep._fast(there)


def by_ratios(here: Times, there: Times) -> float:
    """The same, by all ratios of neighbors."""
    return statistics.median(one / two for one, two in zip(here, there, strict=True))


WAYS: dict[str, Callable[[Times, Times], float]] = {
    "mean of the fastest fifth": by_fastest,
    "median of all ratios": by_ratios,
}


def calls() -> dict[str, Callable[[], object]]:
    """A short call, which blocks hold many of, and a long one, which is a block by itself."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layer, few = nn.Linear(8, 8), torch.randn(4, 8)
    model = nn.Sequential(
        nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)
    )
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    batch = torch.randn(8, 16)

    def step() -> None:
        optimizer.zero_grad()
        (model(batch) ** 2).mean().backward()
        optimizer.step()

    return {"a layer": lambda: torch.relu(layer(few)), "a training step": step}


def pair(call: Callable[[], object]) -> tuple[list[float], list[float]]:
    """What a call takes in either of two processes, round by round, in microseconds."""
    seen: list[tuple[list[float], list[float]]] = []

    def kept(here: Times, there: Times) -> object:
        seen.append((list(here), list(there)))
        return change(here, there)

    change = lockstep._change
    with (
        closing(Pipes()) as pipes,
        patch.object(lockstep, "_MOST_ROUNDS", max(ROUNDS)),
        patch.object(lockstep, "is_fine", lambda found: False),
        patch.object(lockstep, "_change", kept),
    ):
        mine, theirs = pipes.of(0, base=False), pipes.of(0, base=True)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                follow(turns_of(Call(call), None), Partner(theirs, 1, PATIENCE), 0.99)
                status = 0
            finally:
                os._exit(status)
        lead(
            turns_of(Call(call), None),
            Partner(mine, 1, PATIENCE),
            PATIENCE,
            0.99,
        )
        if os.waitpid(child, 0)[1]:
            raise SystemExit("bench_rounds: the other process ended with an error")
    here, there = seen[-1]
    return here[: max(ROUNDS)], there[: max(ROUNDS)]


def scatter(answers: Times) -> float:
    """Half of what lies between the 16th and the 84th of a hundred answers, in percent."""
    cuts = statistics.quantiles(answers, n=100)
    return round((cuts[83] - cuts[15]) / 2 * 100, 3)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=40, help="pairs of processes (default: 40)")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    begun, rows = time.monotonic(), []
    for name, call in calls().items():
        for _ in range(2000 if name == "a layer" else 200):
            call()
        pairs = [pair(call) for _ in range(options.pairs)]
        takes = statistics.median(one for here, _ in pairs for one in here)
        for rounds in ROUNDS:
            row: dict[str, object] = {"call": name, "us": round(takes, 1), "rounds": rounds}
            for way, answer in WAYS.items():
                row[way] = scatter(
                    [
                        answer(here[first : first + rounds], there[first : first + rounds])
                        for here, there in pairs
                        for first in range(0, len(here) - rounds + 1, rounds)
                    ]
                )
            rows.append(row)
            print(row, file=sys.stderr)
    about = machine() | {"torch": torch.__version__}
    said = (
        f"`make bench-rounds` on {about['cpu']}, {about['cores']} cores, Python {about['python']}, torch "
        f"{about['torch']}: {options.pairs} pairs of processes with the same call, in "
        f"{time.monotonic() - begun:.0f} s. By how much answers differ, in percent:"
    )
    table = [
        "# What two processes that take turns are compared by",
        "",
        said,
        "",
        "| call | takes | rounds | " + " | ".join(WAYS) + " |",
        "| --- | ---: | ---: |" + " ---: |" * len(WAYS),
        *(
            f"| {row['call']} | {row['us']} µs | {row['rounds']} | "
            + " | ".join(f"{row[way]:.2f}" for way in WAYS)
            + " |"
            for row in rows
        ),
    ]
    publish(
        options.output,
        {"machine": about, "pairs": options.pairs, "rows": rows},
        "\n".join(table) + "\n",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
