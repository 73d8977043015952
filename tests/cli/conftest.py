"""Small projects to lint, and the command run over them: in this process, or as users start it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard import cli

from .. import started

# Patterns that no inference decides: these tests are about the command, not about the rules.
A = """\
import os, torch

from pkg.b import helper


class Gate(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if os.environ.get("GATE"):
            return helper(x)
        mask = torch.zeros(3).to(x.device)  # the mask
        return x * mask
"""

B = """\
import inspect, torch


def helper(x: torch.Tensor):
    return inspect.signature(x)


def cold(x: torch.Tensor):
    return inspect.signature(x)
"""


@dataclass(frozen=True)
class Done:
    """What a run of the command said."""

    status: int
    out: str
    err: str

    @property
    def findings(self) -> list[dict[str, Any]]:
        """Of ``--format json``."""
        found: list[dict[str, Any]] = json.loads(self.out)["findings"]
        return found

    @property
    def places(self) -> list[tuple[str, int, str]]:
        """Path, line and code of each finding of ``--format json``."""
        return [(f["path"], f["line"], f["code"]) for f in self.findings]


Run = Callable[..., Done]
Write = Callable[[Mapping[str, str | bytes]], Path]


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes files below the project folder."""

    def write(files: Mapping[str, str | bytes]) -> Path:
        write_files(tmp_path, files)
        return tmp_path

    return write


@pytest.fixture
def project(write: Write) -> Path:
    """A project in which `helper` is hot only through a module in another file."""
    return write(
        {
            "pyproject.toml": "[tool.dispatchguard]\n",
            "pkg/__init__.py": "",
            "pkg/a.py": A,
            "pkg/b.py": B,
        }
    )


@pytest.fixture
def run(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command in this process: ``run("check", "pkg", jobs=1)``."""

    def run(*words: str | Path, cwd: Path = tmp_path) -> Done:
        monkeypatch.chdir(cwd)
        capfd.readouterr()
        try:
            status = cli.main([str(w) for w in words])
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 1
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return Done(status, out, err)

    return run


def command(words: Sequence[str | Path], cwd: Path) -> list[str]:
    return [sys.executable, "-m", "pytest_dispatchguard", *(str(w) for w in words)]


@pytest.fixture
def start(tmp_path: Path, request: pytest.FixtureRequest) -> Run:
    """Runs the command in a process of its own."""
    fresh = request.node.get_closest_marker("fresh_python") is not None

    def start(
        *words: str | Path,
        cwd: Path = tmp_path,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Done:
        told = [str(word) for word in words]
        done = started.in_bytes(cwd, *told, environment=env, stdin=stdin or b"", fresh=fresh)
        out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
        assert "Traceback" not in err, err
        return Done(done.returncode, out, err)

    return start


def one_line(done: Done) -> str:
    """The one line that a run failed with."""
    assert done.status == 2, done
    assert done.out == ""
    (line,) = done.err.splitlines()
    return line
