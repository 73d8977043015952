"""Budgets on torch's lazy device: the trace is timed, what it leaves is executed in between."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_dispatchguard.measure.timing import devices
from pytest_dispatchguard.measure.timing.calling import Call
from pytest_dispatchguard.measure.timing.timing import sample
from pytest_dispatchguard.runtime.counters import counters

torch = pytest.importorskip("torch", reason="the lazy device is torch's")

Run = Callable[..., pytest.RunResult]

SUITE = """
import pytest, torch

@pytest.mark.overhead_budget(host_us=1000000)
def test_twice(overhead, overhead_device):
    x = torch.ones(4, device=overhead_device)

    def twice(x):
        return torch.relu(x + x)

    overhead(twice, x).against(torch.mul, x, 2)

def test_computed(overhead, overhead_device):
    x = torch.ones(4, device=overhead_device)

    def computed(x):
        made = x + x
        torch._lazy.mark_step()
        return made

    if overhead_device == "lazy":
        overhead(computed, x).against(torch.add, x, x)

@pytest.mark.overhead_budget(device_us=1)
def test_clock(overhead, overhead_device):
    if overhead_device == "cpu":
        pytest.skip("told in other words")
    overhead(torch.ones, 1)

@pytest.mark.overhead_budget(lazy_ops=1)
def test_elsewhere(overhead):
    overhead(torch.ones, 1)
"""
LIMITED = '[tool.dispatchguard.budgets]\n"*::test_twice[lazy]" = {{ lazy_ops = {} }}\n'


@pytest.fixture
def lazy() -> str:
    missing = devices.started(devices.LAZY)
    if missing:
        pytest.skip(missing)
    return devices.LAZY


def verdicts(pytester: pytest.Pytester) -> dict[str, Any]:
    told = json.loads((pytester.path / "told.json").read_text(encoding="utf-8"))
    return {row["nodeid"].partition("::")[2]: row for row in told["tests"]}


def test_blocks_begin_with_no_trace(lazy: str) -> None:
    x = torch.zeros(2, device=lazy)
    pending = []

    def clock() -> int:
        pending.append(torch._C._lazy._get_tensors_text([x]).count("aten::add"))
        return time.perf_counter_ns()

    sample(
        Call(x.add_, (1,)),
        None,
        enough=lambda found: True,
        seconds=0.01,
        confidence=0.9,
        device=devices.here(lazy),
        clock=clock,
    )
    # Blocks end with a trace of their own calls, and the next begins with none.
    assert max(pending) > 0
    assert pending.count(0) >= len(pending) / 2


def test_operations_are_counted_and_have_no_memory(lazy: str) -> None:
    x = torch.ones(4, 4, device=lazy)
    layer = torch.nn.Linear(4, 4, device=lazy)
    found = counters.count(Call(layer, (x,)).once(), (*counters.ALWAYS, *counters.OF_LAZY))
    assert not found.varying
    assert found.values["lazy_ops"] > 1
    assert found.values["dispatches"] >= 1
    assert found.values["tensor_allocations"] == 0


TRACED = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "relu": lambda a, b: torch.relu(a),
    "exp": lambda a, b: torch.exp(a),
}
"""Operations that the backend traces, one node each."""


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(sorted(TRACED)), max_size=12))
def test_every_operation_of_a_chain_counts_once(names: list[str]) -> None:
    missing = devices.started(devices.LAZY)
    if missing:
        pytest.skip(missing)
    x, y = torch.ones(3, device="lazy"), torch.ones(3, device="lazy")

    def chain(x: Any, y: Any) -> Any:
        for name in names:
            x = TRACED[name](x, y)
        return x

    found = counters.count(Call(chain, (x, y)).once(), counters.OF_LAZY)
    assert found.values == {"lazy_ops": len(names)}
    assert not found.varying


PROGRAM = """
import json, torch
from pytest_dispatchguard.measure.timing import devices
from pytest_dispatchguard.runtime.counters.counters import ALWAYS, OF_LAZY, count
missing = devices.started("lazy")
if missing:
    print(json.dumps(missing))
    raise SystemExit
