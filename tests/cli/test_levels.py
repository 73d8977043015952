"""Findings, notes and maybes: what is told, where, and what fails a run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Run, Write

DEMO = Path(__file__).parents[2] / "fixtures" / "demo"
BEFORE_LEVELS = Path(__file__).with_name("baseline_before_levels.json")
"""Of the demo, made by the last revision that had two levels of certainty."""
NOTE = (
    "import torch\n\nclass M(torch.nn.Module):\n"
    "    def forward(self, x: torch.Tensor):\n        return x.sum().item()\n"
)
MANY = "import torch\n\nclass M(torch.nn.Module):\n" + "".join(
    f"    def forward_{n}(self, x: torch.Tensor):\n        return x[{n}].sum().item()\n\n" for n in range(23)
) + "    def forward(self, x):\n" + "".join(f"        self.forward_{n}(x)\n" for n in range(23))  # fmt: skip


def test_a_note_is_told_in_one_line_and_fails_nothing(write: Write, run: Run) -> None:
    write({"a.py": NOTE})
    done = run("check")
    assert done.status == 0
    assert "Notes: " in done.out
    assert "\n    5:16 DG411 `x.sum().item()` makes the host wait" in done.out
    assert "1 note in 1 file" in done.out
    assert run("check", "--strict").status == 1
    assert run("check", "--no-notes", "--strict").status == 0


FIXABLE = (
    "import torch\nimport torch.nn as nn\n\n\ndef scaled(x: torch.Tensor):\n"
    "    return x * torch.ones(3).to(x.device)\n\n\ndef drawn(x: torch.Tensor):\n"
    "    return x * torch.rand(3).to(x.device)\n"
)


def test_a_note_says_whether_its_fix_is_safe(write: Write, run: Run) -> None:
    write({"lib/__init__.py": "", "lib/a.py": FIXABLE, "setup.py": ""})
    told = run("check").out
    assert "6:16 DG504[*] " in told and "10:16 DG504[unsafe fix] " in told


def test_nothing_is_cut_where_no_terminal_shows_it(
    write: Write, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write({"a.py": NOTE})
    message = run("check", "--format", "json").findings[0]["message"]
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(sys, "__stdout__", None)
    assert message in run("check").out
    monkeypatch.setenv("COLUMNS", "80")
    assert message not in run("check").out


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("r.json", "{"),
        ("r.sarif", "{"),
        ("r.md", "###"),
        ("r.html", "<!doctype html>"),
        ("r", "Notes"),
    ],
)
def test_the_name_of_a_file_says_its_format(write: Write, run: Run, name: str, begins: str) -> None:
    root = write({"a.py": NOTE})
    assert run("check", "--output", name).status == 0
    assert (root / name).read_text().lower().startswith(begins.lower())
    run("check", "--output", name, "--format", "github")
    assert (root / name).read_text().startswith("::")


def test_where_nothing_is_checked_it_says_so(write: Write, run: Run) -> None:
    write({"a.py": NOTE, "pyproject.toml": '[tool.dispatchguard]\nexclude = ["a.py"]\n'})
    done = run("check", "a.py")
    assert (done.status, done.out) == (0, "No files were checked.\n")


def test_the_configuration_has_its_say(write: Write, run: Run) -> None:
    write({"a.py": NOTE, "pyproject.toml": "[tool.dispatchguard]\nstrict = true\n"})
    assert run("check").status == 1
    write({"pyproject.toml": "[tool.dispatchguard]\nnotes = false\n"})
    quiet = run("check")
    assert (quiet.status, "Notes: " in quiet.out) == (0, False)
    assert "1 note (see --notes)" in quiet.out
    assert "Notes: " in run("check", "--notes").out


def test_the_dearest_are_told_and_how_to_see_all(write: Write, run: Run) -> None:
    write({"a.py": MANY})
    few, all_ = run("check"), run("check", "--notes")
    assert few.out.count(" DG411 ") == 20
    assert "and 3 more notes: --notes shows all, --no-notes none" in few.out
    assert all_.out.count(" DG411 ") == 23
    assert len(run("check", "--format", "json").findings) == 23


def test_every_format_says_what_is_a_note(write: Write, run: Run) -> None:
    write({"a.py": NOTE})
    (found,) = run("check", "--format", "json").findings
    assert found["certainty"] == "note"
    summary = json.loads(run("check", "--format", "json").out)["summary"]
    assert summary["by_certainty"] == {"sure": 0, "note": 1, "maybe": 0}
    (result,) = json.loads(run("check", "--format", "sarif").out)["runs"][0]["results"]
    assert (result["level"], result["properties"]["certainty"]) == ("note", "note")
    (shown,) = json.loads(run("check", "--format", "rdjson").out)["diagnostics"]
    assert shown["severity"] == "INFO"
    assert run("check", "--format", "github").out.startswith("::notice ")
    assert json.loads(run("check", "--format", "gitlab").out)[0]["severity"] == "info"
    assert "<details><summary>1 note: " in run("check", "--format", "markdown").out
    assert "1 note" in run("check", "--statistics").out


def test_a_change_tells_all_its_notes(write: Write, run: Run) -> None:
    root = write({"a.py": "x = 1\n"})
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-qm", "one")
    write({"a.py": MANY})
    git(root, "commit", "-qam", "two")
    done = run("check", "--diff-base", "HEAD~1")
    assert done.status == 0
    assert done.out.count(" DG411 ") == 23
    review = run("review", "--base", "HEAD~1")
    assert review.status == 0
    assert "23 new notes" in review.out
    assert run("review", "--base", "HEAD~1", "--strict").status == 1


def git(root: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)


def test_a_baseline_takes_in_notes(write: Write, run: Run) -> None:
    root = write({"a.py": NOTE})
    made = run("check", "--baseline", "b.json", "--write-baseline")
    assert "1 note accepted into b.json" in made.out
    assert "DG411" in (root / "b.json").read_text()
    assert "Notes: " not in run("check", "--baseline", "b.json").out


def test_what_only_users_call_is_never_more_than_a_note(write: Write, run: Run) -> None:
    text = "import torch\n\ndef clip(x: torch.Tensor):\n    if x.any():\n        x = x * 2\n    return x\n"
    write({"setup.py": "", "lib/__init__.py": "", "lib/ops.py": text})
    (found,) = run("check", "--format", "json").findings
    assert (found["certainty"], found["hot"]["users"]) == ("note", True)
    assert found["hot"]["reason"] == "called by users of the library"
    write(
        {
            "lib/ops.py": "# dispatchguard: hot\n".join(text.split("\n\n", 1)).replace(
                "torch#", "torch\n\n#"
            )
        }
    )
    assert [f["certainty"] for f in run("check", "--format", "json").findings] == ["sure"]


@pytest.mark.parametrize("format", ["text", "json"])
def test_paths_are_told_from_here_and_from_the_root(write: Write, run: Run, format: str) -> None:
    root = write({"pkg/__init__.py": "", "pkg/a.py": NOTE})
    shown = run("check", ".", "--format", format, cwd=root / "pkg").out
    assert ("pkg/a.py" in shown) is (format == "json")


def test_baselines_of_before_there_were_notes_still_match(tmp_path: Path, run: Run) -> None:
    shutil.copytree(DEMO, tmp_path, dirs_exist_ok=True)
    shutil.copy(BEFORE_LEVELS, tmp_path / "baseline.json")
    accepted = sum(entry["count"] for entry in json.loads(BEFORE_LEVELS.read_text())["entries"])
    done = run("check", "--pedantic", "--format", "json", "--baseline", "baseline.json")
    summary = json.loads(done.out)["summary"]
    assert (done.status, summary["findings"], summary["baselined"]) == (0, 0, accepted)
    assert "no longer" not in done.err


UNTYPED_MASK = """\
import torch


