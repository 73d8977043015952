"""Verdicts read back from their JSON: nothing is lost, and what is no such file is told as that."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.model.compiled import Compiled, CompileEvent, Guards
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.layers import Layer, LayerKind, Layers
from pytest_dispatchguard.model.measurements import CostlyLine, Interval, Measurement, Pace
from pytest_dispatchguard.model.verdicts import Base, Limit, Outcome, Verdict
from pytest_dispatchguard.report.budgets.read_json import load, unpacked
from pytest_dispatchguard.report.budgets.verdicts import as_json, explained

words = st.text(max_size=8)
numbers = st.floats(0, 1e6) | st.integers(0, 10**6)
whole = st.integers(0, 10**9)
intervals = st.builds(Interval, numbers, numbers | st.just(-math.inf), numbers | st.just(math.inf))
counts = st.dictionaries(words, whole, max_size=3)
# Paths in the working folder are told from there, and others by their last parts.
paths = words.filter(lambda text: not Path(text).is_absolute())
layers = st.builds(
    Layers,
    words,
    intervals,
    st.lists(
        st.builds(
            Layer,
            words,
            st.sampled_from(get_args(LayerKind)),
            intervals,
            whole,
            whole,
            words,
            paths,
            whole,
        ),
        max_size=3,
    ).map(tuple),
    whole,
    st.lists(words, max_size=2).map(tuple),
    words,
    counts,
    st.lists(words, max_size=2).map(tuple),
)
events = st.lists(st.builds(CompileEvent, words, words), max_size=2).map(tuple)
guards = st.builds(
    Guards, words, words, words, st.integers(1, 9), words, words, words, st.none() | whole
)
compiled = st.builds(
    Compiled,
    st.lists(guards, max_size=2).map(tuple),
    events,
    events,
    st.dictionaries(words, numbers, max_size=2),
    st.none() | intervals,
)
measured = st.builds(
    Measurement,
    intervals,
    st.none() | intervals,
    st.none() | intervals,
    st.none() | intervals,
    st.none() | intervals,
    numbers,
    whole,
    whole,
)
paces = st.builds(
    Pace,
    intervals,
    st.dictionaries(words, numbers, max_size=2),
    numbers,
    st.none() | intervals,
)
bases = st.builds(
    Base,
    words,
    counts,
    st.none() | measured,
    st.none() | intervals,
    words,
    layers=st.none() | layers,
    compiled=st.none() | compiled,
    earlier=st.booleans(),
    pace=st.none() | paces,
    other=st.lists(words, max_size=2).map(tuple),
)
limits = st.lists(st.builds(Limit, words, numbers, numbers), max_size=3, unique_by=lambda x: x.name)
verdicts = st.builds(
    Verdict,
    words,
    words,
    st.sampled_from(get_args(Outcome)),
    counts,
    limits.map(tuple),
    words,
    st.none() | st.dictionaries(words, numbers, max_size=2),
    st.lists(st.builds(CostlyLine, paths, whole, whole, words, st.none() | whole), max_size=3).map(
        tuple
    ),
    st.none() | measured,
    st.none() | bases,
    form=words,
    layers=st.none() | layers,
    reference_layers=st.none() | layers,
    compiled=st.none() | compiled,
)


@given(st.lists(verdicts, max_size=3), st.dictionaries(words, words, max_size=2))
def test_what_is_written_is_read_again(made: list[Verdict], machine: dict[str, str]) -> None:
    text = as_json(made, machine)
    assert as_json(*unpacked(text)) == text


OVER = Verdict(
    "t.py::test_a",
    "f",
    "fail",
    {"instructions": 42},
    (Limit("instructions", 10, 2),),
    "instructions: 42, allowed 10 + 2",
    lines=(CostlyLine("some/very/deep/folder/a.py", 3, 40, "x = 1", 12),),
    measured=Measurement(Interval(2.0, 1.5, 2.5), Interval(1.0, 0.9, 1.1), pairs=9, processes=1),
    base=Base("main", {"instructions": 30}, note="a note"),
    layers=Layers(
        "f",
        Interval(2.0, 1.5, 2.5),
        (Layer("g", "python", Interval(1.5, 1.0, 2.0), path="some/very/deep/folder/a.py", line=2),),
        9,
    ),
    reference_layers=Layers("torch.add", Interval(1.0, 0.9, 1.1), (), 9, functions=("h",)),
)


def test_a_failure_is_explained_in_the_same_words() -> None:
    (again,), machine = unpacked(as_json([OVER], {"python": "3.11.9"}))
    assert explained(again) == explained(OVER)
    assert "some/very/deep/folder/a.py:3" in explained(again)
    assert machine == {"python": "3.11.9"}


def test_a_file_of_before_is_read() -> None:
    """Fields that were added since may be missing."""
    data = json.loads(as_json([OVER], {}))
    (row,) = data["tests"]
    del row["lines"], row["layers"]["functions"], row["base"]["compiled"]
    for name in ("earlier", "pace", "other"):
        del row["base"][name]
    ((again,), _) = unpacked(json.dumps(data))
    assert (again.lines, again.reason) == ((), OVER.reason)


def changed(at: list[str | int], value: object) -> str:
    data: Any = json.loads(as_json([OVER], {"python": "3"}))
    *way, last = at
    row = data
    for step in way:
        row = row[step]
    row[last] = value
    return json.dumps(data)


WHOLE = as_json([OVER], {"python": "3"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Expecting value"),
        (WHOLE[: len(WHOLE) // 2], "line"),
        ("[" * 100_000, ""),
        ("[]", "the file is list"),
        ("{}", "no schema"),
        ('{"schema": 1, "findings": []}', "no machine"),
        (changed(["schema"], 7), "its schema is 7, not 1"),
        (changed(["machine"], ["3"]), "machine is list"),
        (changed(["machine", "python"], 3), "machine is int"),
        (changed(["tests"], [3]), "tests is int"),
        (changed(["tests", 0, "verdict"], "great"), "'great' is none of pass, fail"),
        (changed(["tests", 0, "nodeid"], None), "nodeid is NoneType"),
        (changed(["tests", 0, "counters", "instructions"], 1.5), "no whole number"),
        (changed(["tests", 0, "limits", "instructions"], [1]), "a list of 1"),
        (changed(["tests", 0, "limits", "instructions"], True), "limits is no number"),
        (changed(["tests", 0, "host_us", "value"], None), "value is no number"),
        (WHOLE.replace('"value": 2.0', '"value": 1e999'), "value is no number"),
        (WHOLE.replace('"value": 2.0', '"value": NaN'), "NaN is no number"),
        (WHOLE.replace('"value": 2.0', f'"value": 1{"0" * 400}'), "value is no number"),
        (changed(["tests", 0, "layers", "layers", 0, "kind"], "magic"), "'magic' is none of"),
    ],
)
def test_what_is_no_such_file_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "verdicts.json"
    file.write_text(text)
    with pytest.raises(UserError) as error:
        load(file)
    assert "verdicts.json: has no verdicts" in str(error.value) and said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.json: cannot be read: No such file"):
        load(tmp_path / "none.json")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        load(tmp_path)
    (tmp_path / "a.json").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="cannot be read: 'utf-8' codec"):
        load(tmp_path / "a.json")
