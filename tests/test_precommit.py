"""The hooks that users' repositories point at: pre-commit runs the recipe of docs/recipes.md, as it
stands but for where this package comes from, on a repository of two files."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .recipes import blocks

pytestmark = pytest.mark.slow

BAD = '''\
"""A layer with one thing to report and one to rewrite."""

import torch


class Gate(torch.nn.Module):
    """Lets through what is positive."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x` where it is positive."""
        if (x < 0).any():
            x = x + torch.zeros(x.shape).to(x.device)
        return x
'''

GOOD = '''\
"""Nothing to report."""


def double(x: int) -> int:
    """Twice `x`."""
    return 2 * x
'''

# What pip says where it reaches no index, or one that lacks what is needed.
NO_INDEX = (
    "Could not find a version that satisfies",
    "No matching distribution found",
    "Max retries exceeded",
    "NewConnectionError",
    "Temporary failure in name resolution",
    "Network is unreachable",
)


def git(*arguments: str, cwd: Path) -> str:
    """Run git without the user's settings."""
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments]
    return subprocess.check_output(command, cwd=cwd, text=True, stderr=subprocess.STDOUT)


def commit_all(folder: Path) -> None:
    git("init", "--quiet", cwd=folder)
    git("add", "--all", cwd=folder)
    git("commit", "--quiet", "--no-verify", "-m", "all", cwd=folder)


@pytest.fixture
def hooks(root: Path, tmp_path: Path) -> Path:
    """The checkout as it lies there, committed to a repository of its own."""
    copy = tmp_path / "hooks"
    shutil.copytree(
        root,
        copy,
        symlinks=True,
        ignore=shutil.ignore_patterns(
            ".git", ".venv*", "build", "dist", "site", "*.egg-info", "__pycache__", ".*_cache",
            ".hypothesis", "bench", "tests",
        ),
    )  # fmt: skip
    commit_all(copy)
    return copy


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's repository."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[project]\nname = "gate"\nversion = "1"\n')
    (folder / "gate.py").write_text(BAD)
    (folder / "double.py").write_text(GOOD)
    commit_all(folder)
    return folder


def run_hooks(project: Path, config: str, home: Path) -> tuple[int, str]:
    """What `pre-commit run --all-files` says under a configuration."""
    (project / ".pre-commit-config.yaml").write_text(config, encoding="utf-8")
    git("add", ".pre-commit-config.yaml", cwd=project)
    result = subprocess.run(
        [sys.executable, "-m", "pre_commit", "run", "--all-files", "--verbose"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={
            **os.environ,
            "PRE_COMMIT_HOME": str(home),
            "PRE_COMMIT_COLOR": "never",
            "PIP_COMPILE": "0",  # Python compiles what it imports, which is a part of what pip installs
        },
    )
    said = result.stdout + result.stderr
    if result.returncode not in (0, 1) and any(sign in said for sign in NO_INDEX):
        pytest.skip("pre-commit could not install: no package index in reach")
    return result.returncode, said


def test_hooks_report_and_rewrite(hooks: Path, project: Path, tmp_path: Path) -> None:
    if importlib.util.find_spec("pre_commit") is None:
        pytest.skip("pre-commit is not installed")
    (config,) = blocks("recipes.md", "yaml", "With every commit")
    address = re.search(r"repo: (\S+)\n    rev: (\S+)\n", config)
    assert address is not None
    commit = git("rev-parse", "HEAD", cwd=hooks).strip()
    config = config.replace(address[1], str(hooks)).replace(address[2], commit)

    status, report = run_hooks(project, config, tmp_path / "home")
    assert status == 1, report
    assert "gate.py" in report, report
    assert "DG4" in report, report
    assert "Gate.forward" in report, report
    assert "double.py" not in report.partition("hook id: dispatchguard\n")[2], report
    assert git("diff", "--name-only", cwd=project) == ""

    status, said = run_hooks(project, config.replace("# - id", "- id"), tmp_path / "home")
    assert status == 1, said
    rewrite, _, report = said.partition("hook id: dispatchguard\n")
    assert "files were modified by this hook" in rewrite, said
    changed = (project / "gate.py").read_text()
    assert ".to(x.device)" not in changed
    assert "if (x < 0).any():" in changed
    assert "DG401" in report and "DG504" not in report, said
    assert git("diff", "--name-only", cwd=project).split() == ["gate.py"]

    (project / "gate.py").write_text(GOOD)
    assert run_hooks(project, config, tmp_path / "home")[0] == 0
