"""What earlier runs found out, in one SQLite file of text: losing it costs only time."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from pytest_dispatchguard.lint.files import File
from pytest_dispatchguard.model import UserError

_T = TypeVar("_T")

FOLDER = ".dispatchguard"
NAME = "cache.sqlite"

_APPLICATION = 0x44475552
_SCHEMA = "1"
KEPT_LEAST = 1000
"""Values of a kind that are kept however small the project is."""
_HEADER = b"SQLite format 3\0"
_BUSY_SECONDS = 2.0
_BATCH = 500

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE rows (
    namespace TEXT, key TEXT, value TEXT NOT NULL, PRIMARY KEY (namespace, key)
);
CREATE TABLE stamps (
    path TEXT PRIMARY KEY, size INTEGER, mtime INTEGER, ctime INTEGER, inode INTEGER,
    hash TEXT NOT NULL
) WITHOUT ROWID
"""

# A file written again within one tick of the clock keeps its times; such a stamp proves nothing.
_RACY_NS = 2_000_000_000


class Store(Protocol):
    """Keeps texts by key, each kind for itself."""

    def get_many(self, namespace: str, keys: Iterable[str]) -> dict[str, str]:
        """The values of those keys that have one."""

    def put_many(self, namespace: str, values: Mapping[str, str]) -> None:
        """Keep values."""

    def trim(self, namespace: str, files: int, each: int = 4) -> None:
        """Forget the values kept longest ago, so that no more remain than so many for each file."""


class Memory:
    """A store that lasts as long as it is held."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, str]] = {}

    def get_many(self, namespace: str, keys: Iterable[str]) -> dict[str, str]:
        """The values of those keys that have one."""
        known = self._values.get(namespace, {})
        return {key: known[key] for key in keys if key in known}

    def put_many(self, namespace: str, values: Mapping[str, str]) -> None:
        """Keep values, the last ones longest."""
        known = self._values.setdefault(namespace, {})
        for key, value in values.items():
            known.pop(key, None)
            known[key] = value

    def trim(self, namespace: str, files: int, each: int = 4) -> None:
        """Forget the values kept longest ago, as a `Cache` does."""
        known = self._values.get(namespace, {})
        for key in list(known)[: -(each * files + KEPT_LEAST)]:
            del known[key]


@dataclass(frozen=True, slots=True)
class Cache:
    """An open cache, or one that remembers nothing where none can be kept."""

    connection: sqlite3.Connection | None
    path: Path
    version: str
    notes: tuple[str, ...] = ()
    """Lines for people: what was wrong with the file."""

    @classmethod
    def open(cls, path: Path, version: str) -> Cache:
        """Open the cache file, made anew where it is missing, of another version, or broken.

        A file that is somebody else's database is left alone. Nothing here ever fails a run.
        """
        version = f"{_SCHEMA}:{version}"
        try:
            kind = _kind(path)
            if kind == "foreign":
                note = f"{path}: not a dispatchguard cache, left alone; running without a cache"
                return cls(None, path, version, (note,))
            notes: tuple[str, ...] = ()
            if kind == "broken":
                _remove(path)
                notes = (f"{path}: the cache was broken and has been started anew",)
            make_folder(path.parent)
            try:
                return cls(_connect(path, version), path, version, notes)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    return cls(None, path, version, notes)
            _remove(path)
            note = f"{path}: the cache was broken and has been started anew"
            return cls(_connect(path, version), path, version, (note,))
        except (OSError, sqlite3.Error):
            return cls(None, path, version)

    @classmethod
    def in_memory(cls) -> Cache:
        """A cache that lasts as long as it is held, and takes no file."""
        path = Path(":memory:")
        return cls(_connect(path, _SCHEMA), path, _SCHEMA)

    def close(self) -> None:
        """Let the file go."""
        if self.connection is not None:
            self.connection.close()

    def get_many(self, namespace: str, keys: Iterable[str]) -> dict[str, str]:
        """The values of those keys that have one."""
        wanted = [key for key in keys if _storable(key)]

        def select(connection: sqlite3.Connection) -> dict[str, str]:
            found: dict[str, str] = {}
            for start in range(0, len(wanted), _BATCH):
                batch = wanted[start : start + _BATCH]
                marks = ",".join("?" * len(batch))
                query = f"SELECT key, value FROM rows WHERE namespace = ? AND key IN ({marks})"
                found.update(connection.execute(query, (namespace, *batch)))
            return found

        return self._transact("DEFERRED", select) or {}

    def keys(self, namespace: str) -> set[str]:
        """The keys of a kind."""
        query = "SELECT key FROM rows WHERE namespace = ?"
        rows = self._transact("DEFERRED", lambda c: c.execute(query, (namespace,)).fetchall())
        return {key for (key,) in rows or ()}

    def put_many(self, namespace: str, values: Mapping[str, str]) -> None:
        """Keep values, all or none."""
        rows = [
            (namespace, key, value)
            for key, value in values.items()
            if _storable(key) and _storable(value)
        ]
        insert = "INSERT OR REPLACE INTO rows VALUES (?, ?, ?)"
        if rows:
            self._transact("IMMEDIATE", lambda connection: connection.executemany(insert, rows))

    def trim(self, namespace: str, files: int, each: int = 4) -> None:
        """Forget the values kept longest ago, so that no more remain than so many for each file of the
        project, and a few more."""
        most = each * files + KEPT_LEAST
        query = (
            "DELETE FROM rows WHERE namespace = ? AND rowid <= (SELECT rowid FROM rows"
            " WHERE namespace = ? ORDER BY rowid DESC LIMIT 1 OFFSET ?)"
        )
        self._transact("IMMEDIATE", lambda c: c.execute(query, (namespace, namespace, most)))

    def prune(self, namespace: str, keep: Collection[str]) -> None:
        """Forget what is not kept."""

        def delete(connection: sqlite3.Connection) -> None:
            rows = connection.execute("SELECT key FROM rows WHERE namespace = ?", (namespace,))
            gone = [(namespace, key) for (key,) in rows.fetchall() if key not in keep]
            connection.executemany("DELETE FROM rows WHERE namespace = ? AND key = ?", gone)

        self._transact("IMMEDIATE", delete)

    def hashes(self, files: Iterable[File]) -> dict[str, str]:
        """Content hashes, by relative path, of files that nobody touched since they were kept."""
        rows = self._transact(
            "DEFERRED", lambda connection: connection.execute("SELECT * FROM stamps").fetchall()
        )
        known = {row[0]: row[1:] for row in rows or ()}
        return {
            file.rel: row[4]
            for file in files
            if (row := known.get(file.rel)) is not None
            and row[:4] == (file.size, file.mtime_ns, file.ctime_ns, file.inode)
        }

    def put_hashes(self, files: Iterable[File], hashes: Mapping[str, str]) -> None:
        """Keep content hashes by relative path, except of files changed just now."""
        latest = time.time_ns() - _RACY_NS
        rows = [
            (file.rel, file.size, file.mtime_ns, file.ctime_ns, file.inode, hashes[file.rel])
            for file in files
            if file.rel in hashes
            and max(file.mtime_ns, file.ctime_ns) < latest
            and file.inode < 2**63
            and _storable(file.rel)
        ]
        insert = "INSERT OR REPLACE INTO stamps VALUES (?, ?, ?, ?, ?, ?)"
        if rows:
            self._transact("IMMEDIATE", lambda connection: connection.executemany(insert, rows))

    def prune_hashes(self, keep: Collection[str]) -> None:
        """Forget the hashes of paths that are not kept."""

        def delete(connection: sqlite3.Connection) -> None:
            rows = connection.execute("SELECT path FROM stamps").fetchall()
            gone = [row for row in rows if row[0] not in keep]
            connection.executemany("DELETE FROM stamps WHERE path = ?", gone)

        self._transact("IMMEDIATE", delete)

    def _transact(self, mode: str, work: Callable[[sqlite3.Connection], _T]) -> _T | None:
        """Do work in one short transaction, or give None where there can be none: the file is
        locked, read-only, broken, or was taken over by a run of another version."""
        connection = self.connection
        if connection is None:
            return None
        try:
            connection.execute(f"BEGIN {mode}")
            if _version(connection) != self.version:
                return None
            result = work(connection)
            connection.execute("COMMIT")
            return result
        except sqlite3.OperationalError:
            return None
        except sqlite3.DatabaseError:
            _try_remove(
                self.path
            )  # broken inside, past what opening it looks at: the next run starts anew
            return None
        finally:
            _rollback(connection)


def cache_path(root: Path) -> Path:
    """Where a project's cache lies."""
    return root / FOLDER / NAME


