"""`dispatchguard init`: writes what is not there, keeps what is, and what it writes works."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from ..recipes import blocks
from .conftest import Run, Write, one_line

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = '[project]\nname = "mylib"  # ours\nversion = "1"\n'
OPS = """\
import torch


def add(x, y):
    return torch.add(x, y)


def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by


class Block(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return add(scaled(x, 2.0), x)
"""
PYPROJECT, HOOK = "pyproject.toml", ".pre-commit-config.yaml"
WORKFLOW, PIPELINE, TEST = (
    ".github/workflows/overhead.yml",
    ".gitlab-ci.yml",
    "tests/test_overhead.py",
)


@pytest.fixture
def lib(write: Write) -> Path:
    return write({PYPROJECT: PROJECT, "mylib/__init__.py": "", "mylib/ops.py": OPS})


def files(root: Path) -> Mapping[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_everything(lib: Path, run: Run) -> None:
    before = files(lib)
    done = run("init")
    assert (done.status, done.err) == (0, "")
    after = files(lib)
    assert after.keys() - before.keys() == {HOOK, WORKFLOW, TEST}
    assert after[PYPROJECT].decode().startswith(PROJECT)
    assert tomllib.loads(after[PYPROJECT].decode())["tool"]["dispatchguard"] == {}
    assert "from mylib.ops import add" in after[TEST].decode()
    assert run("check").status == 0


def test_a_second_time_changes_nothing(lib: Path, run: Run) -> None:
    run("init")
    before = files(lib)
    done = run("init")
    assert done.status == 0
    assert "pyproject.toml has [tool.dispatchguard] already" in done.out
    assert files(lib) == before


def test_the_recipes_are_what_is_written(lib: Path, run: Run) -> None:
    run("init", "--ci", "github")
    run("init", "--ci", "gitlab")
    assert (lib / HOOK).read_text() == blocks("recipes.md", "yaml", "With every commit")[0]
    assert (lib / WORKFLOW).read_text() == blocks("recipes.md", "yaml", "In CI")[0]
    assert (lib / PIPELINE).read_text() == blocks("recipes.md", "yaml", "In review")[1]


def test_a_dry_run_writes_nothing(lib: Path, run: Run) -> None:
    before = files(lib)
    done = run("init", "--dry-run")
    assert done.status == 0
    assert files(lib) == before
    run("init")
    for name in (HOOK, WORKFLOW, TEST):
        assert f"+++ b/{name}\n" in done.out
        assert all(f"+{line}\n" in done.out for line in (lib / name).read_text().splitlines())
    assert "+[tool.dispatchguard]\n" in done.out


def test_what_exists_stays(lib: Path, write: Write, run: Run) -> None:
    there = {HOOK: "repos: []\n", WORKFLOW: "name: mine\n", TEST: "def test(): pass\n"}
    write(there)
    done = run("init")
    assert {name: (lib / name).read_text() for name in there} == there
    assert f"{HOOK} exists already; add this by hand:\n    repos:\n      - repo: " in done.out
    assert "added to pyproject.toml" in done.out


@pytest.mark.parametrize(
    ("text", "added"),
    [
        ('[project]\r\nname = "a"\r\n', "\r\n[tool.dispatchguard]\r\n"),
        ('[project]\nname = "a"', "\n\n[tool.dispatchguard]\n"),
        ("", "[tool.dispatchguard]\n"),
        ("\ufeff[tool.ruff]\n", "\n[tool.dispatchguard]\n"),
        ("[[tool.mypy.overrides]]\nmodule = ['a']\n", "\n[tool.dispatchguard]\n"),
    ],
)
def test_the_configuration_is_added_to_as_it_is(lib: Path, run: Run, text: str, added: str) -> None:
    (lib / PYPROJECT).write_bytes(text.encode())
    assert run("init", "--no-hook", "--no-test", "--ci", "none").status == 0
    after = (lib / PYPROJECT).read_bytes().decode()
    assert after.startswith(text + added)
    assert (
        "dispatchguard" in tomllib.loads(after.removeprefix("\ufeff").replace("\r\n", "\n"))["tool"]
    )
    assert not (lib / HOOK).exists()


def test_a_configuration_that_takes_no_table_is_told(lib: Path, run: Run) -> None:
    text = "tool = { ruff = { line-length = 100 } }\n"
    (lib / PYPROJECT).write_text(text)
    done = run("init", "--no-hook", "--no-test", "--ci", "none")
    assert "pyproject.toml cannot be extended" in done.out
    assert (lib / PYPROJECT).read_text() == text
    (lib / PYPROJECT).write_text("[")
    assert "not valid TOML" in one_line(run("init"))
    assert not (lib / HOOK).exists()


def test_without_a_configuration_there_is_one(write: Write, run: Run, tmp_path: Path) -> None:
    write({"a.py": "x = 1\n"})
    done = run("init")
    assert "wrote pyproject.toml" in done.out
    assert "found no function that takes only tensors" in done.out
    assert not (tmp_path / TEST).exists()
    assert "pytest" not in (tmp_path / WORKFLOW).read_text().partition("pip install -e")[2][30:]


def test_the_subject_can_be_named(lib: Path, run: Run) -> None:
    run("init", "--subject", "mylib.ops.Block", "--ci", "none", "--no-hook")
    text = (lib / TEST).read_text()
    assert "block_layer = Block()\n    overhead(block_layer, x)" in text
    (lib / TEST).unlink()
    run("init", "--subject", "mylib.ops:scaled", "--ci", "none", "--no-hook")
    assert "overhead(scaled, x, by)" in (lib / TEST).read_text()
    (lib / TEST).unlink()
    assert "no such function" in one_line(run("init", "--subject", "mylib.ops.none"))


def test_not_inside_of_a_project(lib: Path, run: Run) -> None:
    assert "run it there" in one_line(run("init", cwd=lib / "mylib"))


@pytest.mark.parametrize(
    ("answers", "written"),
    [
        ("\n\n\n", {HOOK, WORKFLOW, TEST}),
        ("n\nnone\nno\n", set()),
        ("y\nperhaps\nGITLAB\nyes\n", {HOOK, PIPELINE, TEST}),
        ("", {HOOK, WORKFLOW, TEST}),
    ],
)
def test_at_a_terminal_it_asks(
    lib: Path, run: Run, monkeypatch: pytest.MonkeyPatch, answers: str, written: set[str]
) -> None:
    terminal = io.StringIO(answers)
    terminal.isatty = lambda: True  # type: ignore[method-assign]  # it plays one
    monkeypatch.setattr("sys.stdin", terminal)
    before = files(lib)
    done = run("init")
    assert "Write a CI job? [GITHUB/gitlab/none]" in done.out
    assert files(lib).keys() - before.keys() == written
    monkeypatch.setattr("sys.stdin", terminal)
    assert "?" not in run("init", "--yes").out


@pytest.mark.thorough
def test_the_test_passes_and_is_recorded(lib: Path, run: Run) -> None:
    pytest.importorskip("torch", reason="a test of code on torch is run")
    run("init", "--ci", "none", "--no-hook")
    for mode in ("update", "count"):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                f"--overhead-budget={mode}",
                "--overhead-max-time=1",
            ],
            cwd=lib,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout
        assert "1 passed" in done.stdout
    assert "test_add" in (lib / "overhead-budgets.toml").read_text()
