"""Files under attack: two that write at once, one that is killed, and files that are no history."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_dispatchguard.history import store
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.history import Kept, Run

Runs = Callable[..., Run]
Keeps = Callable[..., Kept]

WRITER = """
import sys
from pytest_dispatchguard.history import store
from pytest_dispatchguard.model.history import Checkout, Kept, Run

place, name, runs, tests = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
database = store.database_at(place)
print("ready", flush=True)
sys.stdin.readline()
for number in range(runs):
    found = [Kept(f"t.py::test_{i}", name, "pass", {"instructions": number}) for i in range(tests)]
    at = f"2026-01-01T00:{number // 60:02}:{number % 60:02}.000000Z"
    store.add(database, Run(at, {"python": "3"}, Checkout()), found)
    print(number, flush=True)
"""


def writer(place: str, name: str, runs: int, tests: int) -> subprocess.Popen[str]:
    """A process that writes runs once it is told to."""
    words = [sys.executable, "-c", WRITER, place, name, str(runs), str(tests)]
    started = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None and started.stdout.readline() == "ready\n"
    return started


def go(started: subprocess.Popen[str]) -> None:
    assert started.stdin is not None
    started.stdin.write("go\n")
    started.stdin.flush()


def test_processes_that_write_at_once_lose_nothing(place: str) -> None:
    names = ("one", "other", "third")
    started = [writer(place, name, 15, 4) for name in names]
    for process in started:
        go(process)
    for process in started:
        process.communicate(timeout=300)
        assert process.returncode == 0
    trends = store.trends(store.database_at(place), "t.py::test_0", 1000)
    assert {trend.subject: len(trend.points) for trend in trends} == dict.fromkeys(names, 15)


@pytest.mark.skipif(sys.platform == "win32", reason="processes are killed otherwise there")
@pytest.mark.parametrize("after", [1, 2, 5])
def test_a_writer_that_is_killed_leaves_whole_runs(tmp_path: Path, after: int) -> None:
    place = str(tmp_path / "h.sqlite")
    process = writer(place, "one", 1000, 300)
    go(process)
    assert process.stdout is not None
    for _ in range(after):
        process.stdout.readline()
    threading.Event().wait(
        0.003 * after
    )  # into the middle of a run, or not: either way all is whole
    os.kill(process.pid, signal.SIGKILL)
    told = after + len(process.communicate()[0].splitlines())
    database = store.database_at(place)
    rows = store.newest(database)
    assert len(rows) == 300
    (kept,) = {runs for _, runs in rows}
    # What was told was kept; beside it at most the run that was kept and not yet told.
    assert kept in (told, told + 1)
    store.add(database, Run("2027-01-01T00:00:00.000000Z", {}), [rows[0][0].kept])
    assert sqlite3.connect(place).execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.skipif(sys.platform == "win32", reason="processes are killed otherwise there")
def test_a_writer_that_is_killed_within_a_run_leaves_nothing_of_it(
    tmp_path: Path, run: Runs, kept: Keeps
) -> None:
    place = str(tmp_path / "h.sqlite")
    store.add(store.database_at(place), run(0), [kept(1)])
    text = (
        "import os, sys\n"
        "from pytest_dispatchguard.history import store\n"
        "with store.database_at(sys.argv[1]).begin(True) as transaction:\n"
        '    transaction.put("INSERT INTO dispatchguard_runs (id, at, machine, revision) VALUES'
        " (:id, 'x', '{}', '')\", [{'id': str(n) * 9} for n in range(9999)])\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", text, place], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(store.newest(store.database_at(place))) == 1
    rows = sqlite3.connect(place).execute("SELECT COUNT(*) FROM dispatchguard_runs").fetchone()
    assert rows == (1,)


def _sqlite_of_others(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()


def _broken(path: Path) -> None:
    store.add(store.database_at(str(path)), Run("2026-01-01T00:00:00.0Z", {}), [])
    data = bytearray(path.read_bytes())
    data[100:4096] = os.urandom(3996)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: path.write_bytes(b"hello"), "not a history, or broken"),
        (lambda path: path.write_bytes(b"x" * 20_000), "not a history, or broken"),
        (_sqlite_of_others, "not a history database"),
        (_broken, "not a history, or broken"),
    ],
    ids=["short", "text", "of others", "broken"],
)
def test_a_file_that_is_no_history_is_told_and_left_as_it_is(
    tmp_path: Path, run: Runs, kept: Keeps, make: Callable[[Path], object], said: str
) -> None:
    path = tmp_path / "h.sqlite"
    make(path)
    before = path.read_bytes()
    database = store.database_at(str(path))
    for touched in (lambda: store.add(database, run(0), [kept(1)]), lambda: store.newest(database)):
        with pytest.raises(UserError, match=said) as told:
            touched()
        assert str(path) in str(told.value) and "\n" not in str(told.value)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["h.sqlite"]


def test_places_that_cannot_be_are_told(tmp_path: Path, run: Runs, kept: Keeps) -> None:
    for path, said in ((tmp_path, "is a directory"), (tmp_path / "no" / "h.sqlite", "cannot be")):
        with pytest.raises(UserError, match=said):
            store.add(store.database_at(str(path)), run(0), [kept(1)])


def test_urls_that_lead_nowhere_are_told_without_their_passwords(run: Runs) -> None:
    pytest.importorskip("sqlalchemy", reason="a URL needs SQLAlchemy")
    for url, said in (
        ("nosuch://me:secret@host/x", "SQLAlchemy does not know"),
        ("postgresql+nosuch://me:secret@host/x", "SQLAlchemy does not know"),
        ("postgresql://me:secret@host:port/x", "SQLAlchemy does not know"),
    ):
        with pytest.raises(UserError, match=said) as told:
            store.add(store.database_at(url), run(0), [])
        assert "secret" not in str(told.value) and "\n" not in str(told.value)


def test_a_url_without_sqlalchemy_is_one_line() -> None:
    text = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "from pytest_dispatchguard import cli\n"
        "sys.exit(cli.main(['history', '--history', 'postgresql://host/x']))\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install 'pytest-dispatchguard[history]'" in done.stderr


def test_a_file_needs_no_sqlalchemy(tmp_path: Path) -> None:
    text = (
        "import sys; from pytest_dispatchguard.history import store\n"
        "from pytest_dispatchguard.model.history import Run\n"
        "store.add(store.database_at(sys.argv[1]), Run('2026', {}), [])\n"
        "assert 'sqlalchemy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", text, str(tmp_path / "h.sqlite")], check=True)


def test_a_server_that_refuses_is_one_line_without_its_password(
    postgres: Callable[[], str],
) -> None:
    url = postgres().replace("postgres:@", "me:secret@")
    with pytest.raises(UserError, match=r'refuses: .*role "me" does not exist') as told:
        store.newest(store.database_at(url))
    assert "secret" not in str(told.value) and "\n" not in str(told.value)
