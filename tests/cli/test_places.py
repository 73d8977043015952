"""Where output says a file is: for people from the folder they are in, for code hosts from the repository."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Run, Write

SYNC = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor):
        return torch.zeros(3).to(x.device)
"""


@pytest.fixture
def nested(write: Write, tmp_path: Path) -> Path:
    """A repository with a project in it, in `package`, that has a `setup.py`."""
    (tmp_path / ".git").mkdir()
    return write(
        {"package/setup.py": "", "package/sub/__init__.py": "", "package/sub/file.py": SYNC}
    )


@pytest.mark.parametrize("own_table", [False, True])
@pytest.mark.parametrize(
    ("below", "path"),
    [
        ("", "package/sub/file.py"),
        ("package", "sub/file.py"),
        ("package/sub", "file.py"),
        ("package/sub", "../sub/file.py"),
    ],
)
def test_text_names_files_from_where_it_was_asked_for(
    nested: Path, run: Run, own_table: bool, below: str, path: str
) -> None:
    if own_table:
        (nested / "package" / "pyproject.toml").write_text("[tool.dispatchguard]\n")
    for words in (["check", path], ["hot", path], ["check"]):
        out = run(*words, cwd=nested / below).out
        named = next(line for line in out.splitlines() if "file.py" in line)
        assert named.startswith(path.removeprefix("../sub/")), words


@pytest.mark.parametrize("own_table", [False, True])
@pytest.mark.parametrize("format", ["github", "gitlab", "sarif", "rdjson"])
def test_hosts_are_told_where_a_file_is_in_the_repository(
    nested: Path, run: Run, own_table: bool, format: str
) -> None:
    if own_table:
        (nested / "package" / "pyproject.toml").write_text("[tool.dispatchguard]\n")
    outs = {
        run("check", path, "--format", format, cwd=nested / below).out
        for below, path in (("", "package/sub/file.py"), ("package", "."), ("package/sub", "."))
    }
    (out,) = outs
    told = out.count("sub/file.py")
    assert told >= 1
    assert out.count("package/sub/file.py") == told
    assert "device=x.device)" in out, "the fix is told as well"


def test_json_names_files_from_the_root_of_the_project(nested: Path, run: Run) -> None:
    (nested / "package" / "pyproject.toml").write_text("[tool.dispatchguard]\n")
    done = run("check", "package/sub/file.py", "--format", "json")
    (finding,) = json.loads(done.out)["findings"]
    assert finding["path"] == finding["fix"]["edits"][0]["path"] == "sub/file.py"


def test_a_file_that_does_not_parse_is_named_the_same_way(nested: Path, run: Run) -> None:
    (nested / "package" / "pyproject.toml").write_text("[tool.dispatchguard]\n")
    (nested / "package" / "sub" / "bad.py").write_text("x.(\n")
    assert "note: package/sub/bad.py:1:" in run("hot", "package").err
    assert "package/sub/bad.py:1:" in run("check", "package").out


def test_a_watched_program_is_told_of_the_same_way(nested: Path, run: Run, start: Run) -> None:
    pytest.importorskip("torch", reason="a program on torch is run")
    (nested / "package" / "pyproject.toml").write_text("[tool.dispatchguard]\n")
    (nested / "package" / "main.py").write_text(
        "import torch\n\ndef step(x):\n    return x.sum().item()\n\nstep(torch.ones(3, device='cuda'))\n"
    )
    out = start("run", "--ghost", "package/main.py").out
    assert "package/main.py:4" in out
