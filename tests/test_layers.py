"""Budgets that fail tell which layer takes more: regressions are planted, and blamed by the failing text."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

pytest.importorskip("torch", reason="layers of calls of torch")
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(sys.platform == "win32", reason="times are not measured on Windows"),
]

SCHEMA = json.loads((Path(__file__).parent / "schemas" / "dispatchguard-verdicts.json").read_text())

EAGER = """
import contextlib
import pytest
import torch

torch.set_num_threads(1)
X = torch.ones(4, 4)

def wrapped(a, b):
    def called(*args, **kwargs):
        return torch.add(*args, **kwargs)
    return called(a, b)

@contextlib.contextmanager
def scope():
    yield

def in_scope(a, b):
    with scope():
        return torch.add(a, b)

class Slow(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        sum(range(200))
        return super().__torch_function__(func, types, args, kwargs or {})

def with_room(a, b):
    return torch.add(a, b, out=torch.empty(4, 4))

@pytest.mark.overhead_budget(ratio=1.02)
@pytest.mark.parametrize("f", [wrapped, in_scope, with_room])
def test_function(overhead, f):
    overhead(f, X, X).against(torch.add, X, X)

@pytest.mark.overhead_budget(ratio=1.02)
def test_subclass(overhead):
    overhead(torch.add, X.as_subclass(Slow), X).against(torch.add, X, X).unchecked()

@pytest.mark.overhead_budget(ratio=1.02)
def test_grad_left_on(overhead):
    left = X.clone().requires_grad_()
    overhead(torch.add, left, X).against(torch.add, X, X).unchecked()
"""
COMPILED = """
import pytest
import torch, torch._dynamo  # once for all processes that measure

torch.set_num_threads(1)
X = torch.ones(4)

class Scaled(torch.nn.Module):
    def __init__(self, scale, constant):
        super().__init__()
        self.scale = scale if constant else 1.0

    def forward(self, x):
        return x

class Net(torch.nn.Module):
    def __init__(self, constant):
        super().__init__()
        self.layers = torch.nn.ModuleList(Scaled(1.0 + i, constant) for i in range(60))

    def forward(self, x):
        total = sum(layer.scale for layer in self.layers)
        return x * total if total > 100 else x

class Few(torch.nn.Module):
    def forward(self, x):
        return x * 2

def plain(x):
    return (x + 1) * 2

def broken(x):
    x = x + 1
    torch._dynamo.graph_break()
    return x * 2

class Step:
    n = 0

def anew(x):
    Step.n += 1
    return (x + 1) * 2 if Step.n else x

def compiled(f):
    return torch.compile(f, backend="eager")

@pytest.mark.overhead_budget(ratio=1.02)
def test_guards(overhead):
    overhead(compiled(Net(True)), X).against(compiled(Few()), X).unchecked()

@pytest.mark.overhead_budget(ratio=1.02)
def test_break(overhead):
    overhead(compiled(broken), X).against(compiled(plain), X)

@pytest.mark.overhead_budget(ratio=0.5)
def test_recompiles(overhead):
    overhead(compiled(anew), X).against(compiled(plain), X)
"""


def failing_texts(
    pytester: pytest.Pytester, run_pytest: Callable[..., pytest.RunResult], tests: str
) -> dict[str, str]:
    """What the failure of each test says, by its name. The JSON beside it keeps its schema."""
    pytester.makepyfile(test_planted=tests)
    result = run_pytest("--overhead-budget=check", "--overhead-json=v.json", "test_planted.py")
    told = json.loads((pytester.path / "v.json").read_text())
    jsonschema.validate(told, SCHEMA)
    assert {test["verdict"] for test in told["tests"]} == {"fail"}, result.stdout.str()
    assert all(test["layers"]["layers"] for test in told["tests"])
    parts = re.split(r"_{3,} (test_[\w\[\]-]+) _{3,}", result.stdout.str())
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def blamed(text: str) -> str:
    """The layer that is told first: what takes most of what is more."""
    rows = [line for line in text.splitlines() if re.match(r"\s*\+[\d.]+ µs  ", line)]
    return rows[0] if rows else ""


@pytest.mark.thorough
def test_what_makes_an_eager_call_dear_is_named(
    pytester: pytest.Pytester, run_pytest: Callable[..., pytest.RunResult]
) -> None:
    texts = failing_texts(pytester, run_pytest, EAGER)
    closure = texts["test_function[wrapped]"]
    assert "wrapped" in blamed(closure)
    assert re.search(r"wrapped\.<locals>\.called +new +test_planted\.py:\d+", closure)
    assert re.search(r"with scope +new +test_planted\.py:\d+", texts["test_function[in_scope]"])
    assert "Slow.__torch_function__" in blamed(texts["test_subclass"])
    assert re.search(r"autograd +new +recording what a backward", texts["test_grad_left_on"])
    room = texts["test_function[with_room]"]
    assert re.search(r"allocation +[\d.]+ → [\d.]+ µs", room)
    assert "it calls torch more than its reference: torch.empty" in room


@pytest.mark.thorough
@pytest.mark.compiles
def test_what_makes_a_compiled_call_dear_is_named(
    pytester: pytest.Pytester, run_pytest: Callable[..., pytest.RunResult]
) -> None:
    texts = failing_texts(pytester, run_pytest, COMPILED)
    assert re.search(r"\+[\d.]+ µs  guards ", texts["test_guards"])
    assert re.search(r"60  EQUALS_MATCH of L\['self'\]\.layers\[0\]\.scale", texts["test_guards"])
    assert re.search(
        r"graph breaks:\n +test_planted\.py:\d+: .*graph_break\(\)", texts["test_break"]
    )
    # Older releases break the graph where a class is written to, and compile no more.
    assert re.search(
        r"recompiles:\n +test_planted\.py:\d+ in anew: .*\.n ==|breaks:\n +test_planted\.py:\d+: store_attr",
        texts["test_recompiles"],
    )
