"""A project with a git repository, and the server as a client meets it: a process of its own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

NET = """\
import torch
from torch import nn

from net.ops import damp


class Gate(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return damp(x, mask)
"""
OPS = """\
import torch


def damp(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x.masked_fill(mask, 0.0)
"""
SLOW = """\
import torch


def damp(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    if mask.any():
        x = x.masked_fill(mask, 0.0)
    return x
"""
TESTS = """\
import pytest
import torch

from net.model import Gate


def test_masked():
    x = torch.ones(3)
    mask = torch.tensor([True, False, True])
    assert Gate()(x, mask).tolist() == [0.0, 1.0, 0.0]


@pytest.mark.overhead_budget(instructions=100_000)
def test_budget(overhead):
    x, mask = torch.ones(3), torch.tensor([True, False, True])
    overhead(Gate(), x, mask).against(torch.masked_fill, x, mask, 0.0)
"""
PLAIN = """\
def test_plain():
    import net
    assert net.__name__ == "net"
"""
FILES = {
    "pyproject.toml": "[tool.dispatchguard]\n",
    ".gitignore": "__pycache__/\n.dispatchguard/\n",
    "net/__init__.py": "",
    "net/model.py": NET,
    "net/ops.py": OPS,
    "tests/test_gate.py": TESTS,
    "tests/test_plain.py": PLAIN,
}
LONG = 300
"""Seconds until an answer is given up: no test is about speed."""

Talk = Callable[..., Any]


def git(folder: Path, *words: str) -> None:
    """Run git as somebody."""
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project in a repository, all committed."""
    root = tmp_path / "project"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    git(root, "init", "--quiet", "--initial-branch=main")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "first")
    return root


@asynccontextmanager
async def connected(root: Path, *words: str, mode: str = "auto") -> AsyncIterator[Any]:
    """The official client, connected to a server of its own."""
    from mcp import Client, StdioServerParameters

    command = ["-m", "pytest_dispatchguard", "mcp", "--project", str(root), *words]
    server = StdioServerParameters(
        command=sys.executable, args=command, cwd=root, env=dict(os.environ)
    )
    async with Client(server, mode=mode) as client:
        yield client


@pytest.fixture
def talk(project: Path) -> Talk:
    """Has a client talk with a server, as a function of the client says."""

    def run(
        about: Callable[[Any], Awaitable[Any]],
        *words: str,
        root: Path = project,
        mode: str = "auto",
    ) -> Any:
        async def conversation() -> Any:
            async with connected(root, *words, mode=mode) as client:
                return await asyncio.wait_for(about(client), LONG)

        return asyncio.run(conversation())

    return run


@pytest.fixture
def states() -> Callable[[Path], dict[str, bytes]]:
    """All files of a folder but those of git."""

    def read(root: Path) -> dict[str, bytes]:
        return {
            path.relative_to(root).as_posix(): path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.is_file() and ".git" not in path.parts
        }

    return read
