"""Runs into a history, and out of it again: the last figures of every test, and one test from run to run."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_dispatchguard.history.databases import Database, at_url, in_file
from pytest_dispatchguard.history.schema import INTERVALS, migrate, version_of
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.history import Checkout, Kept, Point, Run, Trend
from pytest_dispatchguard.model.measurements import Interval

FILE = Path(".dispatchguard", "history.sqlite")
"""Where a project's history lies unless another place is named."""

_SQLITE = re.compile(r"sqlite(\+\w+)?:///")
"""Begins a URL that needs no SQLAlchemy: it names a file."""

_PLAIN = ("nodeid", "subject", "verdict", "reason", "counters", "reference_us")
_ENDS = tuple(f"{name}{end}" for name in INTERVALS for end in ("", "_low", "_high"))
_OF_RUN = ("at", "machine", "revision", "branch", "dirty")
_COLUMNS = ", ".join(
    (*(f"r.{name}" for name in _OF_RUN), *(f"f.{name}" for name in (*_PLAIN, *_ENDS)))
)
_JOINED = "FROM dispatchguard_figures f JOIN dispatchguard_runs r ON r.id = f.run"

_TREND = (
    f"SELECT {_COLUMNS} {_JOINED} WHERE f.test = :test AND f.run >= ("
    "SELECT MIN(newest.run) FROM (SELECT DISTINCT run FROM dispatchguard_figures WHERE test = :test "
    "ORDER BY run DESC LIMIT :last) newest) ORDER BY f.run, f.place"
)
_NEWEST = (
    f"SELECT {_COLUMNS}, newest.runs {_JOINED} JOIN ("
    "SELECT test, MAX(run) AS run, COUNT(DISTINCT run) AS runs FROM dispatchguard_figures GROUP BY test"
    ") newest ON newest.test = f.test AND newest.run = f.run ORDER BY f.nodeid, f.place"
)


def is_url(word: str) -> bool:
    """Whether a place is named by a URL, and not as a file."""
    return "://" in word


def path_in(word: str) -> str:
    """The path of the file that a URL of SQLite names; what is none stays."""
    return _SQLITE.sub("", word, count=1)


def database_at(place: str) -> Database:
    """The database that a URL or the path of a file names."""
    path = path_in(place)
    return at_url(path) if is_url(path) else in_file(Path(path).absolute())


def add(database: Database, run: Run, found: Sequence[Kept]) -> None:
    """Keeps a run: all of it or, where that fails, nothing."""
    migrate(database)
    number = "".join(c for c in run.at if c.isdigit()) + os.urandom(6).hex()
    columns = ("run", "test", "place", *_PLAIN, *_ENDS)
    marks = ", ".join(f":{name}" for name in columns)
    # A test that was run again in the same run counts as it was last.
    last = {(kept.node_id, kept.subject): kept for kept in found}.values()
    with database.begin(True) as transaction:
        transaction.put(
            "INSERT INTO dispatchguard_runs (id, at, machine, revision, branch, dirty) "
            "VALUES (:id, :at, :machine, :revision, :branch, :dirty)",
            [{"id": number, **_row_of_run(run)}],
        )
        transaction.put(
            f"INSERT INTO dispatchguard_figures ({', '.join(columns)}) VALUES ({marks})",
            [{"run": number, "place": i, **_row(kept)} for i, kept in enumerate(last)],
        )


def newest(database: Database) -> list[tuple[Point, int]]:
    """Every subject as it came out in the last run of its test, and how many runs there are of that."""
    _require(database)
    with database.begin(False) as transaction:
        return [(_point(row), row[-1]) for row in transaction.ask(_NEWEST, {})]


def trends(database: Database, node_id: str, last: int) -> list[Trend]:
    """The subjects of a test in its last runs; none where nothing is known of it."""
    return trends_of_all(database, [node_id], last)


def trends_of_all(database: Database, node_ids: Iterable[str], last: int) -> list[Trend]:
    """The same of several tests."""
    _require(database)
    found: dict[tuple[str, str], list[Point]] = {}
    with database.begin(False) as transaction:
        for node_id in node_ids:
            rows = transaction.ask(_TREND, {"test": _digest(node_id), "last": last})
            for point in map(_point, rows):
                found.setdefault((node_id, point.kept.subject), []).append(point)
    return [Trend(tuple(points)) for points in found.values()]


def _require(database: Database) -> None:
    """Has the tables there in this version, and tells where nothing was ever kept."""
    if not version_of(database):
        raise UserError(
            f"{database.name}: no history in it yet; `pytest --overhead-budget=count "
            "--overhead-history` starts one"
        )
    migrate(database)


def _digest(node_id: str) -> str:
    return hashlib.sha256(_text(node_id).encode()).hexdigest()


def _text(text: str) -> str:
    """A text as every database holds it: names of files may hold bytes of no encoding."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def _row_of_run(run: Run) -> dict[str, object]:
    dirty = run.checkout.dirty
    return {
        "at": run.at,
        "machine": json.dumps(dict(run.machine)),
        "revision": run.checkout.commit,
        "branch": _text(run.checkout.branch),
        "dirty": None if dirty is None else int(dirty),
    }


def _row(kept: Kept) -> dict[str, object]:
    row: dict[str, object] = {
        "test": _digest(kept.node_id),
        "nodeid": _text(kept.node_id),
        "subject": _text(kept.subject),
        "verdict": kept.verdict,
        "reason": _text(kept.reason),
        "counters": json.dumps(dict(kept.counters)),
        "reference_us": kept.reference_us,
    }
    for name in INTERVALS:
        figure: Interval | None = getattr(kept, name)
        ends = (None, None, None) if figure is None else (figure.value, figure.low, figure.high)
        for end, number in zip(("", "_low", "_high"), ends, strict=True):
            row[name + end] = number if number is not None and math.isfinite(number) else None
    return row


def _point(row: Sequence[Any]) -> Point:
    names = (*_OF_RUN, *_PLAIN, *_ENDS)
    said = dict(zip(names, row, strict=False))
    dirty = None if said["dirty"] is None else bool(said["dirty"])
    checkout = Checkout(said["revision"], said["branch"] or "", dirty)
    kept = Kept(
        said["nodeid"],
        said["subject"],
        said["verdict"],
        json.loads(said["counters"]),
        said["reason"],
        **{name: _interval(said, name) for name in INTERVALS},
        reference_us=said["reference_us"],
    )
    return Point(Run(said["at"], json.loads(said["machine"]), checkout), kept)


def _interval(said: Mapping[str, Any], name: str) -> Interval | None:
    value, low, high = (said[name + end] for end in ("", "_low", "_high"))
    if value is None:
        return None
    return Interval(value, -math.inf if low is None else low, math.inf if high is None else high)
