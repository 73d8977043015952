"""The tables of a history, and how those of an earlier version become those of this one."""

from __future__ import annotations

from pytest_dispatchguard.history.databases import Database, Transaction
from pytest_dispatchguard.model.errors import UserError

INTERVALS = ("ratio", "host_us", "extra_us", "device_us")
"""Figures with a column each for the value, `_low` and `_high`; an end that nobody knows is null."""

_VERSION = "dispatchguard_schema"
_FIGURES = ", ".join(
    f"{name}{end} DOUBLE PRECISION" for name in INTERVALS for end in ("", "_low", "_high")
)

_FIRST = f"""
CREATE TABLE {_VERSION} (version INTEGER NOT NULL);
INSERT INTO {_VERSION} (version) VALUES (0);
CREATE TABLE dispatchguard_runs (
    id VARCHAR(40) PRIMARY KEY, at VARCHAR(40) NOT NULL, machine TEXT NOT NULL, revision VARCHAR(64) NOT NULL
);
CREATE TABLE dispatchguard_figures (
    run VARCHAR(40) NOT NULL REFERENCES dispatchguard_runs (id), test VARCHAR(64) NOT NULL,
    place INTEGER NOT NULL, nodeid TEXT NOT NULL, subject TEXT NOT NULL, verdict VARCHAR(16) NOT NULL,
    reason TEXT NOT NULL, counters TEXT NOT NULL, {_FIGURES}, reference_us DOUBLE PRECISION,
    PRIMARY KEY (run, test, place)
)
"""
_SECOND = """
ALTER TABLE dispatchguard_runs ADD COLUMN branch TEXT;
ALTER TABLE dispatchguard_runs ADD COLUMN dirty INTEGER;
CREATE INDEX dispatchguard_figures_of_test ON dispatchguard_figures (test, run)
"""

# What has been released is never changed: a new version is one more step. A run's id begins with its time, so
# that ids sort as runs do; `test` is a digest of the node id, which may be longer than an index can hold.
_STEPS = (_FIRST, _SECOND)

LATEST = len(_STEPS)
"""The version that this code reads and writes."""


def migrate(database: Database, to: int = LATEST) -> None:
    """Makes the tables that are missing, of this version or, for tests, an earlier one."""
    if version_of(database) >= to:
        return
    try:
        with database.begin(True) as transaction:
            for step in _STEPS[_version(database, transaction) : to]:
                for statement in step.split(";"):
                    transaction.put(statement, [{}])
            transaction.put(f"UPDATE {_VERSION} SET version = :version", [{"version": to}])
    except UserError:
        # On a server another process may have done it at the same time.
        if version_of(database) < to:
            raise


def version_of(database: Database) -> int:
    """The version of the tables that are there; 0 where there are none."""
    with database.begin(False) as transaction:
        return _version(database, transaction)


def _version(database: Database, transaction: Transaction) -> int:
    there = transaction.tables()
    if _VERSION not in there:
        if there and not database.shared:
            raise UserError(
                f"{database.name}: not a history database; left as it is. Name another file"
            )
        return 0
    rows = transaction.ask(f"SELECT version FROM {_VERSION}", {})
    version = int(rows[0][0]) if rows else 0
    if version > LATEST:
        raise UserError(
            f"{database.name}: was written by a newer dispatchguard (schema {version}; this one knows "
            f"{LATEST}) and is left as it is; upgrade dispatchguard"
        )
    return version
