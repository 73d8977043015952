"""Settings that match nothing are told, where the whole project was read, and change no exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import B, Run, Write


def configured(project: Path, table: str) -> None:
    (project / "pyproject.toml").write_text(f"[tool.dispatchguard]\n{table}\n")


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (
            'hot-roots = ["pkg.b.colt"]',
            'hot-roots: "pkg.b.colt" matches no function; did you mean "pkg.b.cold"?',
        ),
        (
            'hot-roots = ["pgk.b.cold"]',
            'hot-roots: "pgk.b.cold" matches no function; did you mean "pkg.b.cold"?',
        ),
        ('hot-roots = ["pkg.c.*"]', 'hot-roots: "pkg.c.*" matches no function'),
        (
            'cold = ["@memo"]\n',
            'cold: "@memo" matches no function; did you mean "@memoed"?',
        ),
        (
            'tensor-types = ["pkg.a.Gat"]',
            'tensor-types: "pkg.a.Gat" is not a class; did you mean "pkg.a.Gate"?',
        ),
        (
            'tensor-types = ["Gate"]',
            'tensor-types: "Gate" is not a class; did you mean "pkg.a.Gate"?',
        ),
        ('src = ["lib"]', 'src: "lib" is not a directory in the project'),
    ],
)
def test_what_matches_nothing_is_told(project: Path, run: Run, table: str, told: str) -> None:
    (project / "pkg" / "memo.py").write_text("from x import memoed\n@memoed\ndef f(): pass\n")
    plain = run("check", "--format", "json")
    configured(project, table)
    for _ in range(2):  # the second answer comes from the cache
        done = run("check", "--format", "json")
        assert json.loads(done.out)["summary"]["notes"] == [told]
        assert (done.status, done.findings) == (plain.status, plain.findings)
    assert f"note: {told}" in run("check", "pkg/b.py").out
    hot = run("hot")
    assert (hot.status, hot.err) == (0, f"dispatchguard: note: {told}\n")


@pytest.mark.parametrize(
    "table",
    [
        'hot-roots = ["pkg.b.cold"]',
        'hot-roots = ["pkg.b"]',
        'hot-roots = ["pkg.*"]',
        'hot-roots = ["pkg.a.Gate"]',
        'cold = ["@no_grad"]',
        'tensor-types = ["elsewhere.Tensor", "pkg.native.Tensor", "pkg.a.Gate", "pkg.Gate"]',
        'src = ["."]',
    ],
)
def test_what_matches_or_cannot_be_known_is_not(project: Path, run: Run, table: str) -> None:
    (project / "pkg" / "__init__.py").write_text("from pkg.a import Gate\n")
    (project / "pkg" / "c.py").write_text("import torch\n\n@torch.no_grad()\ndef f():\n    pass\n")
    configured(project, table)
    assert json.loads(run("check", "--format", "json").out)["summary"]["notes"] == []
    assert run("hot").err == ""


def test_a_part_of_a_project_proves_nothing(project: Path, write: Write, start: Run) -> None:
    configured(project, 'hot-roots = ["pkg.b.colt"]')
    done = start("check", "-", "--stdin-filename", "pkg/b.py", "--format", "json", stdin=B.encode())
    assert json.loads(done.out)["summary"]["notes"] == []
    done = start("check", "--diff")
    assert "colt" not in done.out + done.err
