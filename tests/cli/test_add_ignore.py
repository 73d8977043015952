"""`check --add-ignore`: comments for what fails the run, whole files, and nothing else changed."""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path

import pytest

from .conftest import A, B, Run, Write, one_line

MANY = """\
import os, inspect
import torch


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = torch.zeros(3).to(x.device) + torch.ones(3).to(x.device)
        b = inspect.signature(x) if os.environ.get("A") else inspect.signature(a)
        if os.environ.get("B") or \\
                os.environ.get("C"):
            return a
        text = f\"\"\"
        {inspect.signature(self)}
        \"\"\"
        return torch.zeros(
            3,
        ).to(x.device)
"""


def test_nothing_is_left_to_tell(project: Path, run: Run) -> None:
    found = run("check", "--format", "json").findings
    done = run("check", "--add-ignore")
    assert (done.status, done.err) == (0, "")
    assert f"comments suppress {len(found)} more findings in 2 files" in done.out
    assert "# dispatchguard: ignore[" in (project / "pkg" / "a.py").read_text()
    again = run("check", "--format", "json")
    assert (again.status, again.findings) == (0, [])
    assert json.loads(again.out)["summary"]["suppressed"] == len(found)
    before = (project / "pkg" / "a.py").read_bytes()
    assert "comments suppress 0 more findings in 0 files" in run("check", "--add-ignore").out
    assert (project / "pkg" / "a.py").read_bytes() == before


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_code_stays_as_it_is(write: Write, run: Run, newline: str) -> None:
    root = write({"m.py": b"\xef\xbb\xbf" + MANY.replace("\n", newline).encode()})
    codes = [f["code"] for f in run("check", "--format", "json").findings]
    assert len(codes) > 6
    assert run("check", "--add-ignore").status == 0
    data = (root / "m.py").read_bytes()
    assert data.startswith(b"\xef\xbb\xbf")
    text = data.decode("utf-8-sig")
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(MANY))
    assert text.count(newline) == text.count("\n")
    assert run("check", "--format", "json").findings == []


def test_only_what_is_asked_for_is_silenced(project: Path, run: Run) -> None:
    done = run("check", "pkg/b.py", "--add-ignore", "--select", "DG6")
    assert done.status == 0
    assert (project / "pkg" / "a.py").read_text() == A
    assert (project / "pkg" / "b.py").read_text() != B


def test_notes_are_silenced_only_where_they_are_asked_for(write: Write, run: Run) -> None:
    note = (
        "import torch\n\n\nclass M(torch.nn.Module):\n"
        "    def forward(self, x: torch.Tensor):\n        return x.sum().item()\n"
    )
    root = write({"a.py": note})
    run("check", "--add-ignore")
    assert (root / "a.py").read_text() == note
    run("check", "--add-ignore", "--notes")
    assert "ignore[DG411]" in (root / "a.py").read_text()


def test_a_file_that_does_not_parse_is_left_alone(project: Path, run: Run) -> None:
    (project / "pkg" / "c.py").write_text("def f(:\n")
    done = run("check", "--add-ignore", "--format", "json")
    assert done.status == 1
    assert [f["code"] for f in done.findings] == ["DG001"]
    assert (project / "pkg" / "c.py").read_text() == "def f(:\n"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write all")
def test_a_file_that_cannot_be_written_is_told(project: Path, run: Run) -> None:
    (project / "pkg" / "a.py").chmod(0o444)
    done = run("check", "--add-ignore")
    assert done.status == 2
    assert "a.py: cannot be written" in done.err
    assert "DG603" in done.out
    assert (project / "pkg" / "a.py").read_text() == A


def test_standard_input_comes_back_with_comments(project: Path, start: Run) -> None:
    words = ("check", "-", "--stdin-filename", "pkg/a.py", "--add-ignore")
    done = start(*words, stdin=A.encode())
    assert done.status == 0
    assert "# dispatchguard: ignore[" in done.out
    assert (project / "pkg" / "a.py").read_text() == A
    assert "comments suppress 2 more findings in 1 file" in done.err


@pytest.mark.parametrize("option", ["--fix", "--diff", "--write-baseline"])
def test_what_does_not_go_with_it(project: Path, run: Run, option: str) -> None:
    assert "--add-ignore cannot be combined" in one_line(run("check", "--add-ignore", option))
