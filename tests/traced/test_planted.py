"""A small project that is traced here: each line that waits is found in the trace and by the linter, and
both are shown together."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from .planting import READS, plant, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
]

MODEL = """\
import torch
from torch import nn


class Clamped(nn.Module):
    def forward(self, x):
        if (x > 100).any():  # waits: DG401
            x = x.clamp(max=100)
        return x


class Kept(nn.Module):
    def forward(self, x: torch.Tensor):
        return x[x > 0].sum()  # waits: DG422


class Found(nn.Module):
    @torch.no_grad()
    def forward(self, x):
        return torch.nonzero(x)  # waits: DG421


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.clamped, self.kept, self.found = Clamped(), Kept(), Found()

    def forward(self, x):
        x = self.clamped(torch.relu(self.linear(x)))
        self.found(x)
        return x.mean() + self.kept(x)


def scaled(x: torch.Tensor, by: torch.Tensor):
    return x * float(by)  # waits: DG412


def size_of(x: torch.Tensor):
    return x.numel()
"""
TRAIN = """\
import sys

import torch
from model import Net, scaled, size_of
from torch.profiler import ProfilerActivity, profile, schedule


def train(model, optimizer, batches, prof):
    total = 0.0
    for batch in batches:
        loss = model(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scaled(batch, loss)
        size_of(batch)
        total += loss.item()  # waits: DG411
        prof.step()
    return total


def main(path):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=3),
        on_trace_ready=lambda prof: prof.export_chrome_trace(path),
        with_stack=True,
    ) as prof:
        train(model, optimizer, [torch.randn(4, 8) for _ in range(6)], prof)


if __name__ == "__main__":
    main(sys.argv[1])
"""
FILES = {"model.py": MODEL, "train.py": TRAIN}


def planted_lines() -> list[tuple[str, int, str]]:
    """File, line and code of each line that says that it waits."""
    return [
        (name, number, found[1])
        for name, text in FILES.items()
        for number, line in enumerate(text.splitlines(), 1)
        if (found := re.search(r"# waits: (DG\d+)", line))
    ]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traced")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "pyproject.toml").write_text("[tool.dispatchguard]\n", encoding="utf-8")
    run(folder, "train.py", "trace.json")
    plant(folder / "trace.json", READS)
    return folder


def said(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest_dispatchguard", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def test_each_planted_line_is_found_in_both(project: Path) -> None:
    (trace,) = json.loads(said(project, "trace", "trace.json", "--format", "json"))["traces"]
    joined = {
        (finding["path"], finding["line"], finding["code"])
        for place in trace["joined"]
        if place["us_per_step"]
        for finding in place["findings"]
    }
    assert set(planted_lines()) <= joined
    assert {(path, code) for path, _, code in joined} == {(p, c) for p, _, c in planted_lines()}
    assert len(trace["steps"]) == 3 and trace["marked"] and trace["stacks"]


def test_both_are_shown_together_in_text(project: Path) -> None:
    text = said(project, "trace", "trace.json")
    known = text.partition("Waits that the linter knows")[2].partition("\n\n")[0]
    for path, line, code in planted_lines():
        assert re.search(rf"{re.escape(path)}:{line} in \w+\n", known), known
        assert f"{path}:{line} {code}" in known


def test_both_are_shown_together_in_the_page(project: Path) -> None:
    page = said(project, "trace", "trace.json", "--format", "html")
    rows = [html.unescape(row) for row in re.findall(r"<tr>.*?</tr>", page, re.DOTALL)]
    for path, line, code in planted_lines():
        assert any(f"{path}:{line}" in row and code in row for row in rows), (path, line, code)


def test_findings_are_priced_by_the_trace(project: Path) -> None:
    report = json.loads(said(project, "check", "--trace", "trace.json", "--format", "json"))
    found = {(f["path"], f["line"], f["code"]): f["traced"] for f in report["findings"]}
    for place in planted_lines():
        assert found[place]["us"] > 0 and found[place]["times"] == 1, place
        assert found[place]["shared"] == 1


def test_what_ran_is_recorded(project: Path) -> None:
    said(project, "trace", "trace.json", "--record")
    hot = said(project, "hot")
    path = project / ".dispatchguard" / "profile.json"
    files = json.loads(path.read_text(encoding="utf-8"))["files"]
    path.unlink()
    assert files["model.py"]["Net.forward"]["per_step"] == 1
    assert files["model.py"]["Net.forward"]["callees"]["model.py"].keys() == {
        "Clamped.forward",
        "Kept.forward",
        "Found.forward",
    }
    assert files["train.py"]["train"]["loops"]
    assert "size_of" in hot
