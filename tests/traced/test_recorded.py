"""What ran in traces, in the recorded profile: kept, merged, forgotten, and what it makes hot."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_dispatchguard import cli
from pytest_dispatchguard.profile import Profile, Seen, load, packed

from .written import Call, trace

MODEL = """\
import torch


def measure(x: torch.Tensor):
    return inner(x)


def inner(x: torch.Tensor):
    return x.tolist()


def fit(batches):
    for x in batches:
        x.tolist()


def from_file(x: torch.Tensor):  # dispatchguard: cold
    return x.tolist()
"""
MEASURE, INNER = "model.py(4): measure", "model.py(8): inner"
FIT, COLD = "model.py(12): fit", "model.py(17): from_file"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.dispatchguard]\n")
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def record(project: Path, *calls: Call, around: str = "") -> Profile:
    trace(project / "trace.json", calls, around=around)
    assert cli.main(["trace", "trace.json", "--record", "--output", "told.txt"]) == 0
    profile = load(project / ".dispatchguard" / "profile.json")
    assert profile is not None
    return profile


def hot(capfd: pytest.CaptureFixture[str]) -> str:
    capfd.readouterr()
    assert cli.main(["hot"]) == 0
    return capfd.readouterr().out


def test_steps_are_kept_in_the_file(project: Path) -> None:
    profile = Profile(
        {("a.py", "f"): Seen("0" * 16, 4, per_step=2.0), ("a.py", "g"): Seen("1" * 16)}
    )
    text = packed(profile)
    assert text.count("per_step") == 1 and "loops" not in text, "files of before stay as they were"
    path = project / ".dispatchguard" / "profile.json"
    path.parent.mkdir()
    path.write_text(text)
    assert load(path) == profile


def test_what_ran_in_every_step_is_hot_from_then_on(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert "model" not in hot(capfd)
    known = record(project, Call(MEASURE, times=2))
    assert "model.py" in hot(capfd)
    assert known.functions["model.py", "measure"].per_step == 2
    said = hot(capfd)
    assert "called 2 times a step of a trace" in said
    assert "measure" in said and "inner" in said, "what it calls is hot through it"


def test_runs_are_added_up_and_the_busiest_counts(project: Path) -> None:
    record(project, Call(MEASURE, times=2))
    known = record(project, Call(MEASURE), Call(INNER))
    assert known.functions["model.py", "measure"].calls == 12
    assert known.functions["model.py", "measure"].per_step == 2
    assert known.functions["model.py", "inner"].per_step == 1


def test_functions_that_have_changed_are_forgotten(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    record(project, Call(MEASURE), Call(INNER))
    (project / "model.py").write_text(MODEL.replace("return inner(x)", "return inner(x + 1)"))
    assert "measure" not in hot(capfd)
    known = record(project, Call(INNER))
    assert ("model.py", "measure") not in known.functions
    assert known.functions["model.py", "inner"].calls == 8


def test_of_what_was_called_once_only_the_loops_are_hot(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    known = record(project, Call(INNER), around=FIT)
    assert known.functions["model.py", "fit"].loops
    assert "a loop that ran in every step of a trace" in hot(capfd)


def test_what_is_called_cold_stays_cold(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    record(project, Call(COLD, times=3))
    assert "from_file" not in hot(capfd)
