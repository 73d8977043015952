"""`dispatchguard trace`: from files that the profiler writes to what is said, in each format."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from .conftest import Run, Write, one_line

NET = """\
import torch


class Gate(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (x < 0).any():
            x = x.abs()
        return scale(x)


def scale(x: torch.Tensor) -> torch.Tensor:
    return odd(x * 2)


def odd(x):
    return x.somehow()
"""

STEP_US = 1000.0
FORWARD, ODD = "net.py(5): forward", "net.py(15): odd"


class Recorded:
    """A trace of a few steps with one thread and one device: each begins a millisecond after the other."""

    def __init__(self, steps: int = 4, folder: str = "/workspace/src/") -> None:
        self.events: list[dict[str, Any]] = []
        self._folder = folder
        self._correlation = 0
        for n in range(steps):
            self._step(n * STEP_US, n)

    def add(self, category: str, name: str, ts: float, dur: float, **args: Any) -> None:
        thread = 7 if category == "kernel" else 1
        event = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread}
        self.events.append({**event, "ts": 5e9 + ts, "dur": dur, "args": args})

    def launch(self, at: float, start: float, us: float) -> None:
        """A kernel, launched at a time and begun at another."""
        self._correlation += 1
        self.add("cuda_runtime", "cudaLaunchKernel", at, 5.0, correlation=self._correlation)
        self.add("kernel", "add", start, us, correlation=self._correlation, device=0)

    def wait(self, function: str, at: float, us: float, operator: str = "aten::item") -> None:
        """A wait in a function."""
        name = self._folder + function
        self.add("python_function", name, at - 2.0, us + 4.0)
        self.add("cpu_op", operator, at - 1.0, us + 2.0)
        self.add("cuda_runtime", "cudaStreamSynchronize", at, us)

    def _step(self, at: float, number: int) -> None:
        self.add("user_annotation", f"ProfilerStep#{number}", at, STEP_US - 10)
        self.launch(at, at + 10, 100.0)
        self.wait(FORWARD, at + 20, 200.0 + number, "aten::is_nonzero")
        self.wait(ODD, at + 300, 20.0)
        self.launch(at + 500, at + 510, 100.0)

    def write(self, path: Path, **others: Any) -> Path:
        text = json.dumps({"schemaVersion": 1, **others, "traceEvents": self.events})
        data = text.encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return path


@pytest.fixture
def traced(write: Write) -> Path:
    """A project, and a trace of it in another folder."""
    folder = write({"pyproject.toml": "[tool.dispatchguard]\n", "net.py": NET})
    Recorded().write(folder / "trace.json.gz")
    return folder


def test_waits_are_told_with_their_findings(traced: Path, run: Run) -> None:
    done = run("trace", "trace.json.gz", "--no-cache", cwd=traced)
    assert (done.status, done.err) == (0, "")
    verdict, _, rest = done.out.partition("\n")
    assert verdict.startswith("trace.json.gz: the device is idle 80% of a step: ")
    assert "22% behind waits at 2 places (20% at net.py:6 in forward)" in verdict
    known, unknown = rest.index("that the linter knows"), rest.index("does not know")
    assert known < rest.index("net.py:6 in forward") < rest.index("DG401") < unknown
    assert unknown < rest.index("in odd (net.py:15)") < rest.index("Overhead by place")


def test_the_same_without_the_linter(traced: Path, run: Run) -> None:
    done = run("trace", "trace.json.gz", "--no-lint", cwd=traced)
    assert done.status == 0 and "DG401" not in done.out and "linter" not in done.out
    assert "in forward (/workspace/src/net.py:5)" in done.out


def test_the_project_may_be_elsewhere(traced: Path, run: Run, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    words = ("trace", "../trace.json.gz", "--no-cache")
    assert "../net.py:6 in forward" in run(*words, "--project", "..", cwd=other).out
    (other / "pyproject.toml").write_text("[tool.dispatchguard]\n")
    assert "--map FROM=TO" in run(*words, cwd=other).out
    assert "there is no such folder" in one_line(run(*words, "--project", "gone", cwd=other))


def test_moved_files_are_found(traced: Path, run: Run) -> None:
    (traced / "lib").mkdir()
    (traced / "net.py").rename(traced / "lib" / "model.py")
    recorded = Recorded()
    recorded.write(traced / "trace.json")
    words = ("trace", "trace.json", "--no-cache")
    assert "DG401" not in run(*words, cwd=traced).out
    found = run(*words, "--map", "/workspace/src/net.py=lib/model.py", cwd=traced).out
    assert "lib/model.py:6 in forward" in found and "DG401" in found


def test_json_is_as_promised(traced: Path, run: Run, root: Path) -> None:
    schema = json.loads((root / "tests/schemas/dispatchguard-traces.json").read_text())
    words = ("trace", "trace.json.gz", "--no-cache", "--format", "json")
    found = json.loads(run(*words, cwd=traced).out)
    jsonschema.Draft202012Validator(schema).validate(found)
    (trace,) = found["traces"]
    assert [wait["times"] for wait in trace["waits"]] == [4, 4]
    assert [wait["unknown"] for wait in trace["waits"]] == [False, True]
    assert trace["joined"][0]["findings"][0]["code"] == "DG401"
    assert len(trace["steps"]) == 4 and trace["host_bound"]


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_other_formats(traced: Path, run: Run, form: str) -> None:
    words = ("trace", "trace.json.gz", "--no-cache", "--format", form, "--output", "report")
    done = run(*words, cwd=traced)
    assert (done.status, done.out, done.err) == (0, "", "")
    text = (traced / "report").read_text(encoding="utf-8")
    assert "DG401" in text and "the device is idle" in text.lower()


def names_and_spans(path: Path) -> dict[str, list[Mapping[str, Any]]]:
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    events: Sequence[Mapping[str, Any]] = json.loads(text)["traceEvents"]
    found: dict[str, list[Mapping[str, Any]]] = {}
    for event in events:
        if event.get("cat") == "dispatchguard" and event["ph"] == "b":
            found.setdefault(event["name"], []).append(event)
    return found


@pytest.mark.parametrize("name", ["marked.json", "marked.json.gz"])
def test_a_trace_with_marks(traced: Path, run: Run, name: str) -> None:
    words = ("trace", "trace.json.gz", "--no-cache", "--format", "perfetto", "--output", name)
    done = run(*words, cwd=traced)
    assert (done.status, done.out, done.err) == (0, "", "")
    made = names_and_spans(traced / name)
    waits = made["wait: net.py:6 in forward"]
    assert [event["ts"] for event in waits] == [5e9 + 20 + n * STEP_US for n in range(4)]
    assert waits[0]["args"]["code"] == "DG401" and waits[0]["args"]["message"]
    assert len(made["wait: in odd (net.py:15)"]) == 4
    assert len(made["device 0 idle: the host had waited"]) >= 4
    # What it tells is what the first told: marks are passed over.
    first, again = (
        json.loads(run("trace", file, "--no-lint", "--format", "json", cwd=traced).out)["traces"][0]
        for file in ("trace.json.gz", name)
    )
    assert again.pop("events") > first.pop("events")
    assert {**first, "path": ""} == {**again, "path": ""}
    before = (traced / name).read_bytes()
    run(*words, cwd=traced)
    assert (traced / name).read_bytes() == before
    assert not list(traced.glob("*.tmp"))


def test_marks_need_one_file_and_a_place(traced: Path, run: Run) -> None:
    words = ("trace", "trace.json.gz", "--format", "perfetto")
    assert "--output FILE" in one_line(run(*words, cwd=traced))
    words = ("trace", "trace.json.gz", "trace.json.gz", "--format", "perfetto")
    assert "one FILE" in one_line(run(*words, "--output", "x.json", cwd=traced))


def test_a_cut_off_trace_is_told_as_far_as_it_goes(traced: Path, run: Run) -> None:
    path = Recorded().write(traced / "cut.json")
    path.write_bytes(path.read_bytes()[:-1500])
    done = run("trace", "cut.json", "--no-cache", cwd=traced)
    assert done.status == 2
    assert "the file is damaged: it is cut off after" in done.out and "net.py:6" in done.out
    assert "cut.json: the trace is damaged: it is cut off after" in done.err
    words = ("trace", "cut.json", "--no-cache", "--format", "perfetto", "--output", "whole.json")
    assert run(*words, cwd=traced).status == 2
    assert names_and_spans(traced / "whole.json")["wait: net.py:6 in forward"]


def grown(folder: Path) -> None:
    """The same, with one wait more in each step."""
    recorded = Recorded()
    for n in range(4):
        recorded.wait("net.py(11): scale", n * STEP_US + 700, 50.0 + n)
    recorded.write(folder / "after.json")


def test_two_files_are_compared(traced: Path, run: Run) -> None:
    grown(traced)
    words = ("trace", "--no-cache", "--format", "json")
    worse = run(*words, "trace.json.gz", "after.json", cwd=traced)
    assert worse.status == 1
    comparison = json.loads(worse.out)["comparison"]
    first = comparison["waits"][0]
    assert (first["what"], first["sure"], first["place"]["function"]) == ("came", True, "scale")
    better = run(*words, "after.json", "trace.json.gz", cwd=traced)
    assert better.status == 0 and not json.loads(better.out)["comparison"]["worse"]
    text = run("trace", "trace.json.gz", "after.json", "--no-cache", cwd=traced).out
    assert text.startswith("trace.json.gz → after.json: 1 wait came, ")
    same = run("trace", "trace.json.gz", "trace.json.gz", "--no-lint", cwd=traced)
    assert same.status == 0 and "no sure difference in waits" in same.out


def test_ranks_are_told_together(traced: Path, run: Run) -> None:
    for rank in range(3):
        Recorded().write(traced / f"r{rank}.json", distributedInfo={"rank": rank})
    words = ("trace", "--no-cache", "--format", "json")

    def compares(*files: str) -> bool:
        return json.loads(run(*words, *files, cwd=traced).out)["comparison"] is not None

    assert not compares("r0.json", "r1.json")
    assert compares("r0.json", "r1.json", "--compare")
    assert not compares("r0.json", "r0.json", "--no-compare")
    assert compares("r0.json", "r0.json")
    assert not compares("r0.json", "r1.json", "r2.json")
    done = run("trace", "r0.json", "r1.json", "r2.json", "--compare", cwd=traced)
    assert "--compare takes two files, not 3" in one_line(done)
    text = run("trace", "r0.json", "r1.json", "r2.json", "--no-cache", cwd=traced).out
    assert text.startswith("3 traces: devices are idle 80% of a step") and "2  1.00" not in text
    assert text.count("net.py:6 in forward") == 1


def test_fewer_places(traced: Path, run: Run) -> None:
    done = run("trace", "trace.json.gz", "--no-lint", "--top", "1", cwd=traced)
    assert "in forward" in done.out and "… and 1 place more: --top shows more" in done.out
    assert "is not a positive whole number" in one_line(run("trace", "x", "--top", "0", cwd=traced))


def test_what_ran_is_recorded(traced: Path, run: Run) -> None:
    done = run("trace", "trace.json.gz", "--record", "--no-cache", cwd=traced)
    assert done.status == 0 and "profile.json now has" in done.err
    assert (traced / ".dispatchguard" / "profile.json").exists()
    words = ("trace", "trace.json.gz", "--record", "--no-lint")
    assert "--record goes without --no-lint" in one_line(run(*words, cwd=traced))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gone.json",), "gone.json: the trace cannot be read: No such file"),
        (("net.py",), "net.py is no profiler trace (it is no JSON); write one with"),
        (("trace.json.gz", "--map", "somewhere"), "'somewhere' is not FROM=TO, such as"),
        (("trace.json.gz", "--format", "jsn"), "'jsn' is not a valid choice"),
    ],
)
def test_mistakes_are_one_line(traced: Path, run: Run, words: tuple[str, ...], said: str) -> None:
    assert said in one_line(run("trace", *words, cwd=traced))


ODD_NAMES = "a\x1b[2J\n::error::\u202e`x`<img src=x onerror=alert(1)>"


def test_odd_names_and_numbers_steer_nothing(traced: Path, run: Run) -> None:
    recorded = Recorded(folder=f"/{ODD_NAMES}/")
    for event in recorded.events:
        event["name"] = event["name"].replace("aten::item", ODD_NAMES)
    recorded.events += [
        {"ph": "X", "cat": "kernel", "name": ODD_NAMES, "ts": "x", "dur": float("nan")},
        {"ph": "X", "cat": "cuda_runtime", "name": ODD_NAMES, "ts": 1e400, "dur": -5},
        {"ph": ODD_NAMES, "cat": {"a": ODD_NAMES}, "name": 7},
    ]
    recorded.write(traced / "odd.json", deviceProperties=[{"id": 0, "name": ODD_NAMES}])
    for form in ("text", "json", "markdown", "html"):
        done = run("trace", "odd.json", "--no-lint", "--format", form, cwd=traced)
        assert (done.status, done.err) == (0, "")
        assert not set(done.out) & set("\x1b\u202e")
        if form == "html":
            assert "<img" not in done.out
        else:
            assert "\n::error" not in done.out
    words = ("trace", "odd.json", "--no-lint", "--format", "perfetto", "--output", "odd2.json")
    assert run(*words, cwd=traced).status == 0
    assert names_and_spans(traced / "odd2.json")
    assert "NaN" not in (traced / "odd2.json").read_text()


PLANTED = """\
import inspect
import os
import torch
from torch.profiler import ProfilerActivity, profile, schedule


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if os.environ.get("GATE"):
            x = x.abs()
        return self.scaled(self.linear(x))

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        names = inspect.signature(self.linear.forward).parameters
        return x * len(names)


if __name__ == "__main__":
    model = Model()
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=3),
        on_trace_ready=lambda prof: prof.export_chrome_trace("cpu.json.gz"),
        with_stack=True,
    ) as prof:
        for _ in range(6):
            model(torch.randn(4, 8)).sum().backward()
            prof.step()
