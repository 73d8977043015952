"""`dispatchguard check --trace`: costs and hot functions from a trace."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ..traced.written import DEVICE, Call, trace
from .conftest import Run, Write

MODEL = """\
import torch


class Gate(torch.nn.Module):
    def forward(self, x):
        if (x > 100).any():
            x = x.clamp(max=100)
        a = x.sum().item()
        x = x * a
        b = x.mean().item()
        return x + b


def measure(x: torch.Tensor):
    return float(x)
"""
FORWARD, MEASURE = "model.py(5): forward", "model.py(14): measure"


@pytest.fixture
def project(write: Write) -> Path:
    return write({"pyproject.toml": "[tool.dispatchguard]\n", "model.py": MODEL})


@pytest.fixture
def recorded(project: Path) -> Path:
    calls = [
        Call(FORWARD, ["aten::is_nonzero", "aten::item", "aten::item"]),
        Call(MEASURE, ["aten::item"], times=4),
    ]
    return trace(project / "trace.json", calls)


def test_findings_are_ranked_and_priced_by_what_they_took(
    project: Path, recorded: Path, run: Run
) -> None:
    done = run("check", "--no-cache", "--trace", "trace.json", "--pedantic")
    assert done.status == 1
    places = re.findall(r"^model\.py:(\d+):\d+ (DG\d+)", done.out, re.MULTILINE)
    assert places == [("8", "DG411"), ("10", "DG411"), ("6", "DG401")]
    assert f"200 µs a step, measured on {DEVICE} (2 waits" in done.out
    assert "by any of 2 findings in this function, which the trace does not tell apart" in done.out
    assert "model.py measure  called 4 times a step of a trace" in done.out
    assert "15:12 DG412 400 µs a step: `float(x)` reads" in done.out


def test_the_same_in_json(project: Path, recorded: Path, run: Run) -> None:
    done = run("check", "--no-cache", "--trace", recorded, "--format", "json")
    found = {(f["line"], f["code"]): f["traced"] for f in done.findings}
    assert found[15, "DG412"] == {
        "us": 400.0,
        "times": 4.0,
        "idle_us": pytest.approx(found[15, "DG412"]["idle_us"]),
        "device": DEVICE,
        "steps": 4,
        "shared": 1,
    }
    assert 0 < found[15, "DG412"]["idle_us"] <= 400
    assert found[8, "DG411"] == found[10, "DG411"]
    assert found[8, "DG411"]["shared"] == 2
    assert [f["line"] for f in done.findings] == sorted(f["line"] for f in done.findings)


@pytest.mark.parametrize("form", ["sarif", "markdown", "html", "github", "gitlab", "rdjson"])
def test_every_format_tells_what_was_measured(
    project: Path, recorded: Path, run: Run, form: str
) -> None:
    done = run("check", "--no-cache", "--trace", recorded, "--format", form)
    assert "400 µs a step" in (
        done.out if form not in ("sarif", "gitlab", "rdjson") else unescaped(done.out)
    )
    if form == "sarif":
        results = json.loads(done.out)["runs"][0]["results"]
        assert {r["properties"]["traced"]["us"] for r in results} == {100.0, 200.0, 400.0}


def unescaped(text: str) -> str:
    return json.dumps(json.loads(text), ensure_ascii=False)


def test_a_measured_note_says_so_in_its_line(write: Write, run: Run) -> None:
    library = "import torch\n\n\ndef read(x: torch.Tensor):\n    return x.item()\n"
    folder = write({"pyproject.toml": "[tool.dispatchguard]\n", "model.py": library})
    trace(folder / "trace.json", [Call("model.py(4): read", ["aten::item"])])
    done = run("check", "--no-cache", "--trace", "trace.json")
    assert re.search(r"100 µs a step", done.out)


def test_without_a_trace_nothing_is_measured(project: Path, recorded: Path, run: Run) -> None:
    plain = run("check", "--format", "json")
    assert all(finding["traced"] is None for finding in plain.findings)
    assert {f["code"] for f in plain.findings} == {"DG401", "DG411", "DG417"} - {"DG417"}, (
        "`measure` is not hot"
    )
    run("check", "--trace", recorded)
    assert run("check", "--format", "json").out == plain.out


def test_cheap_findings_are_told_by_what_they_took(project: Path, recorded: Path, run: Run) -> None:
    done = run("check", "--trace", recorded, "--min-cost", "300us", "--format", "json")
    assert [finding["code"] for finding in done.findings] == ["DG412"]


def test_of_several_traces_the_longest_wait_counts(project: Path, recorded: Path, run: Run) -> None:
    trace(project / "second.json", [Call(FORWARD, ["aten::is_nonzero"], times=3)])
    done = run("check", "--trace", recorded, "--trace", "second.json", "--format", "json")
    assert {f["code"]: f["traced"]["us"] for f in done.findings}["DG401"] == 300
    assert {f["code"]: f["traced"]["us"] for f in done.findings}["DG412"] == 400


def test_without_steps_figures_are_those_of_the_trace(project: Path, run: Run) -> None:
    path = trace(project / "trace.json", [Call(FORWARD, ["aten::is_nonzero"])], steps=1)
    text = path.read_text().replace("ProfilerStep#0", "everything")
    path.write_text(text)
    done = run("check", "--trace", path)
    assert f"100 µs in the trace, measured on {DEVICE}" in done.out


def test_files_of_the_trace_may_be_elsewhere(project: Path, run: Run) -> None:
    (project / "other").mkdir()
    (project / "other" / "model.py").write_text("")
    trace(project / "trace.json", [Call("/w/a/b.py(14): measure", ["aten::item"])])
    given = ("check", "--trace", "trace.json", "--format", "json")
    assert "DG412" not in {f["code"] for f in run(*given).findings}
    assert "DG412" in {f["code"] for f in run(*given, "--map", "/w/a/b.py=model.py").findings}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--trace", "nothing.json"), "nothing.json: the trace cannot be read"),
        (("--trace", "model.py"), "model.py is no profiler trace"),
        (("--map", "a=b"), "--map requires --trace"),
        (("--trace", "model.py", "--map", "a"), "'a' is not FROM=TO"),
    ],
)
def test_mistakes_are_told_in_a_line(
    project: Path, run: Run, words: tuple[str, ...], said: str
) -> None:
    done = run("check", *words)
    assert done.status == 2
    assert said in done.err
    assert done.out == ""
