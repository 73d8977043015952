"""The results of earlier runs, as text in one SQLite file. Losing it costs only time."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pytest_dispatchguard import project_folder
from pytest_dispatchguard.lint.sources.files import File
from pytest_dispatchguard.lint.store.signatures import Seals, own_seals
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.project_folder import FOLDER, Folder

_T = TypeVar("_T")

NAME = "cache.sqlite"

_APPLICATION = 0x44475552
_SCHEMA = "2"
KEPT_LEAST = 1000
"""Values of each kind that are kept even for the smallest project."""
_HEADER = b"SQLite format 3\0"
_USUAL_JOURNAL = b"\1\1"
_LAST_FORM = 4
_BUSY_SECONDS = 2.0
_BATCH = 500

_SCRIPT = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE rows (
    namespace TEXT, key TEXT, value TEXT NOT NULL, seal BLOB NOT NULL,
    PRIMARY KEY (namespace, key)
);
CREATE TABLE stamps (
    path TEXT PRIMARY KEY, hash TEXT NOT NULL, seal BLOB NOT NULL
) WITHOUT ROWID
"""
_TABLES = tuple(statement.strip() for statement in _SCRIPT.split(";"))
_MADE = frozenset(statement.encode() for statement in _TABLES)

# A file rewritten within one clock tick keeps its times; such a stamp proves nothing.
_RACY_NS = 2_000_000_000


class Store(Protocol):
    """Stores texts by key, separately for each kind."""

    def get_many(self, namespace: str, keys: Iterable[str]) -> dict[str, str]:
        """The values of the keys that have one."""

    def put_many(self, namespace: str, values: Mapping[str, str]) -> None:
        """Store values."""

    def trim(self, namespace: str, most: int) -> None:
        """Drop the oldest values, so that at most so many remain, plus a few more."""


