"""`--overhead-trace` in real pytest runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import jsonschema
import pytest

from ..traced.written import DEVICE, Call, trace

MODEL = """\
import torch


class Gate(torch.nn.Module):
    def forward(self, x):
        if (x > 100).any():
            x = x.clamp(max=100)
        return x
"""
FORWARD = "model.py(5): forward"
LIMITS = "[tool.dispatchguard.trace]\n"


@pytest.fixture
def traced(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project of which a trace waits twice a step, and is idle for most of it."""
    pytester.makefile(".py", model=MODEL)
    trace(pytester.path / "trace.json", [Call(FORWARD, ["aten::is_nonzero", "mylib::nms"])])
    return pytester


def checked(
    pytester: pytest.Pytester, limits: str = "", more: Sequence[str] = (), named: str = "trace.json"
) -> pytest.RunResult:
    pytester.makepyprojecttoml(LIMITS + limits if limits else "[tool.dispatchguard]\n")
    return pytester.runpytest_subprocess("--overhead-trace", named, *more)


def test_a_trace_beyond_its_limits_fails_the_run(traced: pytest.Pytester) -> None:
    result = checked(traced, "waits_per_step = 1\nidle_share = 0.1\n")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "*= traces =*",
            "trace.json: 2 waits for the device a step, more than waits_per_step = 1 allows",
            "trace.json: the device is idle for *% of the time, more than idle_share = 0.1 allows: *",
            "  model.py:6 in forward: cudaStreamSynchronize in aten::is_nonzero, 1 wait a step, 100 µs",
            "    model.py:6 DG401 *makes the host wait until the device has the answer*",
            "  in forward (model.py:5): cudaStreamSynchronize in mylib::nms, 1 wait a step, 100 µs",
        ],
        consecutive=True,
    )


def test_a_trace_within_its_limits_passes_without_any_test(traced: pytest.Pytester) -> None:
    result = checked(traced, "waits_per_step = 2\nidle_share = 1\n")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["trace.json: 2 waits for the device a step, *: within limits"])


def test_tests_count_beside_traces(traced: pytest.Pytester) -> None:
    traced.makepyfile(test_one="def test_one(): pass\n")
    assert checked(traced, "waits_per_step = 2\n").ret == pytest.ExitCode.OK
    assert checked(traced, "waits_per_step = 1\n").ret == pytest.ExitCode.TESTS_FAILED
    traced.makepyfile(test_one="def test_one(): assert 0\n")
    assert checked(traced, "waits_per_step = 2\n").ret == pytest.ExitCode.TESTS_FAILED


def test_tests_may_write_the_trace(pytester: pytest.Pytester) -> None:
    text = trace(pytester.path / "made.json", [Call(FORWARD, ["aten::item"])]).read_text()
    (pytester.path / "made.json").unlink()
    pytester.makepyfile(
        f"from pathlib import Path\ndef test_one(): Path('made.json').write_text({text!r})"
    )
    result = checked(pytester, "waits_per_step = 0\n", named="made.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["made.json: 1 wait for the device a step, more than *"])


def test_without_limits_it_says_how_to_set_them(traced: pytest.Pytester) -> None:
    result = checked(traced)
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(
        [
            "trace.json: 2 waits for the device a step, the device is idle for *; no limits are set",
            "*[[]tool.dispatchguard.trace], waits_per_step and idle_share",
        ]
    )


def test_wrong_limits_are_told_before_any_test(traced: pytest.Pytester) -> None:
    result = checked(traced, "idle_share = 10\n")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if line]
    where = "pyproject.toml: [tool.dispatchguard] trace"
    assert line == f"ERROR: {where}: idle_share must be a share from 0 to 1"


def test_a_trace_that_cannot_be_checked_is_a_usage_error(traced: pytest.Pytester) -> None:
    whole = (traced.path / "trace.json").read_text()
    (traced.path / "cut.json").write_text(whole[: len(whole) // 2])
    (traced.path / "none.json").write_text("{}")
    trace(traced.path / "cpu.json", [Call(FORWARD)], kernels=False)
    for name, said in (
        ("cut.json", "cut.json: the trace is damaged: "),
        ("none.json", "none.json is no profiler trace"),
        ("gone.json", "gone.json: the trace cannot be read: "),
        ("cpu.json", "cpu.json: the trace has no work of a device: record it with "),
    ):
        result = checked(traced, "waits_per_step = 9\n", named=name)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        lines = [line for line in result.outlines if line.startswith("ERROR: ")]
        assert len(lines) == 1 and said in lines[0]


def test_figures_are_written_beside_verdicts(traced: pytest.Pytester) -> None:
    result = checked(traced, "waits_per_step = 1\n", ["--overhead-json", "told.json"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    found = json.loads((traced.path / "told.json").read_text())
    schemas = Path(__file__).resolve().parents[1] / "schemas"
    jsonschema.validate(found, json.loads((schemas / "dispatchguard-verdicts.json").read_text()))
    (one,) = found["traces"]
    waits = one.pop("waits")
    assert 0 < one.pop("idle_share") < 1
    assert one == {
        "path": "trace.json",
        "device": DEVICE,
        "steps": 4,
        "waits_per_step": 2.0,
        "limits": {"waits_per_step": 1},
        "exceeded": ["waits_per_step"],
    }
    assert waits[0]["operator"] == "aten::is_nonzero"
    assert waits[0]["findings"] == [{"code": "DG401", "line": 6}]
    assert waits[1]["findings"] == []
    merged = traced.run(sys.executable, "-m", "pytest_dispatchguard", "merge", "told.json")
    assert (
        json.loads(merged.stdout.str())["traces"]
        == json.loads((traced.path / "told.json").read_text())["traces"]
    )


def test_a_json_file_still_needs_something_to_write(traced: pytest.Pytester) -> None:
    result = traced.runpytest_subprocess("--overhead-json", "told.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_several_traces_and_the_setting_of_pytest(traced: pytest.Pytester) -> None:
    trace(traced.path / "second.json", [Call(FORWARD, [])])
    traced.makepyprojecttoml(
        f"{LIMITS}waits_per_step = 1\n\n[tool.pytest.ini_options]\n"
        'overhead_trace = ["trace.json", "second.json"]\n'
    )
    result = traced.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["trace.json: 2 waits*", "second.json: 0 waits*: within limits"])


@pytest.mark.skipif(find_spec("xdist") is None, reason="pytest-xdist is not installed")
def test_one_process_of_several_checks(traced: pytest.Pytester) -> None:
    traced.makepyfile(test_one="def test_one(): pass\n")
    result = checked(traced, "waits_per_step = 1\n", ["-n", "2", "-p", "xdist"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert sum("more than waits_per_step" in line for line in result.outlines) == 1


@pytest.mark.fresh_python
def test_torch_is_not_needed(traced: pytest.Pytester) -> None:
    """Nor is it imported where it is installed."""
    traced.makeconftest(
        "import sys\n\nclass No:\n    def find_spec(self, name, *_):\n"
        "        if name.partition('.')[0] == 'torch':\n            raise ImportError(name)\n\n"
        "sys.meta_path.insert(0, No())\n"
        "def pytest_unconfigure():\n    assert 'torch' not in sys.modules\n"
    )
    traced.makepyprojecttoml(f"{LIMITS}waits_per_step = 2\n")
    given = ("--overhead-trace", "trace.json", "--overhead-json", "told.json")
    result = traced.runpytest_subprocess(*given)
    assert result.ret == pytest.ExitCode.OK
