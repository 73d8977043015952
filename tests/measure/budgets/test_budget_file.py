"""The budget file holds whatever tests are called, and says what is wrong with it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.measure.budgets.budget_file import (
    NAMES,
    as_text,
    load,
    updated,
    version_of,
)
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.verdicts import Verdict

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=20)
RECORDS = st.dictionaries(
    TEXT,
    st.dictionaries(
        TEXT, st.dictionaries(st.sampled_from(NAMES), st.integers(0, 10**12)), min_size=1
    ),
    max_size=5,
)


@given(RECORDS)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, record: object) -> None:
    path = tmp_path_factory.mktemp("budgets") / "overhead-budgets.toml"
    text = as_text(record)  # type: ignore[arg-type]  # a record, made above
    path.write_bytes(text.encode())
    assert load(path) == record
    assert as_text(load(path)) == text


def test_a_counter_that_moves_is_one_line_of_the_diff() -> None:
    before = {"t.py::a": {"python 3.11": {"instructions": 5}, "python 3.12": {"instructions": 4}}}
    verdict = Verdict("t.py::a", "f", "pass", {"instructions": 9})
    after = updated(before, [("t.py::a", verdict)], "python 3.11", lambda key: False)
    one, other = as_text(before).splitlines(), as_text(after).splitlines()
    assert [(a, b) for a, b in zip(one, other, strict=True) if a != b] == [
        ('"python 3.11" = { instructions = 5 }', '"python 3.11" = { instructions = 9 }')
    ]


def test_what_is_gone_goes_and_what_is_new_comes() -> None:
    verdict = Verdict("t.py::new", "f", "pass", {"py_calls": 1})
    record = {"t.py::old": {"v": {"py_calls": 2}}, "u.py::other": {"v": {"py_calls": 3}}}
    found = updated(record, [("t.py::new", verdict)], "v", lambda key: key == "t.py::old")
    assert found == {"t.py::new": {"v": {"py_calls": 1}}, "u.py::other": {"v": {"py_calls": 3}}}


def test_versions_are_minor_ones() -> None:
    assert version_of({"python": "3.11.7", "torch": "2.13.0+cpu"}) == "python 3.11, torch 2.13"


def test_no_file_records_nothing(tmp_path: Path) -> None:
    assert load(tmp_path / "overhead-budgets.toml") == {}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"[a", "not valid TOML"),
        (b"\xff", "not UTF-8"),
        (b"a = 1", '"a" holds no figures'),
        (b"[a]\nv = 1", '"a" holds no figures'),
        (b"[a]\nv = { speed = 1 }", '"a" holds no figures'),
        (b"[a]\nv = { py_calls = true }", '"a" holds no figures'),
        (b"<<<<<<< HEAD\n[a]\n", "not valid TOML"),
    ],
)
def test_a_broken_file_is_told(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "overhead-budgets.toml"
    path.write_bytes(data)
    with pytest.raises(UserError, match=said):
        load(path)


def test_a_folder_in_its_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "overhead-budgets.toml").mkdir()
    expected = "cannot be read" if sys.platform != "win32" else "overhead-budgets"
    with pytest.raises(UserError, match=expected):
        load(tmp_path / "overhead-budgets.toml")