class Memory:
    """A store in memory."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, str]] = {}

    def get_many(self, namespace: str, keys: Iterable[str]) -> dict[str, str]:
        """The values of the keys that have one."""
        known = self._values.get(namespace, {})
        return {key: known[key] for key in keys if key in known}

    def put_many(self, namespace: str, values: Mapping[str, str]) -> None:
        """Store values; the latest are kept longest."""
        known = self._values.setdefault(namespace, {})
        for key, value in values.items():
            known.pop(key, None)
            known[key] = value

    def trim(self, namespace: str, most: int) -> None:
        """Drop the oldest values, as a `Cache` does."""
        known = self._values.get(namespace, {})
        for key in list(known)[: -(most + KEPT_LEAST)]:
            del known[key]


@dataclass(frozen=True, slots=True)
class Cache:
    """An open cache, or one that stores nothing if no file can be used. It returns only what a run with
    the same key stored; anything else in the file is ignored."""

    connection: sqlite3.Connection | None
    path: Path
    version: str
    """As written in the file, signed with the key."""
    seals: Seals
    notes: tuple[str, ...] = ()
    """Notes for the report: what was wrong with the file."""

    @classmethod
    def open(cls, path: Path, version: str) -> Cache:
        """Open the cache file. Create it if it is missing, of another version, or broken.

        A database that belongs to something else is left alone. Nothing here ever fails a run.
        """
        nothing = cls(None, path, version, Seals(b""))
        try:
            seals, version = _of_version(own_seals(os.environ), version)
            with project_folder.made(path.parent) as folder:
                kind = _kind(folder, path.name)
                if kind == "foreign":
                    note = f"{path}: not a dispatchguard cache, so left as it is; running without a cache"
                    return replace(nothing, notes=(note,))
                connection, broken = _opened(folder, path, version, broken=kind == "broken")
        except UserError as error:
            return replace(nothing, notes=(f"running without a cache: {error}",))
        except (OSError, sqlite3.Error):
            return nothing
        note = f"{path}: the cache was broken and has been recreated"
        return cls(connection, path, version, seals, (note,) if broken else ())

    @classmethod
    def in_memory(cls) -> Cache:
        """A cache without a file."""
        path = Path(":memory:")
        return cls(_connect(path, _SCHEMA), path, _SCHEMA, Seals(os.urandom(16)))

    def close(self) -> None:
        """Close the file."""
        if self.connection is not None:
            self.connection.close()

    def get_many(self, namespace: str, keys: Iterable[str]) -> dict[str, str]:
        """The values of the keys that have one."""
        wanted = [key for key in keys if _storable(key)]
        wrong: list[str] = []
        seal_of = self.seals.of(namespace)

        def select(connection: sqlite3.Connection) -> dict[str, str]:
            found: dict[str, str] = {}
            for start in range(0, len(wanted), _BATCH):
                batch = wanted[start : start + _BATCH]
                marks = ",".join("?" * len(batch))
                query = (
                    f"SELECT key, value, seal FROM rows WHERE namespace = ? AND key IN ({marks})"
                )
                for key, value, seal in connection.execute(query, (namespace, *batch)):
                    # A broken file may contain anything.
                    ours = type(key) is type(value) is bytes and seal == seal_of(key, value)
                    if ours:
                        found[key.decode()] = value.decode()
                    else:
                        wrong.append(_text(key))
            return found

        found = self._transact("DEFERRED", select) or {}
        if wrong:
            self._forget(namespace, wrong)
        return found

    def _forget(self, namespace: str, keys: Iterable[str]) -> None:
        """Delete rows that nobody can use, so that their keys do not count as known."""
        rows = [(namespace, key) for key in keys]
        delete = "DELETE FROM rows WHERE namespace = ? AND key = ?"
        self._transact("IMMEDIATE", lambda connection: connection.executemany(delete, rows))

    def keys(self, namespace: str) -> set[str]:
        """The keys of a kind."""
        query = "SELECT key FROM rows WHERE namespace = ?"
        rows = self._transact("DEFERRED", lambda c: c.execute(query, (namespace,)).fetchall())
        return {_text(key) for (key,) in rows or ()}

    def put_many(self, namespace: str, values: Mapping[str, str]) -> None:
        """Store values, all or none."""
        seal_of = self.seals.of(namespace)
        rows = [
            (namespace, key, value, seal_of(key.encode(), value.encode()))
            for key, value in values.items()
            if _storable(key) and _storable(value)
        ]
        insert = "INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)"
        if rows:
            self._transact("IMMEDIATE", lambda connection: connection.executemany(insert, rows))

    def trim(self, namespace: str, most: int) -> None:
        """Drop the oldest values, so that at most so many remain, plus a few more."""
        query = (
            "DELETE FROM rows WHERE namespace = ? AND rowid <= (SELECT rowid FROM rows"
            " WHERE namespace = ? ORDER BY rowid DESC LIMIT 1 OFFSET ?)"
        )
        self._transact(
            "IMMEDIATE", lambda c: c.execute(query, (namespace, namespace, most + KEPT_LEAST))
        )

    def prune(self, namespace: str, keep: Collection[str]) -> None:
        """Drop all values except those to keep."""

        def delete(connection: sqlite3.Connection) -> None:
            query = "SELECT rowid, key FROM rows WHERE namespace = ?"
            rows = connection.execute(query, (namespace,)).fetchall()
            gone = [(number,) for number, key in rows if _text(key) not in keep]
            connection.executemany("DELETE FROM rows WHERE rowid = ?", gone)

        self._transact("IMMEDIATE", delete)

    def hashes(self, files: Iterable[File]) -> dict[str, str]:
        """Content hashes, by relative path, of files that have not been touched since these were stored."""
        query = "SELECT path, hash, seal FROM stamps"
        rows = self._transact("DEFERRED", lambda c: c.execute(query).fetchall())
        known = {_text(path): (digest, seal) for path, digest, seal in rows or ()}
        found: dict[str, str] = {}
        seal_of = self.seals.of("stamp")
        for file in files:
            digest, seal = known.get(file.rel, (None, None))
            if type(digest) is bytes and seal == _stamp(seal_of, file, digest):
                found[file.rel] = digest.decode()
        return found

    def put_hashes(self, files: Iterable[File], hashes: Mapping[str, str]) -> None:
        """Store content hashes by relative path, except for files changed just now."""
        seal_of = self.seals.of("stamp")
        latest = time.time_ns() - _RACY_NS
        rows = [
            (file.rel, hashes[file.rel], _stamp(seal_of, file, hashes[file.rel].encode()))
            for file in files
            if file.rel in hashes
            and max(file.mtime_ns, file.ctime_ns) < latest
            and _storable(file.rel)
        ]
        insert = "INSERT OR REPLACE INTO stamps VALUES (?, ?, ?)"
        if rows:
            self._transact("IMMEDIATE", lambda connection: connection.executemany(insert, rows))

    def prune_hashes(self, keep: Collection[str]) -> None:
        """Drop the hashes of all other paths."""

        def delete(connection: sqlite3.Connection) -> None:
            rows = connection.execute("SELECT path FROM stamps").fetchall()
            gone = [(path,) for (path,) in rows if _text(path) not in keep]
            connection.executemany("DELETE FROM stamps WHERE path = CAST(? AS TEXT)", gone)

        self._transact("IMMEDIATE", delete)

    def _transact(self, mode: str, work: Callable[[sqlite3.Connection], _T]) -> _T | None:
        """Run `work` in one short transaction. Return None if that is impossible: the file is locked,
        read-only, broken, or was taken over by another version."""
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
            _try_remove(self.path)  # broken in a part that opening does not check
            return None
        finally:
            _rollback(connection)


def cache_path(root: Path) -> Path:
    """The path of a project's cache."""
    return root / FOLDER / NAME


