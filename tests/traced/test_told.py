"""Traces joined with what the linter finds in a project, and what ran in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.model.traces import Told
from pytest_dispatchguard.profile import Profile
from pytest_dispatchguard.traced.ran import profile_of
from pytest_dispatchguard.traced.told import told

from .written import Call, trace

MODEL = """\
import torch


class Gate(torch.nn.Module):
    def forward(self, x):
        if (x > 100).any():
            x = x.clamp(max=100)
        return x


def measure(x: torch.Tensor):
    return float(x)


def seldom(x: torch.Tensor):
    return x.tolist()


def silenced(x: torch.Tensor):
    return x.item()  # dispatchguard: ignore[DG411]


class Batches:
    def each(self, batches):
        for batch in batches:
            yield batch.sum().item()
"""
FORWARD, MEASURE, SELDOM = "model.py(5): forward", "model.py(11): measure", "model.py(15): seldom"
SILENCED, EACH = "model.py(19): silenced", "model.py(24): each"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("[tool.dispatchguard]\n")
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def one(project: Path, *calls: Call, around: str = "", moved: str = "") -> Told:
    path = trace(project / "trace.json", calls, around=around)
    pairs = ((moved, ""),) if moved else ()
    (found,) = told([path], project, pairs, cache=False)
    return found


def codes(found: Told) -> dict[str, list[tuple[str, int]]]:
    return {
        joined.line.function: [(f.code, f.span.line) for f in joined.findings]
        for joined in found.joined
    }


def test_waits_are_told_with_the_finding_of_their_line(project: Path) -> None:
    found = one(project, Call(FORWARD, ["aten::is_nonzero"]), Call(MEASURE, ["aten::item"]))
    assert codes(found) == {"forward": [("DG401", 6)], "measure": [("DG412", 12)]}
    assert found.unknown == ()
    assert [round(joined.us_per_step) for joined in found.joined] == [100, 100]


def test_waits_of_which_the_linter_knows_nothing_are_told_by_themselves(project: Path) -> None:
    found = one(project, Call(FORWARD, ["aten::is_nonzero", "mylib::nms", ""]))
    assert [wait.operator for wait in found.unknown] == ["", "mylib::nms"]


def test_what_ran_in_every_step_is_hot_though_nothing_calls_it(project: Path) -> None:
    found = one(project, Call(MEASURE, ["aten::item"], times=3))
    (finding,) = found.joined[0].findings
    assert finding.hot is not None
    assert finding.hot.root == "model.measure"
    assert finding.hot.reason == "called 3 times a step of a trace"
    found = one(project, Call(MEASURE, ["aten::item"]))
    (finding,) = found.joined[0].findings
    assert finding.hot is not None and finding.hot.reason == "called in every step of a trace"


def test_what_a_comment_silences_is_told_all_the_same(project: Path) -> None:
    found = one(project, Call(SILENCED, ["aten::item"]))
    assert codes(found) == {"silenced": [("DG411", 20)]}
    assert found.joined[0].findings[0].message.endswith(" (silenced by a comment)")


def test_files_at_other_paths_are_found_by_their_end_or_by_a_map(project: Path) -> None:
    far = Call("/workspace/src/model.py(11): measure", ["aten::item"])
    assert codes(one(project, far)) == {"measure": [("DG412", 12)]}
    (project / "other").mkdir()
    (project / "other" / "model.py").write_text("")
    moved = Call("/workspace/code/model.py(11): measure", ["aten::item"])
    assert codes(one(project, moved, moved="/workspace/code/")) == {"measure": [("DG412", 12)]}


def test_a_trace_alone_is_joined_with_nothing(project: Path) -> None:
    path = trace(project / "trace.json", [Call(MEASURE, ["aten::item"])])
    (found,) = told([path], None, ())
    assert found.joined == () and len(found.unknown) == 1


def test_the_cache_is_left_as_it_was_without_a_trace(project: Path) -> None:
    """What is hot in a trace is hot in no other run."""
    from pytest_dispatchguard.lint.check import check
    from pytest_dispatchguard.lint.request import Request

    def found() -> list[str]:
        report = check(Request((), project, settings={"pedantic": True})).report
        return [finding.code for finding in report.findings]

    before = found()
    path = trace(project / "trace.json", [Call(SELDOM, ["aten::to"])])
    (joined,) = told([path], project, (), cache=True)
    assert codes(joined) == {"seldom": [("DG413", 16)]}
    assert found() == before and "DG413" not in before


def profile(project: Path, *calls: Call, steps: int = 4, around: str = "") -> Profile:
    path = trace(project / "trace.json", calls, steps=steps, around=around)
    traces = [found.trace for found in told([path], project, (), cache=False)]
    return profile_of(traces, lambda rel: (project / rel).read_text())


def test_calls_and_callees_are_recorded_by_qualified_name(project: Path) -> None:
    known = profile(project, Call(FORWARD, times=2), Call(MEASURE), around=EACH)
    assert {name: seen.calls for name, seen in known.functions.items()} == {
        ("model.py", "Gate.forward"): 8,
        ("model.py", "measure"): 4,
        ("model.py", "Batches.each"): 1,
    }
    assert known.functions["model.py", "Batches.each"].callees == {
        ("model.py", "Gate.forward"): 8,
        ("model.py", "measure"): 4,
    }
    assert known.functions["model.py", "Gate.forward"].per_step == 2
    assert known.texts["model.py"].keys() >= {"seldom", "silenced"}, "what is there, ran or not"


def test_of_what_is_called_once_the_loop_is_hot(project: Path) -> None:
    around = profile(project, Call(MEASURE), around=EACH).functions["model.py", "Batches.each"]
    assert around.loops and around.per_step < 1
    single = profile(project, Call(MEASURE), steps=1, around=EACH)
    assert not single.functions["model.py", "Batches.each"].loops


def test_a_generator_that_goes_on_is_the_function_it_began_as(project: Path) -> None:
    known = profile(project, Call(EACH), Call("model.py(25): each"), Call("model.py(26): each"))
    assert list(known.functions) == [("model.py", "Batches.each")]
    assert known.functions["model.py", "Batches.each"].per_step == 3


def test_lambdas_and_modules_are_no_functions_of_a_profile(project: Path) -> None:
    assert not profile(project, Call("model.py(1): <module>"), Call("model.py(4): Gate")).functions


def old_trace(path: Path, *stacks: str) -> Path:
    """A trace of 2021, in which operators have stacks and functions are not recorded."""
    events = []
    for step in range(3):
        at = step * 1000.0
        events.append(old_event("Operator", f"ProfilerStep#{step}", at, 1000.0))
        for number, stack in enumerate(stacks):
            inside = at + 10 + 200 * number
            operator = old_event("Operator", "aten::item", inside, 120.0)
            operator["args"] = {"Call stack": stack}
            events += [operator, old_event("Runtime", "cudaStreamSynchronize", inside + 10, 100.0)]
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def old_event(category: str, name: str, start: float, us: float) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": us}


def test_a_trace_of_2021_knows_lines_and_no_calls(project: Path) -> None:
    stacks = ("model.py(12): measure;run.py(3): <module>", "model.py(26): each;run.py(4): <module>")
    path = old_trace(project / "old.json", *stacks)
    (found,) = told([path], project, (), cache=False)
    assert codes(found) == {"measure": [("DG412", 12)], "each": [("DG411", 26)]}
    known = profile_of([found.trace], lambda rel: (project / rel).read_text()).functions
    measure, each = known["model.py", "measure"], known["model.py", "Batches.each"]
    assert measure.per_step == 1, "outside of loops, its line runs as often as it"
    assert each.loops and each.per_step == 0