def clean(root: Path) -> bool:
    """Drop a project's cache; whether there was one. What else lies beside it stays."""
    path = cache_path(root)
    try:
        kind = _kind(path)
        if kind == "missing":
            return False
        if kind == "foreign":
            raise UserError(f"{path}: not a dispatchguard cache; move it elsewhere")
        _remove(path)
        if {entry.name for entry in path.parent.iterdir()} == {".gitignore"}:
            (path.parent / ".gitignore").unlink()
            path.parent.rmdir()
    except OSError as error:
        raise UserError(f"{path}: cannot be removed: {error.strerror or error}") from None
    return True


def _kind(path: Path) -> str:
    """What lies at a path: missing, ours, broken (no database, though in our place), or foreign."""
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except IsADirectoryError:
        return "foreign"
    if not head:
        return "ours"
    if not head.startswith(_HEADER) or len(head) < 100:
        return "broken"
    return "ours" if int.from_bytes(head[68:72], "big") == _APPLICATION else "foreign"


def _connect(path: Path, version: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        # The cache may be lost to a power cut; waiting for the disk would cost every run.
        connection.execute("PRAGMA synchronous = OFF")
        if _version(connection) != version:
            connection.execute("BEGIN IMMEDIATE")
            if _version(connection) != version:
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                for table in ("meta", "rows", "stamps"):
                    connection.execute(f"DROP TABLE IF EXISTS {table}")
                for statement in _TABLES.split(";"):
                    connection.execute(statement)
                connection.execute("INSERT INTO meta VALUES ('version', ?)", (version,))
            connection.execute("COMMIT")
    except BaseException:
        _rollback(connection)
        connection.close()
        raise
    return connection


def _version(connection: sqlite3.Connection) -> str | None:
    try:
        row = connection.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return None
        raise
    return None if row is None else str(row[0])


def _rollback(connection: sqlite3.Connection) -> None:
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    except sqlite3.Error:
        pass


def make_folder(folder: Path) -> None:
    """Makes the folder of what is kept of a project, which git is to leave alone."""
    folder.mkdir(parents=True, exist_ok=True)
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")


def _remove(path: Path) -> None:
    for suffix in ("-journal", "-wal", "-shm", ""):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _try_remove(path: Path) -> None:
    try:
        _remove(path)
    except OSError:
        pass


def _storable(text: str) -> bool:
    """Whether SQLite can hold a text: names of files may hold bytes of no encoding."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
