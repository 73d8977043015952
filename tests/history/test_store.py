"""Runs that are kept come back as they were, in every kind of database."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_dispatchguard.history import store
from pytest_dispatchguard.history.databases import Database
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.history import Checkout, Kept, Run
from pytest_dispatchguard.model.measurements import Interval

Runs = Callable[..., Run]
Keeps = Callable[..., Kept]


def test_a_run_comes_back_as_it_was(database: Database, run: Runs, kept: Keeps) -> None:
    whole = kept(
        14,
        extra_us=Interval(0.5, -math.inf, math.inf),
        device_us=Interval(9.0, 8.0, 10.0),
        reference_us=2.0,
        verdict="fail",
        reason="ratio: 1.5, allowed 1",
    )
    plain = kept(3, "test_größe[✓ x]", ratio=None, host_us=None)
    store.add(database, run(1, Checkout("b" * 40, "", True)), [whole, plain])
    ((first, runs), (second, _)) = store.newest(database)
    assert (first.kept, second.kept, runs) == (whole, plain, 1)
    assert first.run == run(1, Checkout("b" * 40, "", True))
    (trend,) = store.trends(database, plain.node_id, 5)
    assert [point.kept for point in trend.points] == [plain]


def test_a_run_without_git_has_no_checkout(database: Database, run: Runs, kept: Keeps) -> None:
    store.add(database, run(1, Checkout()), [kept(1)])
    ((point, _),) = store.newest(database)
    assert point.run.checkout == Checkout("", "", None)


def test_a_trend_is_of_one_test_and_its_last_runs(
    database: Database, run: Runs, kept: Keeps
) -> None:
    for number in (2, 0, 1, 3):
        found = [kept(number), kept(10 + number, subject="g"), kept(7, "test_other")]
        store.add(database, run(number), found)
    f, g = store.trends(database, "tests/test_a.py::test_f", 3)
    assert [point.kept.counters["instructions"] for point in f.points] == [1, 2, 3]
    assert (g.subject, [p.kept.counters["instructions"] for p in g.points]) == ("g", [11, 12, 13])
    assert store.trends(database, "tests/test_a.py::test", 3) == []


def test_the_newest_figures_are_of_the_last_run_of_each_test(
    database: Database, run: Runs, kept: Keeps
) -> None:
    store.add(database, run(0), [kept(1), kept(5, "test_gone")])
    store.add(database, run(1), [kept(2)])
    found = [
        (point.kept.node_id.partition("::")[2], point.kept.counters["instructions"], runs)
        for point, runs in store.newest(database)
    ]
    assert found == [("test_f", 2, 2), ("test_gone", 5, 1)]


def test_a_test_that_ran_again_counts_as_it_was_last(
    database: Database, run: Runs, kept: Keeps
) -> None:
    store.add(database, run(0), [kept(1), kept(2)])
    ((point, _),) = store.newest(database)
    assert point.kept.counters["instructions"] == 2


def test_nothing_kept_yet_is_told(database: Database) -> None:
    with pytest.raises(UserError, match="no history in it yet"):
        store.newest(database)
    with pytest.raises(UserError, match="no history in it yet"):
        store.trends(database, "x", 1)


def test_a_file_is_also_named_by_a_url(tmp_path: Path, run: Runs, kept: Keeps) -> None:
    store.add(store.database_at(f"sqlite:///{tmp_path / 'h.sqlite'}"), run(0), [kept(1)])
    assert len(store.newest(store.database_at(str(tmp_path / "h.sqlite")))) == 1


_TEXTS = st.text(max_size=40)
_FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=32)
_ENDS = st.one_of(_FLOATS, st.just(math.inf))
_INTERVALS = st.none() | st.builds(lambda v, e: Interval(v, -abs(e), abs(e)), _FLOATS, _ENDS)


@settings(max_examples=25)
@given(
    st.lists(
        st.builds(
            Kept,
            _TEXTS.map(lambda text: f"t.py::{text}"),
            _TEXTS,
            st.sampled_from(["pass", "fail", "undecided", "skipped", "error"]),
            st.dictionaries(_TEXTS, st.integers(0, 2**70), max_size=3),
            _TEXTS,
            _INTERVALS,
            reference_us=st.none() | _FLOATS,
        ),
        max_size=5,
        unique_by=lambda kept: (kept.node_id, kept.subject),
    )
)
def test_whatever_is_kept_comes_back(found: list[Kept]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = store.database_at(f"{folder}/h.sqlite")
        store.add(database, Run("2026-01-01T00:00:00.000000Z", {}), found)
        back = [point.kept for point, _ in store.newest(database)]

    def texts(kept: Kept) -> tuple[str, ...]:
        # What no text column holds is written out.
        said = (kept.node_id, kept.subject, kept.reason)
        return tuple(t.replace("\0", "\\0") for t in said)

    assert sorted(map(texts, back)) == sorted(map(texts, found))
    by_name = {texts(kept): kept for kept in back}
    for kept in found:
        there = by_name[texts(kept)]
        assert (there.verdict, there.counters, there.ratio, there.reference_us) == (
            kept.verdict,
            kept.counters,
            kept.ratio,
            kept.reference_us,
        )
