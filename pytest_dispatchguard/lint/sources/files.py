"""Find the files of a run; read and write them without changing any other byte."""

# ruff: noqa: PTH101, PTH105, PTH108, PTH110, PTH113, PTH116, PTH118, PTH119, PTH120, PTH123
# Paths are strings here, for speed: thousands of Path objects cost more than the search itself.

from __future__ import annotations

import codecs
import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.config.globs import glob_pattern
from pytest_dispatchguard.config.project_root import (
    ALWAYS_EXCLUDED,
    EXCLUDED_UNLESS_PACKAGE,
    is_project,
    top_package,
)
from pytest_dispatchguard.git import run_git
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.paths import absolute


@dataclass(frozen=True, slots=True)
class File:
    """A file on disk, with what shows whether it changed without reading it."""

    name: str
    """Absolute."""
    rel: str
    """Relative to the project root, forward slashes."""
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @property
    def path(self) -> Path:
        """Its path, made only on request: few files need it."""
        return Path(self.name)


@dataclass(frozen=True, slots=True)
class Discovery:
    """The files of a run; each list is sorted by relative path, without duplicates."""

    targets: tuple[File, ...]
    """The files to check."""
    project: tuple[File, ...]
    """All files that affect which functions are hot, including the targets."""
    notes: tuple[str, ...] = ()
    """Messages for the user about files that were skipped."""


