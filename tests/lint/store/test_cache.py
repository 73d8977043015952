"""The cache: what it keeps, and that nothing that happens to its file stops a run."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_dispatchguard.lint.sources.files import File
from pytest_dispatchguard.lint.store import cache as module
from pytest_dispatchguard.lint.store.cache import KEPT_LEAST, Cache, Memory, cache_path, clean
from pytest_dispatchguard.lint.store.signatures import VARIABLE
from pytest_dispatchguard.model.errors import UserError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return cache_path(tmp_path)


@pytest.fixture
def cache(path: Path) -> Iterator[Cache]:
    opened = Cache.open(path, "1")
    yield opened
    opened.close()


def reopened(path: Path, version: str = "1") -> dict[str, str]:
    opened = Cache.open(path, version)
    try:
        return opened.get_many("facts", ["a", "b", "ü"])
    finally:
        opened.close()


def test_rows_outlive_the_run(cache: Cache, path: Path) -> None:
    values = {"a": "{}", "b": "x" * 100_000, "ü": "ü"}
    cache.put_many("facts", values)
    assert cache.get_many("facts", ["a", "b", "ü", "none"]) == values
    assert cache.get_many("other", ["a"]) == {}
    cache.put_many("facts", {"a": "new"})
    cache.close()
    assert reopened(path) == values | {"a": "new"}
    assert cache.notes == ()


def test_the_folder_is_not_for_git(cache: Cache, path: Path) -> None:
    assert (path.parent / ".gitignore").read_text(encoding="utf-8") == "*\n"


def test_many_rows(cache: Cache) -> None:
    values = {f"key{number}": str(number) for number in range(2_345)}
    cache.put_many("facts", values)
    assert cache.get_many("facts", values) == values
    assert cache.get_many("facts", []) == {}


def test_prune(cache: Cache) -> None:
    cache.put_many("facts", {"a": "1", "b": "2"})
    cache.put_many("other", {"a": "3"})
    cache.prune("facts", {"b"})
    assert cache.get_many("facts", ["a", "b"]) == {"b": "2"}
    assert cache.get_many("other", ["a"]) == {"a": "3"}


def test_names_that_no_encoding_holds(cache: Cache) -> None:
    cache.put_many("facts", {"\udce9": "x", "a": "y"})
    assert cache.get_many("facts", ["\udce9", "a"]) == {"a": "y"}


def test_another_version_starts_anew(cache: Cache, path: Path) -> None:
    cache.put_many("facts", {"a": "1"})
    assert reopened(path, "2") == {}
    # The older run goes on, and neither reads nor writes what is not its own.
    cache.put_many("facts", {"a": "1"})
    assert cache.get_many("facts", ["a"]) == {}
    assert reopened(path, "2") == {}


FILE = File("/p/a.py", "a.py", 10, 1_000, 2_000, 3)


def test_hashes_of_untouched_files(cache: Cache) -> None:
    cache.put_hashes([FILE], {"a.py": "hash", "other.py": "x"})
    assert cache.hashes([FILE]) == {"a.py": "hash"}
    for changed in (
        replace(FILE, size=11),
        replace(FILE, mtime_ns=1_001),
        replace(FILE, ctime_ns=2_001),
        replace(FILE, inode=4),
        replace(FILE, rel="b.py"),
    ):
        assert cache.hashes([changed]) == {}
    cache.prune_hashes({"b.py"})
    assert cache.hashes([FILE]) == {}


def test_a_file_changed_just_now_is_read_again(cache: Cache, tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    recent = replace(FILE, mtime_ns=(tmp_path / "a.py").stat().st_mtime_ns)
    cache.put_hashes([recent], {"a.py": "hash"})
    assert cache.hashes([recent]) == {}


@pytest.mark.parametrize("junk", [b"garbage", b"\0" * 8192, b"SQLite format 3\0 cut short"])
def test_garbage_in_our_place_is_replaced(path: Path, junk: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(junk)
    with closing_cache(path) as opened:
        assert len(opened.notes) == 1
        assert "recreated" in opened.notes[0]
        opened.put_many("facts", {"a": "1"})
    assert reopened(path) == {"a": "1"}


class closing_cache:  # noqa: N801 - used as contextlib.closing is
    def __init__(self, path: Path, version: str = "1") -> None:
        self.cache = Cache.open(path, version)

    def __enter__(self) -> Cache:
        return self.cache

    def __exit__(self, *_: object) -> None:
        self.cache.close()


def test_an_empty_file_is_filled(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    with closing_cache(path) as opened:
        assert opened.notes == ()
        opened.put_many("facts", {"a": "1"})
    assert reopened(path) == {"a": "1"}


def test_our_own_but_broken(cache: Cache, path: Path) -> None:
    cache.put_many("facts", {f"key{number}": "x" * 500 for number in range(500)})
    cache.close()
    data = bytearray(path.read_bytes())
    data[100:8192] = b"\xff" * (8192 - 100)
    path.write_bytes(data)
    with closing_cache(path) as opened:
        assert "recreated" in opened.notes[0]
        opened.put_many("facts", {"a": "1"})
    assert reopened(path) == {"a": "1"}


def test_broken_deep_inside_costs_one_run(cache: Cache, path: Path) -> None:
    cache.put_many("facts", {f"key{number}": "x" * 500 for number in range(500)})
    cache.close()
    data = bytearray(path.read_bytes())
    data[4 * 4096 :] = b"\xff" * (len(data) - 4 * 4096)
    path.write_bytes(data)
    with closing_cache(path) as opened:
        opened.get_many("facts", [f"key{number}" for number in range(500)])
        opened.put_many("facts", {"a": "1"})
    with closing_cache(path) as opened:
        opened.put_many("facts", {"a": "1"})
    assert reopened(path) == {"a": "1"}


def test_somebody_elses_database_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE precious (x)")
        other.execute("INSERT INTO precious VALUES (1)")
        other.commit()
    before = path.read_bytes()
    with closing_cache(path) as opened:
        assert "not a dispatchguard cache" in opened.notes[0]
        opened.put_many("facts", {"a": "1"})
        assert opened.get_many("facts", ["a"]) == {}
    assert path.read_bytes() == before
    with pytest.raises(UserError, match="not a dispatchguard cache"):
        clean(path.parent.parent)


def test_a_folder_in_the_way(path: Path) -> None:
    path.mkdir(parents=True)
    with closing_cache(path) as opened:
        opened.put_many("facts", {"a": "1"})
        assert opened.get_many("facts", ["a"]) == {}


def test_a_file_instead_of_the_folder(path: Path) -> None:
    path.parent.touch()
    with closing_cache(path) as opened:
        assert opened.connection is None
        assert opened.hashes([FILE]) == {}
        opened.prune("facts", ())
        assert "is no folder; remove it" in opened.notes[0]
    with pytest.raises(UserError, match="is no folder"):
        clean(path.parent.parent)


@pytest.mark.skipif(
    hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write everywhere"
)
def test_a_read_only_folder(path: Path) -> None:
    with closing_cache(path) as opened:
        opened.put_many("facts", {"a": "1"})
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        assert reopened(path) == {"a": "1"}
        with closing_cache(path) as opened:
            opened.put_many("facts", {"a": "2"})
        assert reopened(path) == {"a": "1"}
        assert reopened(path, "2") == {}
    finally:
        path.parent.chmod(0o755)


def test_a_locked_file_stops_nobody(
    cache: Cache, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.put_many("facts", {"a": "1"})
    monkeypatch.setattr(module, "_BUSY_SECONDS", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other, closing_cache(path) as mine:
        other.execute("BEGIN EXCLUSIVE")
        mine.put_many("facts", {"a": "2"})
        assert mine.get_many("facts", ["a"]) == {}
        with closing_cache(path) as late:
            assert late.connection is None
        other.execute("ROLLBACK")
        assert mine.get_many("facts", ["a"]) == {"a": "1"}


def test_an_interrupt_leaves_no_half_written_rows(cache: Cache, path: Path) -> None:
    cache.put_many("facts", {"a": "1"})

    def interrupt(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM rows")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache._transact("IMMEDIATE", interrupt)
    assert reopened(path) == {"a": "1"}
    cache.put_many("facts", {"b": "2"})
    assert reopened(path) == {"a": "1", "b": "2"}


def _hammer(path: Path, worker: int) -> None:
    opened = Cache.open(path, "1")
    for number in range(30):
        opened.put_many("facts", {f"{worker}-{number}": "x" * 1000, "shared": str(worker)})
        opened.get_many("facts", ["shared"])
    opened.close()


def test_two_runs_at_once(path: Path) -> None:
    context = multiprocessing.get_context("spawn" if os.name == "nt" else "fork")
    workers = [context.Process(target=_hammer, args=(path, number)) for number in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    with closing_cache(path) as opened:
        keys = [f"{worker}-{number}" for worker in range(2) for number in range(30)]
        assert len(opened.get_many("facts", keys)) == 60
        assert opened.notes == ()


def test_clean(cache: Cache, path: Path, tmp_path: Path) -> None:
    cache.close()
    assert clean(tmp_path) is True
    assert not path.parent.exists()
    assert clean(tmp_path) is False


def test_clean_leaves_what_else_is_there(cache: Cache, path: Path, tmp_path: Path) -> None:
    cache.close()
    profile = path.with_name("profile.json")
    profile.touch()
    assert clean(tmp_path) is True
    assert profile.exists()
    assert (path.parent / ".gitignore").exists()


def test_memory_forgets_what_was_kept_longest_ago() -> None:
    memory = Memory()
    memory.put_many("kind", {str(n): "old" for n in range(KEPT_LEAST)})
    memory.put_many("kind", {"0": "new", "more": "new"})
    memory.trim("kind", 0)
    assert memory.get_many("kind", ["0", "1", "2", "more"]) == {
        "0": "new",
        "2": "old",
        "more": "new",
    }
    assert memory.get_many("other", ["0"]) == {}


def test_a_cache_in_memory_takes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cache = Cache.in_memory()
    cache.put_many("kind", {"key": "value"})
    assert cache.get_many("kind", ["key"]) == {"key": "value"}
    cache.close()
    assert list(tmp_path.iterdir()) == []


# -- rows that no run of ours has written ----------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE rows SET value = '[]'",
        "UPDATE rows SET namespace = 'other' WHERE namespace = 'facts'",
        "UPDATE rows SET key = 'b' WHERE key = 'a'",
        "UPDATE rows SET seal = x'00'",
        "UPDATE rows SET value = 7, seal = 'text'",
        "UPDATE rows SET value = CAST(x'ff' AS TEXT)",
        (
            "UPDATE rows SET value = (SELECT value FROM rows WHERE key = 'c'), "
            "seal = (SELECT seal FROM rows WHERE key = 'c')"
        ),
    ],
)
def test_what_nobody_has_put_in_is_not_there(cache: Cache, path: Path, change: str) -> None:
    cache.put_many("facts", {"a": "1"})
    cache.put_many("other", {"c": "3"})
    cache.close()
    with closing(sqlite3.connect(path)) as other:
        other.execute(change)
        other.commit()
    with closing_cache(path) as opened:
        assert opened.get_many("facts", ["a", "b"]) == {}
        assert opened.get_many("other", ["a", "b"]) == {}
        assert opened.notes == ()
        # What cannot be used is no longer taken for known either, and can be put in again.
        assert not opened.keys("facts")
        opened.put_many("facts", {"a": "2"})
        assert opened.get_many("facts", ["a"]) == {"a": "2"}


def test_hashes_that_nobody_has_put_in(cache: Cache, path: Path) -> None:
    cache.put_hashes([FILE], {"a.py": "hash"})
    cache.close()
    for change in ("UPDATE stamps SET hash = 'other'", "UPDATE stamps SET path = 'b.py'"):
        with closing(sqlite3.connect(path)) as other:
            other.execute(change)
            other.commit()
        with closing_cache(path) as opened:
            assert opened.hashes([FILE, replace(FILE, rel="b.py")]) == {}


def test_rows_of_another_version_are_not_believed(cache: Cache, path: Path) -> None:
    """Not even in a file that says it is of this one."""
    cache.put_many("facts", {"a": "old"})
    with closing_cache(path.with_name("other.sqlite"), "2") as opened:
        said = opened.version
    cache.close()
    with closing(sqlite3.connect(path)) as other:
        other.execute("UPDATE meta SET value = ?", (said,))
        other.commit()
    assert reopened(path, "2") == {}


def test_rows_of_another_user_are_not_believed(
    cache: Cache, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.put_many("facts", {"a": "1"})
    monkeypatch.setenv(VARIABLE, str(tmp_path / "another.key"))
    assert reopened(path) == {}


@pytest.mark.parametrize(
    "planted",
    [
        "CREATE TRIGGER empty AFTER INSERT ON rows BEGIN DELETE FROM rows; END",
        (
            "DROP TABLE rows; CREATE VIEW rows AS"
            " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
            " SELECT 'facts' AS namespace, i AS key, i AS value, i AS seal FROM n"
        ),
    ],
    ids=["trigger", "endless view"],
)
def test_tables_that_do_more_than_keep_rows_are_not_asked(
    cache: Cache, path: Path, planted: str
) -> None:
    cache.close()
    with closing(sqlite3.connect(path)) as other:
        other.executescript(planted)
    with closing_cache(path) as opened:
        opened.put_many("facts", {"a": "1"})
        assert opened.notes == ()
    assert reopened(path) == {"a": "1"}


def test_without_a_key_there_is_no_cache(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "no folder" / "key"))
    with closing_cache(path) as opened:
        assert opened.connection is None
        (note,) = opened.notes
    assert note.startswith("running without a cache: ")
    assert "No such file or directory" in note
    assert not path.exists()


# -- what a repository may hold in the place of our files ------------------------------------------

needs_links = pytest.mark.skipif(os.name == "nt", reason="links are for administrators there")


@needs_links
@pytest.mark.parametrize("target", ["missing", "empty", "full"])
@pytest.mark.parametrize(
    "name",
    [".gitignore", "cache.sqlite", "cache.sqlite-journal", "cache.sqlite-wal", "cache.sqlite-shm"],
)
def test_nothing_is_done_through_a_link(path: Path, tmp_path: Path, name: str, target: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    if target != "missing":
        elsewhere.write_bytes(b"" if target == "empty" else b"precious")
    path.parent.mkdir()
    (path.parent / name).symlink_to(elsewhere)
    before = elsewhere.read_bytes() if elsewhere.exists() else None
    with closing_cache(path) as opened:
        opened.put_many("facts", {"a": "1"})
        (note,) = opened.notes
    assert f"{path.parent / name}: is a link" in note
    if name != ".gitignore":
        with pytest.raises(UserError, match="is a link"):
            clean(tmp_path)
    assert (elsewhere.read_bytes() if elsewhere.exists() else None) == before
    assert (path.parent / name).is_symlink()


@needs_links
def test_a_folder_that_is_a_link_is_not_used(path: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    cache_of_another = cache_path(elsewhere)
    with closing_cache(cache_of_another) as opened:
        opened.put_many("facts", {"a": "1"})
    before = {p: p.read_bytes() for p in cache_of_another.parent.iterdir()}
    path.parent.symlink_to(cache_of_another.parent, target_is_directory=True)
    with closing_cache(path) as opened:
        opened.put_many("facts", {"a": "2"})
        assert opened.get_many("facts", ["a"]) == {}
        (note,) = opened.notes
    assert f"{path.parent}: is a link" in note
    with pytest.raises(UserError, match="is a link"):
        clean(tmp_path)
    assert {p: p.read_bytes() for p in cache_of_another.parent.iterdir()} == before


@needs_links
def test_a_file_with_another_name_elsewhere_is_not_written(path: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    with closing_cache(path) as opened:
        opened.put_many("facts", {"a": "1"})
    os.link(path, elsewhere)
    before = elsewhere.read_bytes()
    with closing_cache(path) as opened:
        opened.put_many("facts", {"a": "2"})
        assert "has another name elsewhere" in opened.notes[0]
    assert elsewhere.read_bytes() == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_in_our_place_is_not_waited_for(path: Path) -> None:
    path.parent.mkdir()
    os.mkfifo(path)
    with closing_cache(path) as opened:
        assert "is no plain file" in opened.notes[0]


def test_a_journal_that_names_another_file_deletes_nothing(
    cache: Cache, path: Path, tmp_path: Path
) -> None:
    """SQLite rolls such a journal back, and deletes the file: here it shows that it would."""
    cache.put_many("facts", {"a": "1"})
    cache.close()
    victim = tmp_path / "victim"
    journal = path.with_name(f"{path.name}-journal")

    def plant() -> None:
        victim.write_bytes(b"precious")
        name = str(victim).encode()
        header = bytes.fromhex("d9d505f920a163d7") + b"".join(
            number.to_bytes(4, "big") for number in (0, 0, path.stat().st_size // 4096, 512, 4096)
        )
        end = (2**30 // 4096 + 1).to_bytes(4, "big") + name + len(name).to_bytes(4, "big")
        end += sum(name).to_bytes(4, "big") + bytes.fromhex("d9d505f920a163d7")
        journal.write_bytes(header.ljust(512, b"\0") + end)

    plant()
    with closing(sqlite3.connect(path)) as other:
        other.execute("SELECT count(*) FROM rows").fetchall()
    assert not victim.exists()

    plant()
    with closing_cache(path) as opened:
        opened.put_many("facts", {"a": "2"})
        assert "is not from a run of ours" in opened.notes[0]
    assert victim.read_bytes() == b"precious"


def test_a_journal_of_a_run_that_was_killed_is_rolled_back(path: Path) -> None:
    def begin() -> None:
        opened = Cache.open(path, "1")
        assert opened.connection is not None
        opened.put_many("facts", {str(n): "x" * 5000 for n in range(200)})
        opened.connection.execute("PRAGMA cache_size = 1")
        opened.connection.execute("BEGIN IMMEDIATE")
        opened.connection.execute("UPDATE rows SET value = 'half'")
        os._exit(0)

    process = multiprocessing.get_context("fork").Process(target=begin)
    process.start()
    process.join(60)
    assert path.with_name(f"{path.name}-journal").exists()
    with closing_cache(path) as opened:
        assert opened.notes == ()
        assert opened.get_many("facts", ["7"]) == {"7": "x" * 5000}


def test_a_git_ignore_that_a_full_disk_left_empty_is_mended(path: Path) -> None:
    path.parent.mkdir()
    (path.parent / ".gitignore").touch()
    with closing_cache(path) as opened:
        assert opened.notes == ()
    assert (path.parent / ".gitignore").read_text(encoding="utf-8") == "*\n"
