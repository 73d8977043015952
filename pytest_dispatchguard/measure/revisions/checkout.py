"""Checks out another revision of the project, without touching the work tree, index or stash."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_dispatchguard.git import complaint, run_git
from pytest_dispatchguard.measure.processes.launching import Launch
from pytest_dispatchguard.measure.processes.work_tree import is_installed
from pytest_dispatchguard.measure.workers.workers import PREFIX as WORKER
from pytest_dispatchguard.model.errors import UserError

AGAINST = "--overhead-against"
_PREFIX = "dispatchguard-base-"


class Revision:
    """A revision in a temporary git worktree, until it is removed."""

    def __init__(self, top: Path, name: str, option: str = AGAINST) -> None:
        self.top = top
        self.name = name
        self._option = option
        """The option that asked for it, for messages."""
        _sweep(top)
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")).resolve()
        self.tree = self._folder / "tree"
        self._built = self._folder / "built"
        self._path: list[str] | None = None
        """The folder of built extensions, once known."""
        try:
            add = ("worktree", "add", "--quiet", "--no-checkout", "--force", "--detach")
            self._asked(top, *add, str(self.tree), commit_of(top, name, option))
            # Separately, as git may be configured for the new worktree alone.
            self._asked(self.tree, "reset", "--quiet", "--hard")
        except BaseException:
            self.remove()
            raise

    def _asked(self, folder: Path, *words: str) -> None:
        answer = run_git(folder, *words)
        if answer is None or answer.returncode:
            said = complaint(answer)
            raise UserError(f"{self._option}: {self.name} cannot be checked out: {said}")

    def remove(self) -> None:
        """Removes the worktree."""
        if not self._folder.exists():
            return
        run_git(self.top, "worktree", "remove", "--force", str(self.tree))
        shutil.rmtree(self._folder, ignore_errors=True)
        # Where it was not whole, its folder's being gone lets git forget it: ours alone, no other worktree.
        run_git(self.top, "worktree", "remove", "--force", str(self.tree))

    def launch(self, launch: Launch) -> Launch:
        """How to start workers of this revision, given that for the work tree."""
        moved = self.moved
        folder = Path(moved(str(launch.folder)))
        if not folder.is_dir():
            raise UserError(f"it has no folder {launch.folder.name}/")
        environment = dict(launch.environment)
        if environment.get("PYTHONPATH"):
            parts = environment["PYTHONPATH"].split(os.pathsep)
            environment["PYTHONPATH"] = os.pathsep.join(map(moved, parts))
        # What must not be imported: the work tree's own modules, in place of the revision's.
        environment["DISPATCHGUARD_NOT_FROM"] = str(self.top)
        roots = [self.tree, self.tree / "src"]
        if self._path is None:
            self._path = self._extensions()
        path = _unique(
            [*self._path, *map(str, filter(Path.is_dir, roots)), *map(moved, launch.path)]
        )
        return replace(
            launch,
            arguments=self._arguments(launch),
            folder=folder,
            path=path,
            environment=environment,
        )

    def _arguments(self, launch: Launch) -> list[str]:
        """The command line for this revision: paths are mapped, and missing ones left out. Files of single
        tests are given whole, as tests are found by node id later."""
        words, given, found = [], 0, 0
        for word in launch.arguments:
            file = word.partition("::")[0]
            if word.startswith("-") or not (launch.folder / file).exists():
                words.append(_moved_argument(word, self.moved))
                continue
            there = Path(self.moved(str(launch.folder / file)))
            given, found = given + 1, found + there.exists()
            if there.exists():
                words.append(str(there) if Path(file).is_absolute() else file)
        if given and not found:
            raise UserError("it has none of the files that are tested")
        return words

    def moved(self, path: str) -> str:
        """The same path in this revision. Paths outside of the project, or in a virtual environment, stay."""
        resolved = Path(path).resolve() if path else Path.cwd().resolve()
        if resolved.is_relative_to(self.top) and not is_installed(resolved, self.top):
            return str(self.tree / resolved.relative_to(self.top))
        return path

    def _extensions(self) -> list[str]:
        """Builds the package if needed; the folder that it was built into."""
        if not must_be_built(self.top):
            return []
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--disable-pip-version-check",
        ]
        done = subprocess.run(
            [*pip, "--target", str(self._built), str(self.tree)],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode:
            said = [
                line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()
            ]
            raise UserError(
                f"{self._option}: {self.name} must be built, and `pip install` failed: "
                f"{said[-1].strip() if said else done.returncode}"
            )
        return [str(self._built)]


def _sweep(top: Path) -> None:
    """Removes worktrees of runs that were killed, and the folders of those that had not come so far or whose
    workers were killed as well."""
    for folder in Path(tempfile.gettempdir()).glob("dispatchguard-*"):
        found = re.match(rf"(?:{_PREFIX}|{WORKER})(\d+)-", folder.name)
        if found and not (folder / "tree" / ".git").exists() and not _runs(int(found[1])):
            shutil.rmtree(folder, ignore_errors=True)
    answer = run_git(top, "worktree", "list", "--porcelain")
    for line in [] if answer is None else os.fsdecode(answer.stdout).splitlines():
        tree = Path(line.removeprefix("worktree "))
        found = re.match(rf"{_PREFIX}(\d+)-", tree.parent.name)
        if found is None or not tree.parent.is_dir() or _runs(int(found[1])):
            continue
        run_git(top, "worktree", "remove", "--force", str(tree))
        shutil.rmtree(tree.parent, ignore_errors=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # a process of another user
    return True


def end_by_exception() -> Callable[[], None]:
    """Lets a polite request to end (`timeout`, a cancelled CI job) run what cleans up, as Ctrl-C does. Gives
    what undoes that."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)

    def undo() -> None:
        signal.signal(signal.SIGTERM, before)

    return undo


def top_of(folder: Path, option: str = AGAINST) -> Path:
    """The root of the git repository around a folder."""
    answer = run_git(folder, "rev-parse", "--show-toplevel")
    if answer is None:
        raise UserError(f"{option} needs git, which cannot be started; install it")
    if answer.returncode:
        raise UserError(f"{option}: {folder} is not in a git work tree; leave the option out")
    return Path(os.fsdecode(answer.stdout.rstrip(b"\n"))).resolve()


def must_be_built(top: Path) -> bool:
    """Whether the project has compiled extensions: some are in its work tree."""
    listed = run_git(top, "ls-files", "--others", "-z", "--", "*.so", "*.pyd", "*.dylib")
    made = [] if listed is None else [os.fsdecode(p) for p in listed.stdout.split(b"\0") if p]
    return not all(is_installed(top / path, top) or path.startswith("build/") for path in made)


def commit_of(top: Path, name: str, option: str = AGAINST) -> str:
    """The commit that a revision names."""
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options", name + "^{commit}")
    answer = run_git(top, *words)
    if answer is None or answer.returncode:
        raise UserError(f'{option}: git knows no revision "{name}"; fetch it, or correct the name')
    return answer.stdout.decode("ascii").strip()


def _moved_argument(word: str, moved: Callable[[str], str]) -> str:
    """An argument with paths mapped to the revision, also after an option's `=`."""
    option, equals, value = word.partition("=")
    if word.startswith("-") and equals and Path(value).is_absolute():
        return f"{option}={moved(value)}"
    return moved(word) if Path(word).is_absolute() else word


def _unique(paths: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(paths))