@dataclass(frozen=True, slots=True)
class Source:
    """The contents of a file, with newlines exactly as they are."""

    rel: str
    data: bytes
    text: str
    """Without the byte order mark."""
    encoding: str
    bom: bool

    def encode(self, text: str) -> bytes:
        """The bytes of a changed text, in the encoding of the file."""
        if text == self.text:
            return self.data
        if self.rel.endswith(".ipynb"):
            raise UserError(f"{self.rel}: notebooks are not rewritten; change the cell by hand")
        mark = codecs.BOM_UTF8 if self.bom else b""
        try:
            if mark + self.text.encode(self.encoding) != self.data:
                raise UserError(
                    f"{self.rel}: cannot be rewritten: decoding as {self.encoding} and encoding "
                    "again changes bytes; save the file as UTF-8"
                )
            return mark + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise UserError(
                f"{self.rel}: cannot be rewritten: {self.encoding} has no "
                f"{error.object[error.start]!r}; save the file as UTF-8"
            ) from None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A finding that says where and why a file cannot be read as Python source."""

    rel: str
    line: int
    column: int
    message: str


@dataclass(slots=True)
class _Listing:
    """What a search has found so far."""

    excluded: Callable[[str, str, bool], bool]
    files: dict[str, File] = field(default_factory=dict)
    links: list[tuple[str, str]] = field(default_factory=list)
    tops: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def discover(paths: Sequence[Path], config: Config, *, cwd: Path | None = None) -> Discovery:
    """The files to check, and the files around them that decide what is hot.

    Excluded files are left out even when named, because pre-commit names every changed file. Files that git
    ignores are left out unless they are named.
    """
    base = Path.cwd() if cwd is None else cwd
    root = str(config.root)
    require(paths, base)
    asked = [absolute(base / path) for path in paths] or [base]
    listing = _Listing(_excluder(config))
    for top, deep in _context(asked, config):
        if deep:
            _list_folder(listing, root, str(top), _relative(str(top), root))
        else:
            _list_siblings(listing, root, top)
    _follow_links(listing, root)
    targets: dict[str, File] = {}
    for given, path in zip(paths or [base], asked, strict=True):
        rel = _relative(str(path), root)
        if is_excluded(rel + "/" * path.is_dir(), config):
            if path.is_dir():
                listing.notes.append(f"{rel}: excluded, so not checked")
            continue
        if path.is_dir():
            under = _under(listing.files, rel)
            if not under:
                _list_folder(listing, root, str(path), rel)
                _follow_links(listing, root)
                under = _under(listing.files, rel)
            targets.update(under)
        else:
            require_python(given, path)
            file = listing.files.get(rel) or _named(listing, path, rel, root)
            targets[file.rel] = listing.files.setdefault(file.rel, file)
    return Discovery(
        targets=tuple(targets[rel] for rel in sorted(targets)),
        project=tuple(listing.files[rel] for rel in sorted(listing.files)),
        notes=tuple(dict.fromkeys(listing.notes)),
    )


def require(paths: Iterable[Path], cwd: Path) -> None:
    """Check that all paths exist and can be read."""
    for given in paths:
        path = absolute(cwd / given)
        try:
            mode = os.stat(path).st_mode
            if stat.S_ISDIR(mode):
                os.scandir(path).close()
        except (FileNotFoundError, NotADirectoryError, ValueError):
            special = os.path.lexists(path)
            kind = "a broken link" if special else "no such file or directory"
            raise UserError(f"{given}: {kind}{_of_a_place(given, str(path))}") from None
        except OSError as error:
            raise UserError(f"{given}: cannot be read: {error.strerror or error}") from None
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            raise UserError(f"{given}: neither a file nor a directory")


def _of_a_place(given: Path, path: str) -> str:
    """What a line of a file was probably named for; empty for other paths."""
    file, _, line = path.rpartition(":")
    if not (line.isdecimal() and os.path.isfile(file)):
        return ""
    return f"; to fix that line, use dispatchguard fix --select {given}"


_PYTHON = (".py", ".pyi", ".pyw", ".ipynb")
FOUND = (".py", ".ipynb")
"""The folders to search."""
_SHEBANG = re.compile(rb"#!.*python")


def require_python(given: Path, path: Path, data: bytes | None = None) -> None:
    """Check that a file named by the user is Python source, by its suffix or its first line. A name without
    a suffix is accepted. `data` replaces what is on disk."""
    suffixes = (path.suffix, Path(_real(str(path))).suffix)
    if not path.suffix or any(suffix in _PYTHON for suffix in suffixes):
        return
    if data is None:
        try:
            with open(path, "rb") as file:
                data = file.read(128)
        except OSError:
            return  # reading it will show why
    if _SHEBANG.match(data) is None:
        raise UserError(
            f"{given}: not a Python file; name directories, or files that end in .py, .pyi or .ipynb"
        )


def is_excluded(rel: str, config: Config) -> bool:
    """Whether a path relative to the root (a folder's ends with a slash) is excluded, itself or by a folder
    above it."""
    excluded = _excluder(config)
    parts = [part for part in rel.split("/") if part and part != "."]
    for depth, name in enumerate(parts, 1):
        folder = depth < len(parts) or rel.endswith("/")
        if excluded("/".join(parts[:depth]), name, folder):
            return True
    return False


def rel_in(root: Path, place: Path) -> str:
    """The path of a file relative to the project, even if it does not exist; its full path if it is
    outside."""
    try:
        return place.resolve().relative_to(root.resolve()).as_posix()
    except (ValueError, OSError, RuntimeError):  # outside of the root, or on another drive
        return place.name


def read_source(path: Path, rel: str) -> Source | Unreadable:
    """The text of a file, decoded as Python does."""
    try:
        data = path.read_bytes()
    except OSError as error:
        return Unreadable(rel, 1, 1, f"cannot be read: {error.strerror or error}")
    return decode_source(data, rel)


def decode_source(data: bytes, rel: str) -> Source | Unreadable:
    """The text of bytes, decoded by their byte order mark or PEP 263 cookie, else as UTF-8."""
    if rel.endswith(".ipynb"):
        return _decode_notebook(data, rel)
    bom = data.startswith(codecs.BOM_UTF8)
    body = data[3:] if bom else data
    nul = body.find(b"\0")
    if nul >= 0:
        line, column = _position(body[:nul].decode("utf-8", "replace"))
        return Unreadable(rel, line, column, "contains a NUL byte: not Python source, or not UTF-8")
    encoding = "utf-8"
    cookie = _cookie(body)
    if cookie is not None:
        line, column, name = cookie
        try:
            codec = codecs.lookup(name)
            # codecs.lookup also accepts transformations of bytes, which are not source encodings.
            "".encode(name)
        except LookupError:
            return Unreadable(rel, line, column, f"unknown encoding: {name}")
        except ValueError:
            return Unreadable(rel, line, column, f"not an encoding for source: {name}")
        encoding = "utf-8" if codec.name == "utf-8-sig" else codec.name
        if bom and encoding != "utf-8":
            message = f"byte order mark says UTF-8, encoding comment says {name}"
            return Unreadable(rel, line, column, message)
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError as error:
        line, column = _position(body[: error.start].decode(encoding, "replace"))
        byte = body[error.start]
        cure = "; save it as UTF-8, or name its encoding (# -*- coding: latin-1 -*-)"
        advice = "" if cookie else cure
        return Unreadable(rel, line, column, f"byte 0x{byte:02x} is not {encoding.upper()}{advice}")
    except ValueError as error:
        return Unreadable(rel, 1, 1, f"cannot be decoded as {encoding}: {error}")
    return Source(rel, data, text, encoding, bom)


def leads_out(file: File, root: Path) -> bool:
    """Whether a file inside the project is really elsewhere, behind a link of the project."""
    above = os.path.join(str(root), "")
    return file.name.startswith(above) and not _real(file.name).startswith(
        os.path.join(_real(above), "")
    )


def _decode_notebook(data: bytes, rel: str) -> Source | Unreadable:
    from pytest_dispatchguard.lint.sources import notebooks  # few projects have any

    try:
        return Source(rel, data, notebooks.as_module(data.decode("utf-8-sig")), "utf-8", False)
    except UnicodeDecodeError as error:
        return Unreadable(rel, 1, 1, f"not a notebook: not UTF-8 at byte {error.start}")
    except notebooks.NotebookError as error:
        return Unreadable(rel, error.line, 1, str(error))


def write_source(path: Path, data: bytes) -> None:
    """Replace a file as a whole or not at all. Its mode stays, and a link keeps pointing to it."""
    target = _real(str(path))
    temporary = f"{target}.{os.urandom(4).hex()}.tmp"
    try:
        try:
            old: os.stat_result | None = os.stat(target)
        except FileNotFoundError:
            old = None
        if old is not None and not os.access(target, os.W_OK):
            raise UserError(f"{path}: cannot be written: the file is read-only")
        try:
            with open(temporary, "xb") as file:
                file.write(data)
            if old is not None:
                _take_over(temporary, old)
            os.replace(temporary, target)
        except BaseException:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from None


def _take_over(temporary: str, old: os.stat_result) -> None:
    if hasattr(os, "chown"):
        new = os.stat(temporary)
        if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
            try:
                os.chown(temporary, old.st_uid, old.st_gid)
            except OSError:
                pass
    os.chmod(temporary, stat.S_IMODE(old.st_mode))


def _context(asked: Iterable[Path], config: Config) -> list[tuple[Path, bool]]:
    """Folders whose files give the context, and whether their subfolders do too."""
    if is_project(config):
        return [(config.root, True)]
    tops: dict[Path, bool] = {}
    for path in asked:
        package = top_package(path)
        if package is not None:
            tops[package] = True
        elif path.is_dir():
            tops[path] = True
        else:
            tops.setdefault(path.parent, False)
    return sorted(tops.items())


def _excluder(config: Config) -> Callable[[str, str, bool], bool]:
    """A test of relative path, name, is it a folder. Folders above it are known to be kept."""
    globs = [glob for glob in ALWAYS_EXCLUDED if "*" in glob] + list(config.exclude)
    pattern = re.compile("|".join(f"(?:{glob_pattern(glob).pattern})" for glob in globs), re.DOTALL)
    never = frozenset(ALWAYS_EXCLUDED)
    perhaps = frozenset(EXCLUDED_UNLESS_PACKAGE)
    root = str(config.root)

    def excluded(rel: str, name: str, folder: bool) -> bool:
        if not folder:
            return pattern.fullmatch(rel) is not None
        if name in never or pattern.fullmatch(rel + "/"):
            return True
        return name in perhaps and not os.path.isfile(os.path.join(root, rel, "__init__.py"))

    return excluded


def _list_folder(listing: _Listing, root: str, folder: str, rel: str) -> None:
    """Add the files of a folder: all, or those that git does not ignore."""
    listing.tops.append(_real(folder))
    if not _list_with_git(listing, root, folder, rel):
        _walk(listing, root, folder, rel)


def _list_with_git(listing: _Listing, root: str, folder: str, rel: str) -> bool:
    above = folder
    while not os.path.lexists(os.path.join(above, ".git")):
        if os.path.dirname(above) == above:
            return False
        above = os.path.dirname(above)
    answer = run_git(Path(folder), "ls-files", "-c", "-o", "--exclude-standard", "-z")
    if answer is None or answer.returncode:
        return False
    entries = [os.fsdecode(entry) for entry in answer.stdout.split(b"\0") if entry]
    if not entries:
        ignored = run_git(Path(folder), "check-ignore", "-q", ".")
        return ignored is not None and ignored.returncode == 1
    kept: dict[str, bool] = {"": True, rel.rstrip("/"): True}

    def keeps(directory: str) -> bool:
        known = kept.get(directory)
        if known is None:
            above, _, name = directory.rpartition("/")
            known = kept[directory] = keeps(above) and not listing.excluded(directory, name, True)
        return known

    start = "" if rel == "." else rel + "/"
    for entry in entries:
        nested = entry.endswith("/")
        path = start + entry.rstrip("/")
        directory, _, name = path.rpartition("/")
        # Besides Python files, only links to folders and nested repositories matter.
        if not (name.endswith(FOUND) or nested or "." not in name) or not keeps(directory):
            continue
        absolute = os.path.join(root, path)
        try:
            status = os.lstat(absolute)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode):
            if name.endswith(FOUND) and not listing.excluded(path, name, False):
                listing.files[path] = _file(absolute, path, status)
        elif stat.S_ISLNK(status.st_mode):
            listing.links.append((absolute, path))
        elif stat.S_ISDIR(status.st_mode) and not listing.excluded(path, name, True):
            if os.path.lexists(os.path.join(absolute, ".git")) and absolute != folder:
                if not _list_with_git(listing, root, absolute, path):
                    _walk(listing, root, absolute, path)
            else:
                _walk(listing, root, absolute, path)
    return True


def _walk(listing: _Listing, root: str, folder: str, rel: str) -> None:
    excluded = listing.excluded
    files = listing.files
    stack = [(folder, "" if rel == "." else rel + "/")]
    while stack:
        directory, prefix = stack.pop()
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    name = entry.name
                    path = prefix + name
                    if entry.is_dir(follow_symlinks=False):
                        if not excluded(path, name, True):
                            stack.append((entry.path, path + "/"))
                    elif entry.is_symlink():
                        listing.links.append((entry.path, path))
                    elif name.endswith(FOUND) and not excluded(path, name, False):
                        try:
                            status = entry.stat()
                        except FileNotFoundError:
                            continue
                        if stat.S_ISREG(status.st_mode):
                            files[path] = _file(entry.path, path, status)
        except OSError as error:
            listing.notes.append(f"{prefix or '.'}: skipped: {error.strerror or error}")


def _list_siblings(listing: _Listing, root: str, folder: Path) -> None:
    """Add the files of one folder, without its subfolders."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                rel = _relative(entry.path, root)
                if not entry.name.endswith(FOUND) or listing.excluded(rel, entry.name, False):
                    continue
                if entry.is_file(follow_symlinks=False):
                    listing.files[rel] = _file(entry.path, rel, entry.stat())
    except OSError as error:
        shown = _relative(str(folder), root)
        listing.notes.append(f"{shown}: skipped: {error.strerror or error}")


def _follow_links(listing: _Listing, root: str) -> None:
    """Follow links that lead out of the searched folders. Their contents have been seen, and a link to a
    parent folder would search more than the project."""
    while listing.links:
        links, listing.links = sorted(listing.links), []
        for link, rel in links:
            name = os.path.basename(rel)
            try:
                status = os.stat(link)
                real = os.path.realpath(link)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                circle = error.errno == errno.ELOOP
                if not circle and not listing.excluded(rel, name, False):
                    listing.notes.append(f"{rel}: skipped: {error.strerror or error}")
                continue
            folder = stat.S_ISDIR(status.st_mode)
            if listing.excluded(rel, name, folder):
                continue
            if any(_inside(real, top) or _inside(top, real) for top in listing.tops):
                continue
            if folder:
                listing.tops.append(real)
                _walk(listing, root, link, rel)
            elif name.endswith(FOUND) and stat.S_ISREG(status.st_mode):
                listing.files[rel] = _file(link, rel, status)


def _real(path: str) -> str:
    """The path with links resolved, or unchanged if a link cannot be read."""
    try:
        return os.path.realpath(path)
    except OSError:
        return path


def _named(listing: _Listing, path: Path, rel: str, root: str) -> File:
    """A file named by the user that the search did not find. A link to a file that was found counts as that
    file."""
    if path.is_symlink():
        real = _relative(_real(str(path)), _real(root))
        if real in listing.files:
            return listing.files[real]
    try:
        return _file(str(path), rel, os.stat(path))
    except OSError as error:
        raise UserError(f"{rel}: {error.strerror or error}") from None


def _under(files: dict[str, File], rel: str) -> dict[str, File]:
    if rel == ".":
        return dict(files)
    return {path: file for path, file in files.items() if path.startswith(rel + "/")}


def _file(absolute: str, rel: str, status: os.stat_result) -> File:
    return File(
        absolute, rel, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
    )


def _relative(path: str, root: str) -> str:
    return os.path.relpath(path, root).replace(os.sep, "/")


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


_COOKIE = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_BLANK = re.compile(rb"[ \t\f]*(?:#.*)?")


def _cookie(body: bytes) -> tuple[int, int, str] | None:
    """Line, column and name of the encoding declared in the first two lines."""
    if b"coding" not in body[:1000]:
        return None
    for number, line in enumerate(re.split(rb"\r\n|\r|\n", body, maxsplit=2)[:2], 1):
        match = _COOKIE.match(line)
        if match:
            return number, match.start(1) + 1, match[1].decode("ascii")
        if not _BLANK.fullmatch(line):
            return None
    return None


_NEWLINE = re.compile(r"\r\n|\r|\n")


def _position(before: str) -> tuple[int, int]:
    """The line and column right after a text."""
    lines = _NEWLINE.split(before)
    return len(lines), len(lines[-1]) + 1