"""


@pytest.mark.slow
def test_a_real_trace_shows_planted_patterns_beside_their_costs(write: Write, run: Run) -> None:
    pytest.importorskip("torch", reason="its profiler writes the trace")
    folder = write({"pyproject.toml": "[tool.dispatchguard]\n", "planted.py": PLANTED})
    done = subprocess.run(
        [sys.executable, "planted.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    planted = {"forward": (13, "DG603"), "scaled": (18, "DG601")}
    words = ("trace", "cpu.json.gz", "--no-cache")
    (trace,) = json.loads(run(*words, "--format", "json", cwd=folder).out)["traces"]
    assert len(trace["steps"]) == 3 and trace["stacks"] and not trace["waits"]
    joined = {one["place"]["function"]: one["findings"] for one in trace["joined"]}
    for function, (line, code) in planted.items():
        assert [(one["line"], one["code"]) for one in joined[function]] == [(line, code)]
    text = run(*words, cwd=folder).out
    page = run(*words, "--format", "html", cwd=folder).out
    for function, (line, code) in planted.items():
        (place,) = [n for n, row in enumerate(text.splitlines()) if f"in {function} (pl" in row]
        assert f"planted.py:{line} {code} " in text.splitlines()[place + 1]
        row = page[page.index(f"in {function} (planted.py:") :].partition("</tr>")[0]
        assert f"{code}</a> line {line}: " in row
