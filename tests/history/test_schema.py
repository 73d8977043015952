"""Tables of an earlier version become those of this one, and lose nothing; what is not ours is left alone."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_dispatchguard.history import schema, store
from pytest_dispatchguard.history.databases import Database
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.history import Checkout, Kept, Run

Runs = Callable[..., Run]
Keeps = Callable[..., Kept]


def written_by_the_first(database: Database, runs: int) -> None:
    """Rows as the first version wrote them: without branch and dirty."""
    schema.migrate(database, 1)
    with database.begin(True) as transaction:
        for number in range(runs):
            said = {"id": f"20260101{number:012}aa", "at": f"2026-01-01T00:00:00.{number:06}Z"}
            transaction.put(
                "INSERT INTO dispatchguard_runs (id, at, machine, revision) "
                "VALUES (:id, :at, :machine, :revision)",
                [{**said, "machine": '{"python": "3.11.7"}', "revision": "c" * 40}],
            )
            transaction.put(
                "INSERT INTO dispatchguard_figures (run, test, place, nodeid, subject, verdict, reason, "
                "counters, ratio, ratio_low, ratio_high, reference_us) VALUES "
                "(:id, :test, :place, :nodeid, 'f', 'pass', '', :counters, 1.5, 1.0, 2.0, 3.0)",
                [
                    {
                        "id": said["id"],
                        "test": store._digest(f"t.py::test_{place}"),
                        "place": place,
                        "nodeid": f"t.py::test_{place}",
                        "counters": json.dumps({"instructions": number}),
                    }
                    for place in range(3)
                ],
            )


def test_the_first_version_becomes_this_one(database: Database, run: Runs, kept: Keeps) -> None:
    written_by_the_first(database, 4)
    assert schema.version_of(database) == 1
    (trend,) = store.trends(database, "t.py::test_1", 10)
    assert schema.version_of(database) == schema.LATEST
    assert [point.kept.counters["instructions"] for point in trend.points] == [0, 1, 2, 3]
    point = trend.points[0]
    assert point.run.checkout == Checkout("c" * 40, "", None)
    assert point.kept.ratio is not None and point.kept.ratio.high == 2.0
    assert point.kept.reference_us == 3.0
    store.add(database, run(40), [kept(9)])
    assert len(store.newest(database)) == 4


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    database = store.database_at(str(path))
    written_by_the_first(database, 1)
    with sqlite3.connect(path) as connection:  # in the way of the second version
        connection.execute("CREATE INDEX dispatchguard_figures_of_test ON dispatchguard_runs (at)")
    with pytest.raises(UserError, match="already exists"):
        store.newest(database)
    assert schema.version_of(database) == 1
    columns = sqlite3.connect(path).execute("PRAGMA table_info(dispatchguard_runs)").fetchall()
    assert "dirty" not in {column[1] for column in columns}


def test_a_newer_version_is_told_and_left_alone(database: Database, run: Runs, kept: Keeps) -> None:
    store.add(database, run(0), [kept(1)])
    with database.begin(True) as transaction:
        transaction.put("UPDATE dispatchguard_schema SET version = :v", [{"v": 99}])
    for touched in (
        lambda: store.add(database, run(1), [kept(2)]),
        lambda: store.newest(database),
    ):
        with pytest.raises(UserError, match="newer dispatchguard") as told:
            touched()
        assert "\n" not in str(told.value)
    with database.begin(False) as transaction:
        assert transaction.ask("SELECT COUNT(*) FROM dispatchguard_runs", {})[0][0] == 1


def test_a_test_is_found_by_an_index(database: Database, run: Runs, kept: Keeps) -> None:
    store.add(database, run(0), [kept(1)])
    if database.shared:
        pytest.skip("a server chooses its plans by what is in its tables")
    with database.begin(False) as transaction:
        plan = transaction.ask(f"EXPLAIN QUERY PLAN {store._TREND}", {"test": "x", "last": 1})
    told = " ".join(str(row[-1]) for row in plan)
    assert "dispatchguard_figures_of_test" in told
    assert "SCAN f" not in told and "SCAN r" not in told