layer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.LayerNorm(4))
layer, x = layer.to("lazy"), torch.ones(2, 4, device="lazy")
def run():
    return layer(x)[:, 1:].sum(0) / 2
print(json.dumps([count(run, (*ALWAYS, *OF_LAZY)).values for _ in range(5)]))
"""


@pytest.mark.thorough
def test_counts_are_the_same_in_every_process(root: Path, lazy: str) -> None:
    found = []
    for _ in range(2):
        command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
        found += json.loads(done.stdout)
    assert len(found) == 10
    assert all(one == found[0] for one in found)
    assert found[0]["lazy_ops"] > 4


@pytest.mark.thorough  # the parts of it are held by the tests around
def test_a_suite_on_the_cpu_and_on_the_lazy_device(
    pytester: pytest.Pytester, run_pytest: Run, lazy: str
) -> None:
    pytester.makepyfile(SUITE)
    pytester.makepyprojecttoml(LIMITED.format(2))
    words = ("--overhead-device=cpu,lazy", "--overhead-max-time=0.5", "--overhead-json=told.json")
    result = run_pytest("--overhead-budget", *words)
    found = verdicts(pytester)
    assert found["test_twice[lazy]"]["verdict"] == "pass"
    assert found["test_twice[lazy]"]["counters"]["lazy_ops"] == 2
    assert found["test_twice[lazy]"]["host_us"]["value"] > 0
    assert found["test_twice[cpu]"]["verdict"] == "pass"
    assert "lazy_ops" not in found["test_twice[cpu]"]["counters"]
    # What a call computes itself is in its time.
    assert found["test_computed[lazy]"]["ratio"]["value"] > 1.2
    result.stdout.fnmatch_lines(
        [
            "*device_us needs a device with a clock of its own: lazy shows none",
            "*lazy_ops are counted on torch's lazy device: *",
        ]
    )


@pytest.mark.thorough
def test_lazy_operations_are_recorded(
    pytester: pytest.Pytester, run_pytest: Run, lazy: str
) -> None:
    pytester.makepyfile(SUITE)
    words = ("--overhead-device=cpu,lazy", "--overhead-max-time=0.5", "-k", "twice")
    run_pytest("--overhead-budget=update", *words).assert_outcomes(passed=2)
    file = pytester.path / "overhead-budgets.toml"
    assert file.read_text(encoding="utf-8").count("lazy_ops = 2") == 1
    file.write_text(file.read_text(encoding="utf-8").replace("lazy_ops = 2", "lazy_ops = 1"))
    result = run_pytest("--overhead-budget=count", *words)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*lazy_ops: 2, *1*"])
    result = run_pytest("--overhead-budget=count", "--overhead-device=cpu", "-k", "twice")
    result.assert_outcomes(passed=1)
    assert "not there any more" not in result.stdout.str(), "the lazy device is only not asked for"


def test_where_there_is_no_lazy_backend_its_tests_skip(
    pytester: pytest.Pytester, run_pytest: Run
) -> None:
    pytester.makepyfile(SUITE)
    pytester.makeconftest("import sys\nsys.modules['torch._lazy.ts_backend'] = None\n")
    words = ("--overhead-device=lazy,cpu", "--overhead-max-time=0.5", "-rs", "-k", "twice")
    result = run_pytest("--overhead-budget", *words)
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*: no lazy device here: torch has no lazy backend"])


def test_the_backend_starts_only_where_it_is_asked_for(
    pytester: pytest.Pytester, run_pytest: Run
) -> None:
    pytester.makepyfile(
        """
        import pytest, torch

        def test_on(overhead_device):
            with pytest.raises(NotImplementedError):
                torch.ones(1, device="lazy")
        """
    )
    run_pytest("--overhead-device=cpu").assert_outcomes(passed=1)
    assert "lazy" not in [kind for kind, _ in devices.axis(None)]
