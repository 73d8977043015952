"""Files of `--overhead-json` read back, and several as one."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.history.verdict_files import joined, kept_in, read
from pytest_dispatchguard.model import Interval, Kept, Measurement, UserError, Verdict
from pytest_dispatchguard.report.verdicts import as_json

MACHINE = {"cpu": "one", "python": "3.11.7", "torch": "2.13.0"}


def verdict(name: str, instructions: int = 5, **said: Any) -> Verdict:
    return Verdict(f"tests/test_a.py::{name}", "f", "pass", {"instructions": instructions}, **said)


def whole(*verdicts: Verdict, **machine: str) -> dict[str, Any]:
    return read(as_json(verdicts, machine or MACHINE), "a.json")


def test_what_is_written_is_read() -> None:
    measured = Measurement(
        Interval(3.0, 2.0, 4.0),
        Interval(2.0, 1.0, 3.0),
        Interval(1.5, -math.inf, math.inf),
        Interval(1.0, 0.5, 1.5),
        Interval(9.0, 8.0, 10.0),
    )
    told = whole(verdict("test_a", measured=measured, reason="why"), verdict("test_b"))
    one, other = kept_in(told, "a.json")
    assert one == Kept(
        "tests/test_a.py::test_a",
        "f",
        "pass",
        {"instructions": 5},
        "why",
        ratio=Interval(1.5, -math.inf, math.inf),
        host_us=Interval(3.0, 2.0, 4.0),
        extra_us=Interval(1.0, 0.5, 1.5),
        device_us=Interval(9.0, 8.0, 10.0),
        reference_us=2.0,
    )
    assert (other.ratio, other.reference_us) == (None, None)


@given(st.text() | st.binary())
def test_whatever_is_no_such_file_is_told(data: str | bytes) -> None:
    with pytest.raises(UserError, match=r"^x\.json: is "):
        read(data, "x.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
ROW = whole(verdict("test_a", measured=Measurement(Interval(1.0, 1.0, 1.0))))["tests"][0]


@given(st.sampled_from(sorted(ROW)), JSON)
def test_a_row_with_anything_in_it_is_read_or_told(field: str, value: object) -> None:
    text = json.dumps({"schema": 1, "machine": {}, "tests": [{**ROW, field: value}]})
    try:
        assert len(read(text, "x.json")["tests"]) == 1
    except UserError as error:
        assert str(error).startswith("x.json: ")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": 2}, "is of schema 2, and this dispatchguard knows 1"),
        ({"machine": {"python": 3}}, "machine"),
        ({"machine": None}, "machine"),
        ({"tests": [{"nodeid": "a"}]}, "'subject' is missing"),
        ({"tests": {}}, "tests"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(change: dict[str, Any], said: str) -> None:
    text = json.dumps({"schema": 1, "machine": {}, "tests": [], **change})
    with pytest.raises(UserError, match=r"x\.json") as told:
        read(text, "x.json")
    assert said in str(told.value)


def test_shards_are_joined_in_order() -> None:
    files = [("b.json", whole(verdict("test_b"))), ("a.json", whole(verdict("test_a")))]
    both = joined(files)
    assert both == whole(verdict("test_a"), verdict("test_b"))
    assert joined(list(reversed(files))) == both
    assert joined([*files, *files]) == both


def test_a_test_in_two_files_must_be_the_same() -> None:
    files = [("a.json", whole(verdict("test_a", 5))), ("b.json", whole(verdict("test_a", 6)))]
    with pytest.raises(UserError, match=r"test_a \(f\) is in a\.json and b\.json, with different"):
        joined(files)


def test_versions_must_be_the_same_and_processors_need_not() -> None:
    files = [
        (f"{cpu}.json", whole(verdict(f"test_{cpu}"), cpu=cpu, python=python))
        for cpu, python in (("one", "3.11.7"), ("other", "3.11.7"), ("one", "3.11.7"))
    ]
    files[2] = ("third.json", whole(verdict("test_three"), cpu="one", python="3.11.7"))
    assert joined(files)["machine"] == {"cpu": "one, other", "python": "3.11.7"}
    files.append(("last.json", whole(verdict("test_last"), cpu="one", python="3.12.0")))
    with pytest.raises(UserError, match=r"python 3\.11\.7 and 3\.12\.0; merge them apart"):
        joined(files)