class Gate(torch.nn.Module):
    def forward(self, x, mask=None):
        if mask is not None and mask.any():
            x = x * mask
        return x
"""
LOOPS = """\
import torch


def evaluate(model, loader, criterion):
    total = 0.0
    for x, y in loader:
        total += criterion(model(x), y).item()
    return total


@torch.no_grad()
def generate(model, ids, length, eos):
    for _ in range(length):
        token = model(ids)[:, -1].argmax(-1)
        if token.item() == eos:
            break
        ids = torch.cat([ids, token[:, None]], 1)
    return ids


def sample(model, prompt, max_new_tokens, eos_id):
    tokens = prompt
    for _ in range(max_new_tokens):
        logits = model(tokens)
        next_token = torch.multinomial(torch.softmax(logits[:, -1], -1), 1)
        tokens = torch.cat((tokens, next_token), dim=1)
        if (next_token == eos_id).all():
            break
    return tokens
"""


@pytest.mark.parametrize(
    ("source", "status", "places"),
    [
        (UNTYPED_MASK, 1, ["a.py:6:33 DG401 `if mask.any()`"]),
        (
            LOOPS,
            1,  # what a loss function gives is a tensor, and the sum can stay on the device
            [
                "a.py:7:18 DG411 `criterion(model(x), y).item()`",
                "15:12 DG411 `token.item()`",
                "27:12 DG401 `if (next_token == eos_id).all()`",
            ],
        ),
    ],
    ids=["a mask without an annotation", "evaluation and generation"],
)
def test_the_waits_of_plain_training_code_are_told(
    write: Write, run: Run, source: str, status: int, places: list[str]
) -> None:
    write({"a.py": source})
    done = run("check")
    assert (done.status, "uncertain" in done.out) == (status, False)
    told = [line.strip() for line in done.out.splitlines() if " DG4" in line]
    assert [line.partition(" makes the host wait")[0] for line in told] == places
    assert run("check", "--strict").status == 1
