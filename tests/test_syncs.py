"""Waits for the device in real pytest runs, on a machine that has none: `ghost_cuda` and `syncs=`."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

LIBRARY = """
import torch

class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)

    def forward(self, x):
        if x.any():
            return self.kept(x)
        return self.inner(x)

    def kept(self, x):
        return x[x > 0].sum()

def free(x):
    return torch.where(x > 0, x, 0).sum()
"""
SUITE = """
import pytest, torch
from library import Gate, free

@pytest.mark.overhead_budget(syncs=0)
def test_free(overhead, ghost_cuda):
    overhead(free, torch.ones(3, device=ghost_cuda)).against(torch.sum, torch.ones(3, device=ghost_cuda))

@pytest.mark.overhead_budget(syncs=0)
def test_gate(overhead, ghost_cuda):
    overhead(Gate().to(ghost_cuda), torch.ones(3).cuda())
"""


@pytest.fixture
def run(pytester: pytest.Pytester, plugin_flags: tuple[str, ...]) -> Any:
    def started(*words: str) -> pytest.RunResult:
        flags = ("-p", "no:cacheprovider", "--overhead-max-time=1")
        return pytester.runpytest_subprocess(*plugin_flags, *flags, *words)

    return started


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(test_suite=SUITE, library=LIBRARY)
    return pytester


def told(pytester: pytest.Pytester) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((pytester.path / "out.json").read_text())["tests"]
    return rows


def test_without_the_option_they_are_ordinary_tests(suite: pytest.Pytester, run: Any) -> None:
    run().assert_outcomes(passed=2)


@pytest.mark.parametrize("mode", ["count", "check"])
def test_a_wait_fails_its_budget(suite: pytest.Pytester, run: Any, mode: str) -> None:
    result = run(f"--overhead-budget={mode}", "--overhead-json=out.json")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "  syncs: 2, allowed 0",
            "  truth (DG401) at library.py:9 in *forward, `*x.any()*`: a value is read back to the host",
            "  mask read (DG422) at library.py:14 in *forward → *kept, `*x[[]x > 0]*`: the host waits *",
        ],
    )
    assert [(row["verdict"], row["counters"]) for row in told(suite)] == [
        ("pass", {"syncs": 0}),
        ("fail", {"syncs": 2}),
    ]


def test_waits_are_recorded(suite: pytest.Pytester, run: Any) -> None:
    file = suite.path / "test_suite.py"
    file.write_text(file.read_text().replace("@pytest.mark.overhead_budget(syncs=0)", ""))
    run("--overhead-budget=update").assert_outcomes(passed=2)
    assert "{ syncs = 2 }" in (suite.path / "overhead-budgets.toml").read_text()
    run("--overhead-budget=count").assert_outcomes(passed=2)
    library = suite.path / "library.py"
    library.write_text(library.read_text().replace("x[x > 0].sum()", "x[x > 0].sum().item()"))
    result = run("--overhead-budget=count")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["  syncs: 3, recorded 2"])


@pytest.mark.parametrize(
    ("marker", "fixtures", "said"),
    [
        ("syncs=0", "overhead", "*syncs are counted where there is a ghost: let the test ask for*"),
        (
            "syncs=0, ratio=2",
            "overhead, ghost_cuda",
            "*ratio cannot be told on a ghost*into a test*",
        ),
    ],
)
def test_what_cannot_be_told_is_one_line(
    pytester: pytest.Pytester, run: Any, marker: str, fixtures: str, said: str
) -> None:
    pytester.makepyfile(
        f"""
        import pytest, torch

        @pytest.mark.overhead_budget({marker})
        def test_one({fixtures}):
            overhead(torch.sum, torch.ones(3)).against(torch.sum, torch.ones(3))
        """
    )
    result = run("--overhead-budget=count")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([said])


def test_waits_that_differ_from_call_to_call(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(
        """
        import pytest, torch

        calls = []

        def sometimes(x):
            calls.append(1)
            return x.sum().item() if len(calls) % 2 else 0

        @pytest.mark.overhead_budget(syncs=0)
        def test_one(overhead, ghost_cuda):
            overhead(sometimes, torch.ones(3, device=ghost_cuda))
        """
    )
    result = run("--overhead-budget=count")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["  syncs: 1, allowed 0", "  syncs differ from call to call*"])


def test_waits_that_are_meant(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(
        """
        import pytest, torch
        from pytest_dispatchguard import allow_sync

        def logged(x):
            with allow_sync("once per epoch"):
                return x.sum().item()

        @pytest.mark.overhead_budget(syncs=0)
        def test_one(overhead, ghost_cuda):
            overhead(logged, torch.ones(3, device=ghost_cuda))
        """
    )
    run("--overhead-budget=count").assert_outcomes(passed=1)


def test_tests_that_must_not_wait(suite: pytest.Pytester, run: Any) -> None:
    (suite.path / "test_suite.py").write_text(
        "import pytest, torch\n"
        "from library import Gate, free\n\n"
        "@pytest.fixture\n"
        "def x():\n"
        "    return torch.ones(3, device='cuda')\n\n"
        "@pytest.mark.no_sync\n"
        "def test_free(x):\n"
        "    assert free(x).is_cuda\n\n"
        "@pytest.mark.no_sync\n"
        "def test_gate(x):\n"
        "    Gate().to('cuda')(x)\n\n"
        "@pytest.mark.no_sync\n"
        "def test_fails(x):\n"
        "    assert free(x) is None\n\n"
        "def test_waits_as_it_likes():\n"
        "    assert not torch.cuda.is_available()\n"
    )
    for flags in ((), ("--overhead-budget=count",), ("--strict-markers",)):
        result = run(*flags)
        result.assert_outcomes(passed=2, failed=2)
        result.stdout.fnmatch_lines(
            [
                "the test waits for the device, and is marked no_sync",
                "  truth (DG401) at library.py:9 in *",
            ]
        )
