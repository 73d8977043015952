"""Copies of the work tree, in a temporary folder that is gone when the process is, however it ends."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pytest_dispatchguard.config.project_root import ALWAYS_EXCLUDED, nested_roots
from pytest_dispatchguard.git import run_git
from pytest_dispatchguard.measure.processes.launching import Launch
from pytest_dispatchguard.measure.processes.work_tree import is_installed
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.prices import NAME as PRICES
from pytest_dispatchguard.project_folder import PROFILE

_PREFIX = "dispatchguard-verify-"
_OURS = (PROFILE.as_posix(), PRICES)
"""What decides hotness and prices."""
_GENERATED = ("*.so", "*.pyd", "*.dylib", "_version.py", *_OURS)
"""Files that git ignores, and without which a project may not be importable, or has other findings."""
# A process of its own, which outlives ours: it waits for a word, or for the end of the pipe. Processes that
# still write into the folder are given time to end.
_REMOVE = (
    'read -r word; for i in 1 2 3 4 5 6 7 8 9; do chmod -R u+rwX -- "$1" 2>/dev/null; '
    'rm -rf -- "$1" 2>/dev/null; [ -e "$1" ] || exit 0; sleep 1; done'
)

_NEW = 60.0
"""Seconds that an empty folder may be one that was made this moment, and is not locked yet."""

Files = Mapping[str, "bytes | None"]
"""What files hold, by their paths relative to the work tree; None for one that is not there."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What holds for copies, and for all that runs in them."""

    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    check: Callable[[], object] = lambda: None
    """Called again and again while something runs; raises if that must end."""
    most_files: int | None = None
    most_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of the work tree."""

    top: Path
    """The work tree."""
    tree: Path
    temporary: Path
    """For temporary files of what runs in it."""
    conditions: Conditions

    def moved(self, path: str) -> str:
        """The same path in the copy. Paths outside of the work tree, or in a virtual environment, stay."""
        resolved = Path(path).resolve() if path else Path.cwd().resolve()
        if resolved.is_relative_to(self.top) and not is_installed(resolved, self.top):
            return str(self.tree / resolved.relative_to(self.top))
        return path

    def launch(self, cwd: Path) -> Launch:
        """How to start processes in the copy."""
        folder = Path(self.moved(str(cwd)))
        roots = ("", "src", *nested_roots(self.top))
        path = [
            str(folder),
            *(str(self.tree / one) for one in roots),
            *map(self.moved, sys.path[1:]),
        ]
        path = list(dict.fromkeys(path))
        ours = [one for one in path if Path(one).is_relative_to(self.tree)]
        environment = dict(self.conditions.environment)
        given = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
        environment |= {
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

    def __init__(self, top: Path, conditions: Conditions | None = None) -> None:
        self.top = top
        self.conditions = conditions or Conditions()
        self.skipped = 0
        """Links that lead out of the work tree, which are not copied."""
        self._stamp = 0
        self._copies = 0
        if os.name == "posix":
            _sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
        self._remover = _Remover(self.folder) if os.name == "posix" else None
        try:
            self.first = self._empty()
            self._fill(self.first.tree)
        except BaseException:
            self.remove()
            raise

    def copy(self) -> Copy:
        """One more copy of what the work tree was at first."""
        made = self._empty()
        shutil.copytree(
            self.first.tree,
            made.tree,
            symlinks=True,
            dirs_exist_ok=True,
            copy_function=self._copy_file,
        )
        return made

    def _copy_file(self, source: str, target: str) -> None:
        self.conditions.check()
        shutil.copy2(source, target, follow_symlinks=False)

    def _empty(self) -> Copy:
        # Names have one length, as that of a path changes times.
        name = f"tree{self._copies:04}"
        self._copies += 1
        copy = Copy(self.top, self.folder / name, self.folder / f"{name}-tmp", self.conditions)
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

    def is_inside(self, path: str) -> bool:
        """Whether a file of the work tree is really in it."""
        file = self.top / path
        try:
            return file.parent.resolve().is_relative_to(self.top) and (
                not file.is_symlink() or file.resolve().is_relative_to(self.top)
            )
        except (OSError, RuntimeError):  # links in a circle
            return False

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
        if self._remover is not None:
            self._remover.remove()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._remover is not None:
            self._remover.release()

    def _fill(self, tree: Path) -> None:
        files = size = 0
        for path in _listed(self.top):
            self.conditions.check()
            source, target = self.top / path, tree / path
            try:
                found = source.lstat()
            except (FileNotFoundError, NotADirectoryError):
                continue  # deleted, and git still knows it
            target.parent.mkdir(parents=True, exist_ok=True)
            if stat.S_ISREG(found.st_mode):
                files, size = files + 1, size + found.st_size
                self._require_small(files, size)
                try:
                    shutil.copy2(source, target, follow_symlinks=False)
                except OSError as error:
                    raise UserError(
                        f"{path}: cannot be copied: {error.strerror or error}"
                    ) from None
            elif stat.S_ISLNK(found.st_mode):
                self._link(source, target)

    def _require_small(self, files: int, size: int) -> None:
        most_files, most_bytes = self.conditions.most_files, self.conditions.most_bytes
        if (most_files is not None and files > most_files) or (
            most_bytes is not None and size > most_bytes
        ):
            raise UserError(
                f"{self.top.name} is too large to copy (more than {most_files} files or "
                f"{(most_bytes or 0) // 10**6} MB): name a part of it"
            )

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


class _Remover:
    """A process that removes a folder when this one is gone, and a lock that says that it is in use."""

    def __init__(self, folder: Path) -> None:
        import fcntl  # not on Windows

        self._lock = os.open(folder, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        alive, self._alive = os.pipe()
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _REMOVE, "sh", str(folder)],
                stdin=alive,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            os.close(alive)

    def remove(self) -> None:
        """Has the process do it."""
        # Processes that were forked meanwhile, as the linter does, keep the pipe open.
        with suppress(BrokenPipeError):
            os.write(self._alive, b"\n")
        os.close(self._alive)
        self._process.wait()

    def release(self) -> None:
        """Lets go of the folder."""
        os.close(self._lock)


def _listed(top: Path) -> Iterator[str]:
    """The files of a work tree but those that git ignores, and the generated ones among these."""
    known = run_git(top, "ls-files", "-c", "-o", "--exclude-standard", "-z")
    names = b"" if known is None or known.returncode else known.stdout
    listed = dict.fromkeys(os.fsdecode(one) for one in names.split(b"\0") if one)
    if not listed:  # no repository, or one that ignores the whole folder
        yield from _walked(top)
        return
    for path in listed:
        nested = top / path
        if not nested.is_symlink() and nested.is_dir():  # a submodule, or another repository
            yield from (os.path.join(path, one) for one in _listed(nested))  # noqa: PTH118 - a name, no file
        else:
            yield path
    generated = (f":(glob)**/{name}" for name in _GENERATED)
    ignored = ("ls-files", "-o", "-i", "--exclude-standard", "-z", "--", *generated)
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
    yield from (name for name in _OURS if (top / name).is_file())


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
