"""What one call of torch code does, to the unit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.runtime.counters.counters import COUNTABLE, OF_PYTHON, count

torch = pytest.importorskip("torch", reason="counts what torch does")


def test_one_operation() -> None:
    x = torch.ones(4)
    assert count(lambda: torch.add(x, x)).values == {
        "instructions": 0,
        "py_calls": 0,
        "c_calls": 1,
        "dispatches": 1,
        "functions": 1,
        "tensor_allocations": 1,
    }


def test_what_a_wrapper_adds() -> None:
    x = torch.ones(4)

    def wrapper(a: Any, b: Any) -> Any:
        if not isinstance(a, torch.Tensor):
            raise TypeError
        return torch.add(a, b).relu()

    found = count(lambda: wrapper(x, x)).values
    assert found["py_calls"] >= 1 and found["instructions"] > 5
    assert (found["dispatches"], found["tensor_allocations"]) == (2, 2)


@pytest.mark.parametrize(
    ("body", "allocations"),
    [
        (lambda x: x.view(-1), 0),
        (lambda x: x[0], 0),
        (lambda x: x.add_(1), 0),
        (lambda x: x.clone(), 1),
        (lambda x: (x + 1, x.t()), 1),
        (lambda x: torch.ones(3), 1),
    ],
)
def test_views_and_work_in_place_allocate_nothing(body: Any, allocations: int) -> None:
    x = torch.ones(2, 2)
    assert count(lambda: body(x)).values["tensor_allocations"] == allocations


def test_only_what_is_asked_for() -> None:
    assert list(count(lambda: len("a"), ["c_calls", "instructions"]).values) == [
        "instructions",
        "c_calls",
    ]


def test_a_call_that_does_more_each_time_is_told() -> None:
    kept: list[int] = []

    def grows() -> int:
        kept.append(1)
        return sum(1 for _ in kept)

    assert "instructions" in count(lambda: grows(), OF_PYTHON).varying


def test_what_prepares_is_not_counted() -> None:
    made: list[Any] = []
    x = torch.ones(2)

    def prepare() -> None:
        made[:] = [x + 1]

    found = count(lambda: made[0].mul_(2), prepare=prepare)
    assert found.values["dispatches"] == 1 and not found.varying


def test_lazy_set_up_is_none_of_a_call() -> None:
    cache: dict[str, int] = {}

    def lazy() -> int:
        if "x" not in cache:
            cache["x"] = sum(range(100))
        return cache["x"]

    assert count(lambda: lazy(), OF_PYTHON).values["c_calls"] == 0


PROGRAM = """
import json, torch
from pytest_dispatchguard.runtime.counters.counters import COUNTABLE, count
layer, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), torch.ones(2, 4)
def run():
    return layer(x)
print(json.dumps([count(run, COUNTABLE).values for _ in range(20)]))
"""


@pytest.mark.thorough
def test_counts_are_the_same_in_every_process(root: Path) -> None:
    found = []
    for seed in ("0", "1", "random"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "X" * int(seed == "1") * 999 or "Y": "1",
        }
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", PROGRAM],
            capture_output=True,
            text=True,
            env=environment,
            check=True,
            cwd=root,
        )
        found += json.loads(done.stdout)
    assert len(found) == 60
    assert all(one == found[0] for one in found)
    assert tuple(found[0]) == COUNTABLE
