"""`dispatchguard mcp` itself: what it says where it cannot serve."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BLOCKED = """\
import sys
sys.modules["mcp"] = sys.modules["mcp_types"] = None
from pytest_dispatchguard.cli import main
sys.exit(main(sys.argv[1:]))
"""


def run(folder: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_the_extra_one_line_says_what_to_install(tmp_path: Path) -> None:
    done = run(tmp_path, BLOCKED, "mcp")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        'dispatchguard: the server needs mcp 2: pip install "pytest-dispatchguard[mcp]"\n'
    )


def test_a_project_that_is_not_there(tmp_path: Path) -> None:
    done = run(tmp_path, BLOCKED, "mcp", "--project", "none")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "dispatchguard: none: there is no such folder\n"


@pytest.mark.parametrize("words", [["check", "."], ["rule", "DG401"], ["--version"]])
def test_no_other_command_imports_it(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    program = (
        "import sys\nfrom pytest_dispatchguard.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "theirs = ('mcp', 'mcp_types', 'pydantic', 'anyio')\n"
        "found = [m for m in sys.modules if m.partition('.')[0] in theirs]\n"
        "sys.exit(f'imported {found}' if found else 0)\n"
    )
    done = run(tmp_path, program, *words)
    assert done.returncode == 0, done.stderr
