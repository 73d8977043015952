"""Copies of a work tree: what is in them, what they never touch, and that nothing is left of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.verify.scratch import Scratch

from .conftest import git


def test_a_copy_is_the_work_tree_as_it_is_now(repository: Path) -> None:
    (repository / "mylib.py").write_text("changed = 1\n")
    (repository / "new.py").write_text("untracked = 1\n")
    (repository / "test_mylib.py").unlink()
    (repository / "ignored").mkdir()
    (repository / "ignored" / "large.bin").write_bytes(b"x")
    (repository / "built.so").write_bytes(b"x")
    (repository / "below").mkdir()
    (repository / "below" / "_version.py").write_bytes(b"x")
    (repository / ".dispatchguard").mkdir()
    (repository / ".dispatchguard" / "profile.json").write_bytes(b"x")
    (repository / ".dispatchguard" / "cache.sqlite").write_bytes(b"x")
    with Scratch(repository) as scratch:
        files = (p for p in scratch.first.tree.rglob("*") if p.is_file())
        assert {p.relative_to(scratch.first.tree).as_posix() for p in files} == {
            "mylib.py",
            "new.py",
            ".gitignore",
            "built.so",
            "below/_version.py",
            ".dispatchguard/profile.json",
        }
        assert scratch.first.read("mylib.py") == b"changed = 1\n"
        assert scratch.first.read("test_mylib.py") is None
        assert (scratch.copy().tree / "new.py").read_text() == "untracked = 1\n"
        folder = scratch.folder
    assert not folder.exists()


def test_without_git_hidden_folders_and_environments_are_left_out(tmp_path: Path) -> None:
    top = tmp_path / "plain"
    for name in (".venv/x.py", "__pycache__/x.pyc", "own/pyvenv.cfg", "own/lib/x.py", "pkg/a.py"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text("")
    with Scratch(top) as scratch:
        found = [p for p in scratch.first.tree.rglob("*") if p.is_file()]
        assert [p.relative_to(scratch.first.tree).as_posix() for p in found] == ["pkg/a.py"]


def test_links_stay_inside(repository: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.py").write_text("theirs = 1\n")
    (repository / "out").symlink_to(outside)
    (repository / "absolute.py").symlink_to(repository / "mylib.py")
    (repository / "broken").symlink_to("nowhere")
    with Scratch(repository) as scratch:
        assert scratch.skipped == 1
        assert not (scratch.first.tree / "out").is_symlink()
        inner = scratch.first.tree / "absolute.py"
        assert inner.resolve() == scratch.first.tree / "mylib.py"
        scratch.write(scratch.first, {"out/a.py": b"ours = 1\n", "absolute.py": b"ours = 1\n"})
        (scratch.first.tree / "made").symlink_to(outside)
        with pytest.raises(UserError, match=r"made/a\.py: a link leads out of the work tree"):
            scratch.write(scratch.first, {"made/a.py": b"ours = 1\n"})
    assert (outside / "a.py").read_text() == "theirs = 1\n"
    assert "ours" not in (repository / "mylib.py").read_text()


def test_a_changed_file_has_a_time_that_no_file_had(repository: Path) -> None:
    """Else Python would run what it compiled of another text of the same length, within one second."""
    with Scratch(repository) as scratch:
        times = set()
        for text in (b"a = 1\n", b"a = 2\n"):
            scratch.write(scratch.first, {"mylib.py": text})
            times.add(int((scratch.first.tree / "mylib.py").stat().st_mtime))
        new = scratch.copy()
        scratch.write(new, {"mylib.py": b"a = 3\n", "test_mylib.py": None, "more/x.py": b""})
        times.add(int((new.tree / "mylib.py").stat().st_mtime))
        scratch.restore(new, ["mylib.py", "test_mylib.py", "more/x.py"])
        times.add(int((new.tree / "mylib.py").stat().st_mtime))
        assert len(times) == 4
        assert new.read("test_mylib.py") == (repository / "test_mylib.py").read_bytes()
        assert new.read("more/x.py") is None


def test_submodules_are_copied_as_they_are(repository: Path, tmp_path: Path) -> None:
    nested = repository / "nested"
    nested.mkdir()
    git(nested, "init", "--quiet")
    (nested / "inner.py").write_text("")
    with Scratch(repository) as scratch:
        assert scratch.first.read("nested/inner.py") == b""


HOLD = """
import sys, time
from pathlib import Path
from pytest_dispatchguard.verify.scratch import Scratch
with Scratch(Path.cwd()) as scratch:
    scratch.copy()
    print(scratch.folder, flush=True)
    time.sleep(60)
"""


def until_gone(folder: Path, seconds: float = 30.0) -> bool:
    """Whether it goes away soon."""
    until = time.monotonic() + seconds
    while folder.exists() and time.monotonic() < until:
        time.sleep(0.05)
    return not folder.exists()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_however_the_process_ends_the_folder_goes(
    repository: Path, temporary: Path, how: signal.Signals
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    assert folder.is_relative_to(temporary)
    assert (folder / "tree0001" / "mylib.py").exists()
    process.send_signal(how)
    process.wait(30)
    process.stdout.close()
    assert until_gone(folder)
    assert not list(temporary.iterdir())


FORK = """
import os, time
from pathlib import Path
from pytest_dispatchguard.verify.scratch import Scratch
with Scratch(Path.cwd()) as scratch:
    child = os.fork()
    if not child:
        time.sleep(60)
        os._exit(0)
os.kill(child, 9)
print(scratch.folder.exists())
"""


def test_a_process_that_was_forked_meanwhile_is_not_waited_for(repository: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "False\n"


def test_folders_that_nobody_holds_go_with_the_next_run(repository: Path, temporary: Path) -> None:
    left = temporary / "dispatchguard-verify-left"
    (left / "tree0000").mkdir(parents=True)
    empty = temporary / "dispatchguard-verify-empty"
    empty.mkdir()
    os.utime(empty, (1, 1))
    just_made = temporary / "dispatchguard-verify-made"
    just_made.mkdir()
    elsewhere = temporary.parent / "elsewhere"
    elsewhere.mkdir()
    (temporary / "dispatchguard-verify-link").symlink_to(elsewhere)
    with Scratch(repository) as held, Scratch(repository):
        assert held.folder.exists()
        assert not left.exists()
        assert not empty.exists()
        assert just_made.exists()
    assert elsewhere.exists()


def test_what_tests_made_read_only_goes_too(repository: Path, temporary: Path) -> None:
    with Scratch(repository) as scratch:
        closed = scratch.first.temporary / "closed"
        closed.mkdir()
        (closed / "file").write_text("")
        closed.chmod(0o500)
    assert not list(temporary.iterdir())


def test_a_forked_process_holds_up_nothing(repository: Path, temporary: Path) -> None:
    """As the one that lints ahead: it lives until this process ends it, and has all that was open."""
    with Scratch(repository):
        pid = os.fork()
        if pid == 0:
            time.sleep(30)
            os._exit(0)
    # The forked process still lives.
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert not list(temporary.iterdir())
