"""Copies of the work tree, in a temporary folder that is gone when the process is, however it ends."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_dispatchguard.config.project_root import ALWAYS_EXCLUDED
from pytest_dispatchguard.git import run_git
from pytest_dispatchguard.measure.workers.work_tree import is_installed
from pytest_dispatchguard.measure.workers.workers import Launch
from pytest_dispatchguard.model.errors import UserError

_PREFIX = "dispatchguard-verify-"
_GENERATED = ("*.so", "*.pyd", "*.dylib", "_version.py")
"""Files that git ignores, and without which a project may not be importable."""
# A process of its own, which outlives ours: it begins when the pipe is closed, or a line comes. Processes
# that still write into the folder are given time to end.
_REMOVE = (
    'read -r line; for i in 1 2 3 4 5 6 7 8 9; do chmod -R u+rwX -- "$1" 2>/dev/null; '
    'rm -rf -- "$1" 2>/dev/null; [ -e "$1" ] || exit 0; sleep 1; done'
)

_NEW = 60.0
"""Seconds that an empty folder may be one that was made this moment, and is not locked yet."""

Files = Mapping[str, "bytes | None"]
"""What files hold, by their paths relative to the work tree; None for one that is not there."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of the work tree."""

    top: Path
    """The work tree."""
    tree: Path
    temporary: Path
    """For temporary files of what runs in it."""

    def moved(self, path: str) -> str:
        """The same path in the copy. Paths outside of the work tree, or in a virtual environment, stay."""
        resolved = Path(path).resolve() if path else Path.cwd().resolve()
        if resolved.is_relative_to(self.top) and not is_installed(resolved, self.top):
            return str(self.tree / resolved.relative_to(self.top))
        return path

    def launch(self, cwd: Path) -> Launch:
        """How to start processes in the copy."""
        folder = Path(self.moved(str(cwd)))
        path = [str(folder), str(self.tree), str(self.tree / "src"), *map(self.moved, sys.path[1:])]
        path = list(dict.fromkeys(path))
        ours = [one for one in path if Path(one).is_relative_to(self.tree)]
        given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(dict.fromkeys([*ours, *map(self.moved, given)])),
            "TMPDIR": str(self.temporary),
            # What must not be imported: the modules of the work tree itself.
            "DISPATCHGUARD_NOT_FROM": str(self.top),
        }
        return Launch((), folder, path, environment)

    def moved_word(self, word: str) -> str:
        """An argument of pytest, such as a node id: an absolute path in the work tree is moved."""
        file, colons, node = word.partition("::")
        return f"{self.moved(file)}{colons}{node}" if Path(file).is_absolute() else word

    def read(self, path: str) -> bytes | None:
        """What a file of the copy holds."""
        try:
            return (self.tree / path).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None


