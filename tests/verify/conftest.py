"""A small git repository with a function that can be made cheaper."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SLOW = """\
def total(numbers):
    found = 0
    for number in numbers:
        found = found + number
    return found


def double(number):
    return number * 2
"""
FAST = "def total(numbers):\n    return sum(numbers)\n" + SLOW.partition("return found\n")[2]
WRONG = "def total(numbers):\n    return 0\n" + SLOW.partition("return found\n")[2]
TESTS = """\
import pytest

import mylib


def test_total():
    assert mylib.total([1, 2, 3]) == 6


@pytest.mark.skip(reason="as ever")
def test_skipped():
    pass
"""
CALL = ("total(numbers)", "from mylib import total; numbers = list(range(200))")


def git(folder: Path, *words: str) -> str:
    """What git says."""
    identity = ("-c", "user.name=x", "-c", "user.email=x@localhost")
    done = subprocess.run(
        ["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The repository, which is the current directory. Its code is without torch, which other tests may have
    imported here: workers would import it, too."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    top = tmp_path / "repository"
    top.mkdir()
    (top / "mylib.py").write_text(SLOW)
    (top / "test_mylib.py").write_text(TESTS)
    (top / ".gitignore").write_text("ignored/\n__pycache__/\n.dispatchguard/\n*.so\n_version.py\n")
    git(top, "init", "--quiet")
    git(top, "add", ".")
    git(top, "commit", "--quiet", "-m", "first")
    monkeypatch.chdir(top)
    return top


@pytest.fixture
def patch(repository: Path) -> Callable[[str], str]:
    """Makes the diff that gives `mylib.py` another text."""

    def made(text: str) -> str:
        file = repository / "mylib.py"
        before = file.read_text()
        file.write_text(text)
        diff = git(repository, "diff", "--", "mylib.py")
        file.write_text(before)
        return diff

    return made


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has each pair of processes measure for a moment: enough for what is plain, and tests of the measurement
    itself are beside it."""
    monkeypatch.setattr("pytest_dispatchguard.measure.trials.pairs._SECONDS", 0.1)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    import tempfile

    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder
