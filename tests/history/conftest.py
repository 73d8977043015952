"""Histories of every kind: a file, one through SQLAlchemy, a PostgreSQL server where one can be started."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.history import store
from pytest_dispatchguard.history.databases import Database, at_url, in_file
from pytest_dispatchguard.model.history import Checkout, Kept, Run
from pytest_dispatchguard.model.measurements import Interval

_NAMES = itertools.count()
CLEAN = Checkout("a" * 40, "main", False)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Callable[[], str]]:
    """Makes an empty database on a server of its own; its URL."""
    missing = [name for name in ("sqlalchemy", "psycopg", "pgserver") if find_spec(name) is None]
    if missing:
        pytest.skip(f"a PostgreSQL server needs {', '.join(missing)}, not installed here")
    import pgserver
    from sqlalchemy import create_engine, text

    # Not in pytest's folder: root has the server run as somebody else, who may not enter there.
    folder = tempfile.mkdtemp(prefix="dispatchguard-postgres-")
    try:
        server = pgserver.get_server(folder)
    except Exception as error:  # noqa: BLE001 - whatever keeps it from starting here
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"no PostgreSQL server can be started here: {error}")
    whole = server.get_uri().replace("postgresql://", "postgresql+psycopg://")

    def made() -> str:
        name = f"history_{next(_NAMES)}"
        with create_engine(whole, isolation_level="AUTOCOMMIT").connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        before, _, host = whole.partition("/postgres?")
        return f"{before}/{name}?{host}"

    yield made
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty history is, as people name it."""
    if request.param == "postgres":
        url: str = request.getfixturevalue("postgres")()
        return url
    return str(tmp_path / "history.sqlite")


@pytest.fixture(params=["file", "sqlalchemy", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """An empty history."""
    path = tmp_path / "history.sqlite"
    if request.param == "sqlalchemy":
        pytest.importorskip("sqlalchemy", reason="a URL needs SQLAlchemy")
        return at_url(f"sqlite+pysqlite:///{path}")
    if request.param == "file":
        return in_file(path)
    return store.database_at(request.getfixturevalue("postgres")())


@pytest.fixture(scope="session")
def run() -> Callable[..., Run]:
    """A run of that number."""

    def made(number: int, checkout: Checkout = CLEAN, **machine: str) -> Run:
        at = f"2026-01-{1 + number // 24:02}T{number % 24:02}:00:00.000000Z"
        return Run(at, machine or {"cpu": "a cpu", "python": "3.11.7"}, checkout)

    return made


@pytest.fixture(scope="session")
def kept() -> Callable[..., Kept]:
    """What a run found of `f` of a test."""

    def made(instructions: int, test: str = "test_f", **said: Any) -> Kept:
        figures = {"ratio": Interval(1.5, 1.25, 1.75), "host_us": Interval(3.0, 2.0, 4.0)}
        rest = {"node_id": f"tests/test_a.py::{test}", "subject": "f", "verdict": "pass"}
        rest |= {"counters": {"instructions": instructions, "dispatches": 1}, **figures, **said}
        return Kept(**rest)

    return made
