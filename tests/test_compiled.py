"""Budgets of subjects that run compiled code, in real pytest runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

pytest.importorskip("torch", reason="budgets of what torch compiles")
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.compiles,
    pytest.mark.skipif(sys.platform != "linux", reason="a compiler and folders of Linux"),
]

SCHEMA = json.loads((Path(__file__).parent / "schemas" / "dispatchguard-verdicts.json").read_text())
NET = """
import torch

class Scaled(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.register_buffer("scale", torch.tensor(scale))

    def forward(self, x):
        return x * self.scale

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Scaled(1.0 + i) for i in range(6))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
"""
CONSTANTS = NET.replace(
    'self.register_buffer("scale", torch.tensor(scale))',
    'self.register_buffer("scale", torch.tensor(scale))\n        self.shift = scale',
).replace("x * self.scale", "x * self.scale + self.shift")
NET_TEST = """
import torch, torch._dynamo  # once for all processes that measure
from net import Net

def test_net(overhead):
    overhead(torch.compile(Net(), backend="aot_eager"), torch.ones(4))
"""
TESTS = """
import pytest
import torch, torch._dynamo  # once for all processes that measure

def add(x):
    return x + 1

def broken(x):
    x = x + 1
    print(end="")
    return x * 2

def eager(f):
    return torch.compile(f, backend="aot_eager")

@pytest.mark.overhead_budget(guards=100, graph_breaks=0, graphs=1, fake_mode_dispatches=(10, 1000))
def test_kept(overhead):
    overhead(eager(add), torch.ones(4)).against(add, torch.ones(4))

@pytest.mark.overhead_budget(guards=2)
def test_guards(overhead):
    overhead(eager(add), torch.ones(4))

@pytest.mark.overhead_budget(graph_breaks=0)
def test_breaks(overhead):
    overhead(eager(broken), torch.ones(4))

@pytest.mark.overhead_budget(recompiles=0, cache_size=1)
def test_recompiles(overhead):
    f = eager(add)
    overhead(lambda: [f(torch.ones(n)) for n in (2, 3)]).named("sizes")

@pytest.mark.overhead_budget(recompiles=0)
def test_every_call(overhead):
    f = torch.compile(lambda x, text: x * len(text), backend="aot_eager", dynamic=False)
    texts = []
    overhead(lambda x: texts.append("a") or f(x, "".join(texts)), torch.ones(4)).named("texts")

@pytest.mark.overhead_budget(guards=5, recompiles=1)
def test_plain(overhead):
    overhead(add, torch.ones(4))

def test_without_limits(overhead):
    overhead(add, torch.ones(4))
"""


FAST = "--overhead-max-time=0.3"


def run(pytester: pytest.Pytester, flags: tuple[str, ...], *words: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(
        *flags, "-p", "no:cacheprovider", "--overhead-json=out.json", *words
    )


def rows(folder: Path) -> dict[str, Mapping[str, Any]]:
    whole = json.loads((folder / "out.json").read_text())
    jsonschema.validate(whole, SCHEMA)
    return {row["nodeid"].rpartition("::")[2]: row for row in whole["tests"]}


def test_limits_of_compiled_subjects(
    pytester: pytest.Pytester, plugin_flags: tuple[str, ...]
) -> None:
    pytester.makepyfile(TESTS)
    result = run(pytester, plugin_flags, "--overhead-budget=count")
    result.assert_outcomes(passed=2, failed=5)
    result.stdout.fnmatch_lines(
        [
            "add costs more than its budget allows",
            "  guards: *, allowed 2",
            "  its guards, by kind and source:",
            "*TENSOR_MATCH of L[[]'x'[]]  return x + 1  (*.py:5 in add)",
            "broken costs more than its budget allows",
            "  graph_breaks: 1, allowed 0",
            "  graph breaks:",
            "    test_limits_of_compiled_subjects.py:9: *`print`*",
            "sizes costs more than its budget allows",
            "  recompiles: 1, allowed 0",
            "  cache_size: 2, allowed 1",
            "  recompiles:",
            "*test_limits_of_compiled_subjects.py:4 in add: *expected 2, actual 3*",
            "texts costs more than its budget allows",
            "  it compiles at every call, so what else it does is not counted",
            "  recompiles: 3, allowed 0",
            "*it may compile at every call",
            "add: guards, recompiles can be told of compiled code alone, and a call runs none: *",
        ]
    )
    found = rows(pytester.path)
    assert found["test_kept"]["counters"]["graphs"] == 1
    assert found["test_kept"]["compiled"]["compile_s"]["tracing"] > 0
    assert found["test_plain"]["verdict"] == "error" and not found["test_plain"]["counters"]
    plain = found["test_without_limits"]
    assert "guards" not in plain["counters"] and plain["compiled"] is None


@pytest.mark.fresh_python
def test_what_is_not_compiled_imports_no_compiler(
    pytester: pytest.Pytester, plugin_flags: tuple[str, ...]
) -> None:
    pytester.makepyfile("""
        import sys
        import torch

        def test_add(overhead):
            overhead(torch.add, torch.ones(4), 1).against(torch.add, torch.ones(4), 1)

        def test_afterwards():
            assert "torch._dynamo" not in sys.modules
    """)
    run(pytester, plugin_flags, "--overhead-budget=count").assert_outcomes(passed=2)


CHECKED = """
import pytest
import torch, torch._dynamo

def add(x):
    return x + 1

def eager(f):
    return torch.compile(f, backend="aot_eager")

@pytest.mark.overhead_budget(guard_us=0.001)
def test_dear(overhead):
    overhead(eager(add), torch.ones(4))