class Scratch:
    """A temporary folder with copies of a work tree, until it is removed."""

    def __init__(self, top: Path) -> None:
        import fcntl  # not on Windows

        self.top = top
        self.skipped = 0
        """Links that lead out of the work tree, which are not copied."""
        self._stamp = 0
        self._copies = 0
        _sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
        self._lock = os.open(self.folder, os.O_RDONLY)
        alive, self._alive = os.pipe()
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self._remover = subprocess.Popen(
                ["/bin/sh", "-c", _REMOVE, "sh", str(self.folder)],
                stdin=alive,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self.first = self._empty()
            self._fill(self.first.tree)
        except BaseException:
            self.remove()
            raise
        finally:
            os.close(alive)

    def copy(self) -> Copy:
        """One more copy of what the work tree was at first."""
        made = self._empty()
        shutil.copytree(self.first.tree, made.tree, symlinks=True, dirs_exist_ok=True)
        return made

    def _empty(self) -> Copy:
        # Names have one length, as that of a path changes times.
        name = f"tree{self._copies:04}"
        self._copies += 1
        copy = Copy(self.top, self.folder / name, self.folder / f"{name}-tmp")
        copy.tree.mkdir()
        copy.temporary.mkdir()
        return copy

    def write(self, copy: Copy, files: Files) -> None:
        """Puts files into a copy, or takes them away."""
        for path, data in files.items():
            file = copy.tree / path
            if not file.parent.resolve().is_relative_to(copy.tree):
                raise UserError(f"{path}: a link leads out of the work tree; fix the file there")
            if data is None:
                file.unlink(missing_ok=True)
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            self.stamp(file)

    def restore(self, copy: Copy, paths: Iterable[str]) -> None:
        """Makes files of a copy what they were at first."""
        for path in paths:
            file, first = copy.tree / path, self.first.tree / path
            file.unlink(missing_ok=True)
            if first.is_symlink() or first.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(first, file, follow_symlinks=False)
                if not file.is_symlink():
                    self.stamp(file)

    def stamp(self, file: Path) -> None:
        """Gives a file a time that no file here had: what Python compiled is used again for a file of the
        same size and time, in seconds."""
        self._stamp += 1
        os.utime(file, (self._stamp, self._stamp))

    def drop(self, copy: Copy) -> None:
        """Removes a copy."""
        for folder in (copy.tree, copy.temporary):
            shutil.rmtree(folder, ignore_errors=True)

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *raised: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Removes the folder and all that is in it."""
        # A forked process that still runs holds the pipe open too, and may wait for this one to end it.
        with suppress(BrokenPipeError):
            os.write(self._alive, b"\n")
        os.close(self._alive)
        if hasattr(self, "_remover"):
            self._remover.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)

    def _fill(self, tree: Path) -> None:
        for path in _listed(self.top):
            source, target = self.top / path, tree / path
            try:
                found = source.lstat()
            except (FileNotFoundError, NotADirectoryError):
                continue  # deleted, and git still knows it
            target.parent.mkdir(parents=True, exist_ok=True)
            if stat.S_ISREG(found.st_mode):
                shutil.copy2(source, target, follow_symlinks=False)
            elif stat.S_ISLNK(found.st_mode):
                self._link(source, target)

    def _link(self, source: Path, target: Path) -> None:
        """Copies a link that stays in the work tree."""
        try:
            real = source.resolve()
        except (OSError, RuntimeError):
            return
        if not real.is_relative_to(self.top):
            self.skipped += 1
            return
        target.symlink_to(os.path.relpath(real, source.parent.resolve()))


def _listed(top: Path) -> Iterator[str]:
    """The files of a work tree but those that git ignores, and the generated ones among these."""
    known = run_git(top, "ls-files", "-c", "-o", "--exclude-standard", "-z")
    if known is None or known.returncode:
        yield from _walked(top)
        return
    listed = dict.fromkeys(os.fsdecode(one) for one in known.stdout.split(b"\0") if one)
    for path in listed:
        nested = top / path
        if not nested.is_symlink() and nested.is_dir():  # a submodule, or another repository
            yield from (os.path.join(path, one) for one in _listed(nested))  # noqa: PTH118 - a name, no file
        else:
            yield path
    ignored = ("ls-files", "-o", "-i", "--exclude-standard", "-z", "--", *_GENERATED)
    made = run_git(top, *ignored)
    for one in [] if made is None else made.stdout.split(b"\0"):
        path = os.fsdecode(one)
        if one and not path.startswith("build/") and not is_installed(top / path, top):
            yield path


def _walked(top: Path) -> Iterator[str]:
    """The same where there is no git."""
    for folder, names, files in os.walk(top):
        below = Path(folder)
        linked = [name for name in names if (below / name).is_symlink()]
        names[:] = [
            name
            for name in names
            if name not in ALWAYS_EXCLUDED
            and name not in linked
            and not (below / name / "pyvenv.cfg").exists()
        ]
        yield from ((below / name).relative_to(top).as_posix() for name in (*linked, *files))


def _sweep() -> None:
    """Removes folders of processes that are gone with all their helpers, as when a machine lost power."""
    import fcntl

    with suppress(OSError):
        for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                continue
            lock = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if any(folder.iterdir()) or time.time() - found.st_mtime > _NEW:
                    shutil.rmtree(folder, ignore_errors=True)
            except OSError:
                pass  # in use
            finally:
                os.close(lock)
