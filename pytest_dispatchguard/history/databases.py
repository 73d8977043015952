"""Where a history is kept: a file of SQLite, or whatever SQLAlchemy reaches by a URL. Both take the same SQL,
with named parameters; nothing else here knows which it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pytest_dispatchguard import project_folder
from pytest_dispatchguard.model.errors import UserError

_BUSY_SECONDS = 30.0
"""How long to wait for others who write."""

Values = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Transaction:
    """What can be asked of a database until all of it holds, or nothing."""

    ask: Callable[[str, Values], list[Sequence[Any]]]
    """The rows that a query finds."""
    put: Callable[[str, Sequence[Values]], None]
    """Runs a statement for each of the values."""
    tables: Callable[[], set[str]]


@dataclass(frozen=True, slots=True)
class Database:
    """A place that keeps tables."""

    name: str
    """For people: without passwords."""
    begin: Callable[[bool], AbstractContextManager[Transaction]]
    """Begins a transaction, which may write or not; what goes wrong in it is a `UserError`."""
    shared: bool
    """Whether others may have tables in it."""


def in_file(path: Path) -> Database:
    """A file of SQLite; the path is absolute. It is made where it is missing."""
    return Database(str(path), partial(_in_file, path), shared=False)


@contextmanager
def _in_file(path: Path, writing: bool) -> Iterator[Transaction]:
    # The usual journal and no write-ahead log: the file can be copied by itself, writing takes milliseconds
    # once a run, and a log cannot be switched on while another process is at the file.
    if project_folder.is_within(path):
        _require_own(path)
    try:
        with closing(
            sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
        ) as connection:
            # Who is to write says so first: two that read cannot both go on to write.
            connection.execute("BEGIN IMMEDIATE" if writing else "BEGIN")

            def ask(sql: str, values: Values) -> list[Sequence[Any]]:
                return connection.execute(sql, values).fetchall()

            def put(sql: str, values: Sequence[Values]) -> None:
                for one in values:  # executemany takes no statement that makes tables
                    connection.execute(sql, one)

            def tables() -> set[str]:
                return {
                    name
                    for (name,) in ask("SELECT name FROM sqlite_master WHERE type = 'table'", {})
                }

            yield Transaction(ask, put, tables)
            connection.execute("COMMIT")
    except sqlite3.DatabaseError as error:
        raise UserError(_told(path, error)) from None


def _require_own(path: Path) -> None:
    """That nothing planted in the folder of a project is opened."""
    try:
        with project_folder.opened(path.parent) as folder:
            folder.require_database(path.name)
            folder.create(path.name)  # SQLite would make it through a link
    except OSError as error:
        said = error.strerror or error
        raise UserError(f"{path}: cannot be read and written: {said}") from None


def _told(path: Path, error: sqlite3.DatabaseError) -> str:
    """What is wrong with a file, in one line."""
    if path.is_dir():
        return f"{path}: is a directory; name a file"
    if "locked" in str(error):
        return f"{path}: locked by other processes for {_BUSY_SECONDS:.0f} s; try again"
    if isinstance(error, sqlite3.OperationalError):
        return f"{path}: cannot be read and written: {error}"
    return (
        f"{path}: not a history, or broken ({error}); left as it is. Move it, or name another file"
    )


def at_url(url: str) -> Database:
    """A database by its URL, as SQLAlchemy has it."""
    try:
        from sqlalchemy import create_engine
        from sqlalchemy.exc import ArgumentError
        from sqlalchemy.pool import NullPool
    except ImportError:
        raise UserError(
            "a history at a URL needs SQLAlchemy: pip install 'pytest-dispatchguard[history]'"
        ) from None
    scheme = url.partition("://")[0]
    try:
        engine = create_engine(url, poolclass=NullPool)
    except ImportError as error:
        raise UserError(
            f"a history at {scheme}:// needs a driver that is not installed: {error}"
        ) from None
    except (ArgumentError, ValueError):  # the message may hold what the URL does
        raise UserError(
            f"SQLAlchemy does not know the URL of the history, {scheme}://…; write it as "
            "postgresql+psycopg://USER@HOST/DATABASE"
        ) from None
    name = f"{scheme}://{engine.url.host or ''}/{engine.url.database or ''}"
    return Database(name, partial(_at_url, engine, name), shared=True)


@contextmanager
def _at_url(engine: Any, name: str, writing: bool) -> Iterator[Transaction]:
    from sqlalchemy import inspect, text
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with engine.begin() as connection:

            def ask(sql: str, values: Values) -> list[Sequence[Any]]:
                return list(connection.execute(text(sql), values))

            def put(sql: str, values: Sequence[Values]) -> None:
                connection.execute(text(sql), list(values))

            yield Transaction(ask, put, lambda: set(inspect(connection).get_table_names()))
    except SQLAlchemyError as error:
        lines = str(getattr(error, "orig", None) or error).strip().splitlines()
        said = lines[0] if lines else type(error).__name__
        raise UserError(f"{name}: the database refuses: {said}") from None
