"""The folder in which a project keeps what is found out about it. A repository may hold links, pipes and
databases under the names that we use there: nothing is written, made or removed through any of them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_dispatchguard.model.errors import UserError

FOLDER = ".dispatchguard"

PROFILE = Path(FOLDER, "profile.json")
"""The recorded profile, relative to the project root."""

_IGNORE = ".gitignore"
_BESIDE = ("-journal", "-wal", "-shm")
"""What SQLite calls the files that it keeps beside a database."""
_JOURNAL_OF_SEVERAL = bytes.fromhex("d9d505f920a163d7")
"""Ends a journal that names another file, which SQLite deletes when it has rolled back. Only databases that
are written together have one, and ours never are."""

# Windows has neither; there, what is looked at could be exchanged before it is used.
_HANDLES = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
_AS_IT_IS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


@dataclass(frozen=True, slots=True)
class Folder:
    """Our folder, or one in it, that is surely no link."""

    path: Path
    handle: int | None
    """Names are looked up in it, so that the folder cannot be exchanged; None where the system cannot."""

    def _name(self, name: str) -> str:
        return name if self.handle is not None else str(self.path / name)

    def names(self) -> list[str]:
        """What is in it."""
        return os.listdir(self.path if self.handle is None else self.handle)  # noqa: PTH208 - by handle

    def look(self, name: str) -> os.stat_result | None:
        """What lies under a name, a link itself if it is one; None where there is nothing."""
        try:
            return os.stat(self._name(name), dir_fd=self.handle, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def plain(self, name: str) -> os.stat_result | None:
        """The same of what must be a plain file, if it is there: anything else is refused."""
        found = self.look(name)
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise UserError(f"{self.path / name}: {_complaint(found, 'plain file')}")
        return found

    def read(self, name: str, most: int, *, end: bool = False) -> bytes:
        """The first bytes of a plain file, or the last ones; none where it is not there."""
        if self.plain(name) is None:
            return b""
        # Whatever comes into its place meanwhile is not waited for.
        flags = os.O_RDONLY | _AS_IT_IS | getattr(os, "O_NONBLOCK", 0)
        with os.fdopen(os.open(self._name(name), flags, dir_fd=self.handle), "rb") as file:
            if end:
                file.seek(max(0, os.fstat(file.fileno()).st_size - most))
            return file.read(most)

    def create(self, name: str) -> None:
        """Makes an empty file where there is nothing."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _AS_IT_IS
        with suppress(FileExistsError):
            os.close(os.open(self._name(name), flags, 0o666, dir_fd=self.handle))

    def put(self, name: str, data: bytes) -> None:
        """Puts a plain file in the place of the one before, whole or not at all."""
        before = self.plain(name)
        if before is not None and not os.access(self._name(name), os.W_OK, dir_fd=self.handle):
            raise UserError(f"{self.path / name}: cannot be written: the file is read-only")
        temporary = f"{name}.{os.urandom(4).hex()}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _AS_IT_IS
        made = os.open(self._name(temporary), flags, 0o666, dir_fd=self.handle)
        try:
            with os.fdopen(made, "wb") as file:
                file.write(data)
            os.replace(
                self._name(temporary),
                self._name(name),
                src_dir_fd=self.handle,
                dst_dir_fd=self.handle,
            )
        except BaseException:
            self.remove(temporary)
            raise

    def remove(self, name: str) -> None:
        """Removes a file, or a link itself, if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(self._name(name), dir_fd=self.handle)

    def require_database(self, name: str) -> None:
        """That a database and what SQLite keeps beside it may be opened by name, as SQLite does: it would
        follow links, write what has another name elsewhere, and delete a file that a journal names."""
        for one in (name, *(name + suffix for suffix in _BESIDE)):
            found = self.plain(one)
            if found is not None and found.st_nlink > 1:
                raise UserError(f"{self.path / one}: has another name elsewhere; remove it")
        journal = name + _BESIDE[0]
        if self.read(journal, 8, end=True) == _JOURNAL_OF_SEVERAL:
            raise UserError(f"{self.path / journal}: is not from a run of ours; remove it")

    def remove_database(self, name: str) -> None:
        """Removes a database with what lies beside it."""
        for suffix in (*_BESIDE, ""):
            self.remove(name + suffix)


@contextmanager
def opened(folder: Path, *, make: bool = False) -> Iterator[Folder]:
    """Our folder or one in it, made where it is missing if that is asked for; `UserError` where it is a link
    or no folder, `OSError` where it is not there or cannot be opened."""
    base, names = _from_base(folder)
    if not _HANDLES:
        _step_by_name(base, names, make)
        yield Folder(folder, None)
        return
    handle = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            handle, above = _step(handle, name, base, make), handle
            os.close(above)
            base /= name
        yield Folder(folder, handle)
    finally:
        os.close(handle)


@contextmanager
def made(folder: Path) -> Iterator[Folder]:
    """Our folder or one in it, made where it is missing, and left alone by git."""
    with opened(folder, make=True) as inner:
        if FOLDER not in folder.parts or folder.name == FOLDER:
            _have_git_ignore(inner)
        else:
            with opened(_ours(folder)) as outer:
                _have_git_ignore(outer)
        yield inner


def remove_if_empty(folder: Path) -> None:
    """Removes our folder where nothing is left in it but what keeps git out."""
    base, (name,) = _from_base(folder)
    with opened(folder) as ours:
        if set(ours.names()) - {_IGNORE} or ours.look(_IGNORE) is None:
            return
        ours.remove(_IGNORE)
    (base / name).rmdir()  # a link is no folder, and stays


def write(path: Path, data: bytes) -> None:
    """Writes a file of ours, whole or not at all."""
    try:
        with made(path.parent) as folder:
            folder.put(path.name, data)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from None


def read(path: Path) -> bytes | None:
    """What a file of ours holds; None where there is none, or where our folder leads elsewhere."""
    base, names = _from_base(path.parent)
    for name in names:
        base /= name
        if not base.is_dir() or _is_link(base.lstat()):
            return None
    try:
        with opened(path.parent) as folder:
            there = folder.plain(path.name) is not None
            return folder.read(path.name, -1) if there else None
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_within(path: Path) -> bool:
    """Whether a path leads into such a folder."""
    return FOLDER in path.parts[:-1]


def _ours(folder: Path) -> Path:
    base, (name, *_) = _from_base(folder)
    return base / name


def _from_base(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """The folder of the project, and the names that lead on from there."""
    parts = folder.parts
    at = len(parts) - 1 - parts[::-1].index(FOLDER) if FOLDER in parts else len(parts) - 1
    return Path(*parts[:at]), parts[at:]


def _step(above: int, name: str, base: Path, make: bool) -> int:
    """Opens a folder in another."""
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=above)
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | _AS_IT_IS, dir_fd=above)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        found = os.stat(name, dir_fd=above, follow_symlinks=False)
        raise UserError(f"{base / name}: {_complaint(found, 'folder')}") from None


def _step_by_name(base: Path, names: tuple[str, ...], make: bool) -> None:
    for name in names:
        base /= name
        if make:
            base.mkdir(exist_ok=True)
        found = base.lstat()
        if not stat.S_ISDIR(found.st_mode) or _is_link(found):
            raise UserError(f"{base}: {_complaint(found, 'folder')}")


def _have_git_ignore(folder: Folder) -> None:
    """Has git leave a folder alone. An empty file there is from a disk that was full."""
    found = folder.plain(_IGNORE)
    if found is None or not found.st_size:
        folder.put(_IGNORE, b"*\n")


def _complaint(found: os.stat_result, wanted: str) -> str:
    """What is wrong with what should be one of our folders or files."""
    if _is_link(found):
        return "is a link, through which nothing is written; remove it"
    return f"is no {wanted}; remove it"


def _is_link(found: os.stat_result) -> bool:
    """Whether something only leads elsewhere; Windows also has links that are no symbolic ones."""
    tag: object = getattr(found, "st_reparse_tag", None)
    return stat.S_ISLNK(found.st_mode) or bool(tag)