@pytest.mark.overhead_budget(guard_us=100_000)
def test_cheap(overhead):
    overhead(eager(add), torch.ones(4))

@pytest.mark.overhead_budget(guard_us=1)
def test_plain(overhead):
    overhead(add, torch.ones(4))
"""


@pytest.mark.thorough
def test_what_checking_guards_may_take(
    pytester: pytest.Pytester, plugin_flags: tuple[str, ...]
) -> None:
    pytester.makepyfile(CHECKED)
    result = run(pytester, plugin_flags, "--overhead-budget", "--overhead-max-time=4")
    result.stdout.fnmatch_lines(["*guard_us can be told of compiled code alone*"])
    found = json.loads((pytester.path / "out.json").read_text())["tests"]
    outcomes = {row["nodeid"].rpartition("::")[2]: row["verdict"] for row in found}
    dear = next(row for row in found if row["nodeid"].endswith("::test_dear"))
    if "the machine is unfit" in dear["reason"]:  # then times fail nobody
        assert outcomes.pop("test_dear") == "undecided"
    else:
        assert outcomes.pop("test_dear") == "fail"
        result.stdout.fnmatch_lines(["*guard_us: * µs (* to *), allowed 0.001*"])
        result.stdout.fnmatch_lines(["*checking them takes * µs*"])
    assert outcomes == {"test_cheap": "pass", "test_plain": "error"}
    # Where nothing is timed, times are no limits.
    counted = run(pytester, plugin_flags, "--overhead-budget=count", "-k", "dear")
    counted.assert_outcomes(passed=1)


@pytest.mark.thorough
def test_the_budget_file_holds_compile_counters(
    pytester: pytest.Pytester, plugin_flags: tuple[str, ...]
) -> None:
    pytester.makepyfile(net=NET, test_net=NET_TEST)
    run(pytester, plugin_flags, "--overhead-budget=update", FAST).assert_outcomes(passed=1)
    recorded = (pytester.path / "overhead-budgets.toml").read_text()
    assert "guards = " in recorded and "fake_cache_misses = " in recorded
    (pytester.path / "net.py").write_text(CONSTANTS)
    result = run(pytester, plugin_flags, "--overhead-budget=count")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["  guards: *, recorded *", "*EQUALS_MATCH of *.shift*"])


@pytest.mark.thorough
def test_against_a_commit_that_adds_constants_of_instances(
    pytester: pytest.Pytester, plugin_flags: tuple[str, ...]
) -> None:
    pytester.makepyfile(net=NET, test_net=NET_TEST)
    (pytester.path / ".gitignore").write_text("__pycache__\n*.json\nrunpytest*\n")
    for words in (
        "init -q -b main",
        "config user.email a@example.org",
        "config user.name A",
        "add .",
        "commit -qm base",
    ):
        subprocess.run(["git", *words.split()], cwd=pytester.path, check=True)
    against = ("--overhead-budget", "--overhead-against=HEAD", FAST)
    (pytester.path / "net.py").write_text(CONSTANTS)
    result = run(pytester, plugin_flags, *against)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "  guards: *, in HEAD *",
            "  guards that the base does not have:",
            "*+6  EQUALS_MATCH of L[[]'self'[]].layers[[]0[]].shift … * + self.shift  (*net.py:11 in *",
        ]
    )
    result.stdout.fnmatch_lines(["  checking them takes * µs (* to *)"])
    (row,) = rows(pytester.path).values()
    assert row["compiled"]["guard_us"]["low"] > 0
    assert row["counters"]["guards"] > row["base"]["counters"]["guards"]
    new = [group for group in row["compiled"]["guards"] if group["extra"]]
    assert all(".shift" in group["source"] for group in new)


FAILING = """
import pytest
import torch

def add(x):
    return x + 1

def test_add(overhead):
    overhead(torch.compile(add), torch.ones(4)).named("compiled")
    overhead(add, torch.ones(4)).named("plain")
"""


def test_where_the_cache_cannot_be_made_the_others_go_on(
    pytester: pytest.Pytester, plugin_flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(FAILING)
    file = pytester.path / "file"
    file.touch()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(file / "cache"))
    (pytester.path / "test_other.py").write_text(
        "import torch\n\ndef test_plain(overhead):\n    overhead(abs, torch.ones(4))\n"
    )
    result = run(pytester, plugin_flags, "--overhead-budget=count")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(
        ["it cannot be compiled: torch cannot write its cache: *TORCHINDUCTOR_CACHE_DIR"]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("PATH", "", "no C++ compiler works here; install one, or name it*CXX"),
        (
            "TORCHINDUCTOR_CACHE_DIR",
            "/proc",  # nobody can write there, root neither
            "torch cannot write its cache: *TORCHINDUCTOR_CACHE_DIR",
        ),
    ],
)
def test_what_cannot_be_compiled_is_told_in_one_line(
    pytester: pytest.Pytester,
    plugin_flags: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    said: str,
) -> None:
    pytester.makepyfile(FAILING)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv(name, value)
    if name == "PATH":
        monkeypatch.delenv("CXX", raising=False)
    result = run(pytester, plugin_flags, "--overhead-budget=count")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"compiled: it cannot be compiled: {said}*"])
    result.stdout.no_fnmatch_line("*Traceback*")
    found = json.loads((pytester.path / "out.json").read_text())["tests"]
    outcomes = {row["subject"]: (row["verdict"], bool(row["counters"])) for row in found}
    assert outcomes == {"compiled": ("error", False), "plain": ("pass", True)}
    assert os.linesep not in next(r["reason"] for r in found if r["subject"] == "compiled")
