"""A program runs on the ghost; its waits are laid on the time axis of a simulated device, and the lines that
the trace of that tells are those that the ghost has seen."""

from __future__ import annotations

import ast
import random
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the ghost stands in for torch's device")

from pytest_dispatchguard.runtime.ghost.ghost import ghost  # noqa: E402 - needs torch, which may be missing
from pytest_dispatchguard.runtime.syncs.syncs import Sync  # noqa: E402 - as above
from pytest_dispatchguard.traces.analysis import analyzed  # noqa: E402 - torch may be missing
from pytest_dispatchguard.traces.frames import Files  # noqa: E402 - torch may be missing

from .generating import (  # noqa: E402 - torch may be missing
    PROJECT,
    SPELLINGS,
    Function,
    Launch,
    Node,
    Operator,
    Run,
    Wait,
    Work,
    written,
)

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real GPU here")

PROGRAM = """\
import torch


class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)

    def forward(self, x):
        if x.any():
            return self.kept(self.inner(x))
        return self.inner(x)

    def kept(self, x):
        return x[x > 0].sum()


def train():
    model = Gate().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    for step in range(3):
        batch = torch.ones(2, 3).cuda()
        loss = model(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
        if step == 2:
            print(loss.cpu().shape)
    return seen


train()
"""
NAME = "train.py"


class Ordered(Counter[Sync]):
    """Counts waits, and has them in order."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[Sync] = []

    def __setitem__(self, sync: Sync, times: int) -> None:
        self.order.append(sync)
        super().__setitem__(sync, times)


@pytest.fixture(scope="module")
def syncs(tmp_path_factory: pytest.TempPathFactory) -> list[Sync]:
    """The waits of the program, one after another."""
    file = tmp_path_factory.mktemp("project") / NAME
    file.write_text(PROGRAM, encoding="utf-8")
    with ghost() as seen:
        ordered = Ordered()
        seen.times = ordered
        runpy.run_path(str(file), run_name="__main__")
    return [sync for sync in ordered.order if sync.waits]


def own(sync: Sync) -> list[tuple[str, int]]:
    """Functions and lines of the program in which the host waits, innermost first."""
    found = [(f.function.rpartition(".")[2], f.line) for f in sync.frames if f.path.endswith(NAME)]
    assert found
    return found


def node(number: int, sync: Sync, chance: random.Random) -> Node:
    """What the profiler would have seen of it."""
    begins = {
        one.name: one.lineno
        for one in ast.walk(ast.parse(PROGRAM))
        if isinstance(one, ast.FunctionDef)
    }
    (_, line), *_ = own(sync)
    launch = Launch(5, 8, chance.randint(1, 400))
    wait = Wait(number, "stream", 2, 3, 1)
    told: Node = Operator(f"aten::{sync.operation}", line, (Work(2), launch, wait))
    for name, _ in own(sync):
        told = Function(PROJECT + NAME, begins.get(name, 1), name, (Work(1), told, Work(2)))
    return told


@pytest.mark.parametrize(
    ("spelling", "stacks"),
    [("cuda 2021", "call stack"), ("cuda", "call stack"), ("cuda", "frames"), ("xpu", "frames")],
)
def test_the_lines_are_those_that_the_ghost_saw(
    syncs: list[Sync], spelling: str, stacks: Any, tmp_path: Path
) -> None:
    chance = random.Random(5)
    program = [(node(number, sync, chance),) for number, sync in enumerate(syncs)]
    run = Run(SPELLINGS[spelling], stacks, files=True).run(program)
    told = analyzed(written(tmp_path / "a.json", run.events, 0, chance), Files.of([NAME]))
    assert len(syncs) >= 10 and not told.damage
    found: Counter[Any] = Counter()
    for wait in told.waits:
        assert wait.line.ours and wait.line.file == NAME and wait.operator.startswith("aten::")
        found[wait.line.function, wait.line.line if wait.line.exact else None] += wait.times
    exact = spelling == "cuda 2021"
    assert found == Counter((name, line if exact else None) for (name, line), *_ in map(own, syncs))


def test_the_ghost_saw_what_is_planted(syncs: list[Sync]) -> None:
    lines = PROGRAM.splitlines()
    texts = {lines[line - 1].strip() for (_, line), *_ in map(own, syncs)}
    assert {"if x.any():", "return x[x > 0].sum()", "seen.append(loss.item())"} <= texts