def clean(root: Path) -> bool:
    """Delete a project's cache; return whether there was one. Other files beside it stay."""
    path = cache_path(root)
    try:
        with project_folder.opened(path.parent) as folder:
            kind = _kind(folder, path.name)
            if kind == "missing":
                return False
            if kind == "foreign":
                raise UserError(f"{path}: not a dispatchguard cache; move it elsewhere")
            folder.remove_database(path.name)
        project_folder.remove_if_empty(path.parent)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UserError(f"{path}: cannot be removed: {error.strerror or error}") from None
    return True


def _kind(folder: Folder, name: str) -> str:
    """What is at our path: nothing, our cache, a broken file, or a foreign database. Raises `UserError`
    if it cannot be read."""
    folder.require_database(name)
    if folder.look(name) is None:
        return "missing"
    head = folder.read(name, 100)
    if not head:
        return "ours"
    if not head.startswith(_HEADER) or len(head) < 100:
        return "broken"
    if int.from_bytes(head[68:72], "big") != _APPLICATION:
        return "foreign"
    # File formats that SQLite takes for those of a later release, and opens read-only or refuses.
    usual = head[18:20] == _USUAL_JOURNAL and int.from_bytes(head[44:48], "big") <= _LAST_FORM
    return "ours" if usual else "broken"


def _stamp(seal_of: Callable[[bytes, bytes], bytes], file: File, digest: bytes) -> bytes:
    """The signature of a content hash, for a file in its current state."""
    of = b"%d %d %d %d %b" % (file.size, file.mtime_ns, file.ctime_ns, file.inode, digest)
    return seal_of(file.rel.encode("utf-8", "surrogatepass"), of)


def _of_version(seals: Seals, version: str) -> tuple[Seals, str]:
    """The signatures for one version, and the version as a file has to state it: nobody can write that
    without the key."""
    own = Seals(seals.of("version")(b"", f"{_SCHEMA}:{version}".encode()))
    return own, f"{_SCHEMA}:{own.of('version')(b'', b'').hex()}"


class _OtherTablesError(Exception):
    """A file has other tables than a cache, or objects that are not tables, so nothing in it is read."""


def _opened(
    folder: Folder, path: Path, version: str, *, broken: bool
) -> tuple[sqlite3.Connection | None, bool]:
    """The database of a cache, and whether the previous one was broken; None if it is locked."""
    if broken:
        folder.remove_database(path.name)
    folder.create(path.name)  # SQLite would follow a link to create it
    try:
        return _connect(path, version), broken
    except sqlite3.OperationalError:
        return None, broken
    except (sqlite3.DatabaseError, _OtherTablesError) as error:
        broken = isinstance(error, sqlite3.Error)
    folder.remove_database(path.name)
    folder.create(path.name)
    return _connect(path, version), broken


def _connect(path: Path, version: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
    connection.text_factory = bytes  # what is signed; in a broken file it may not be decodable
    try:
        # A power failure may destroy the cache; waiting for the disk would slow down every run.
        connection.execute("PRAGMA synchronous = OFF")
        tables = _tables(connection)
        if tables and tables != _MADE:
            raise _OtherTablesError
        if not tables or _version(connection) != version:
            connection.execute("BEGIN IMMEDIATE")
            if _version(connection) != version:
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                for table in ("meta", "rows", "stamps"):
                    connection.execute(f"DROP TABLE IF EXISTS {table}")
                for statement in _TABLES:
                    connection.execute(statement)
                connection.execute("INSERT INTO meta VALUES ('version', ?)", (version,))
            connection.execute("COMMIT")
    except BaseException:
        _rollback(connection)
        connection.close()
        raise
    return connection


def _tables(connection: sqlite3.Connection) -> set[bytes]:
    """The SQL of the tables, views and triggers of a file."""
    query = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"
    return {sql for (sql,) in connection.execute(query)}


def _version(connection: sqlite3.Connection) -> str | None:
    try:
        row = connection.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return None
        raise
    return None if row is None else _text(row[0])


def _rollback(connection: sqlite3.Connection) -> None:
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    except sqlite3.Error:
        pass


def _try_remove(path: Path) -> None:
    """Delete a cache, so that the next run creates it again."""
    try:
        with project_folder.opened(path.parent) as folder:
            folder.remove_database(path.name)
    except (OSError, UserError):
        pass


def _text(value: Any) -> str:
    """A value from SQLite as text, whatever its type."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _storable(text: str) -> bool:
    """Whether SQLite can store a text: file names may contain undecodable bytes."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
