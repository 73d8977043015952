"""What holds for any gaps, windows, records, files and frames."""

from __future__ import annotations

import gzip
import json
import re
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.traces import stream
from pytest_dispatchguard.traces.frames import Files, is_library, of_stack, parsed
from pytest_dispatchguard.traces.idle import Launched, Windows, explained, windows
from pytest_dispatchguard.traces.timeline import Timeline

TIMES = st.integers(0, 60)


# -- gaps --------------------------------------------------------------------------------------------


@dataclass
class Waited:
    start: float
    end: float
    left: float


@st.composite
def spans(draw: st.DrawFn, most: int = 6) -> list[tuple[int, int]]:
    """Some that do not overlap, in order."""
    ends = sorted(draw(st.lists(TIMES, max_size=2 * most)))
    return [(a, b) for a, b in zip(ends[::2], ends[1::2], strict=False) if a < b]


@st.composite
def gaps(draw: st.DrawFn) -> tuple[int, int]:
    start = draw(TIMES)
    return start, start + draw(st.integers(1, 40))


@st.composite
def waited(draw: st.DrawFn) -> list[Waited]:
    """Waits, of which some have accounted for other gaps already."""
    return [Waited(a, b, draw(st.integers(0, b - a))) for a, b in draw(spans())]


@given(gaps(), st.none() | gaps(), waited(), spans(), st.booleans())
def test_parts_tile_a_gap(
    gap: tuple[int, int],
    launched: tuple[int, int] | None,
    waits: list[Waited],
    inputs: list[tuple[int, int]],
    closes: bool,
) -> None:
    launch = Launched(*launched) if launched else None
    parts = list(explained(*gap, launch, waits, inputs, closes=closes))
    assert (parts[0].start, parts[-1].end) == gap
    assert all(before.end == after.start for before, after in pairwise(parts))
    assert all(part.us > 0 for part in parts)
    for wait in waits:
        accounted = [part for part in parts if part.wait is wait]
        assert sum(part.us for part in accounted) <= wait.left
        assert all(part.start >= wait.start for part in accounted)
        assert not accounted or wait.end >= gap[0]
        assert not (accounted and launched) or wait.start < launched[0]
    for part in parts:
        assert (part.wait is not None) == (part.cause == "waits")
        if part.cause == "input":
            assert any(a <= part.start and part.end <= b for a, b in inputs)
        if part.cause == "late":
            assert not any(max(a, part.start) < min(b, part.end) for a, b in inputs)
    queued = (launched[1] <= gap[0]) if launched else closes
    assert [part.cause for part in parts].count("queued") == int(queued)


@given(gaps(), st.integers(1, 100))
def test_a_wait_in_which_a_gap_begins_accounts_for_its_length(
    gap: tuple[int, int], length: int
) -> None:
    start, end = gap
    wait = Waited(start - length + 1, start + 1, length)
    launch = Launched(max(start + 1, end - 1), end)
    (first, *_) = explained(start, end, launch, [wait])
    assert first.wait is wait and first.us == min(length, end - start)


# -- windows -----------------------------------------------------------------------------------------


@given(spans(), gaps())
def test_shares_of_windows(marked: list[tuple[int, int]], span: tuple[int, int]) -> None:
    steps = Windows([(a, b, str(a)) for a, b in marked])
    shares = dict(steps.shares(*span))
    for number, (a, b) in enumerate(marked):
        common = len(set(range(a, b)) & set(range(*span)))
        assert shares.get(number, 0) == common
    for time in range(101):
        inside = [number for number, (a, b) in enumerate(marked) if a <= time < b]
        assert steps.at(time) == (inside[0] if inside else None)


@given(st.lists(st.tuples(TIMES, TIMES, st.just("ProfilerStep#1"))), st.lists(TIMES), TIMES, TIMES)
def test_windows_never_overlap(
    steps: list[tuple[float, float, str]], optimized: list[float], first: float, last: float
) -> None:
    found, marked = windows(steps, optimized, first, last)
    spans = list(zip(found.starts, found.ends, strict=True))
    assert all(start < end for start, end in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert marked == any(start < end for start, end, _ in steps)
    if not marked and len(set(optimized)) > 1:
        assert len(found) == len(set(optimized)) - 1


# -- the order of time -------------------------------------------------------------------------------

RECORDS = st.tuples(
    st.floats(0, 1e17),
    st.floats(-1e17, 0),
    st.integers(0, 5),
    st.integers(0, 2**16 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(-(2**62), 2**62),
)


@given(st.lists(RECORDS, max_size=60), st.integers(1, 20))
def test_a_timeline_sorts(records: list[Any], in_memory: int) -> None:
    with Timeline(in_memory) as timeline:
        for record in records:
            timeline.add(record)
        assert [tuple(record) for record in timeline] == sorted(records)


# -- files -------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
EVENTS = st.lists(st.dictionaries(TEXT, VALUES, min_size=1, max_size=4), min_size=1, max_size=6)


@st.composite
def files(draw: st.DrawFn) -> tuple[str, list[Any]]:
    """The text of a file, and its events."""
    events = draw(EVENTS)
    bare = draw(st.booleans())
    members = {"schemaVersion": 1, "other": draw(VALUES), "traceEvents": events}
    if draw(st.booleans()):
        members = dict(reversed(members.items()))
    between, after = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t: ")]))
    text = json.dumps(
        events if bare else members,
        indent=draw(st.sampled_from([None, 0, 3])),
        separators=(between, after),
        ensure_ascii=draw(st.booleans()),
    )
    blanks = st.text(" \t\r\n", max_size=3)
    return draw(blanks) + text + draw(blanks), events


def read(content: bytes, chunk: int) -> tuple[list[Any], stream.Header]:
    """The events of a file that is read in pieces of this many bytes."""
    header = stream.Header()
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(stream, "_CHUNK", chunk):
        path = Path(folder, "trace.json")
        path.write_bytes(content)
        with mock.patch.object(stream._Reader._more, "__defaults__", (chunk,)):
            return list(stream.events(path, header)), header


@given(files(), st.integers(1, 40), st.booleans())
@settings(max_examples=40)
def test_any_file_is_read_as_json_reads_it(
    file: tuple[str, list[Any]], chunk: int, packed: bool
) -> None:
    text, events = file
    content = text.encode()
    found, header = read(gzip.compress(content) if packed else content, chunk)
    assert (found, header.damage, header.events) == (events, "", len(events))


@given(files(), st.integers(1, 40), st.data())
@settings(max_examples=40)
def test_what_is_cut_off_is_read_as_far_as_it_goes(
    file: tuple[str, list[Any]], chunk: int, data: st.DataObject
) -> None:
    text, events = file
    content = text.encode()
    cut = data.draw(st.integers(0, len(content.rstrip()) - 1))
    header = stream.Header()
    try:
        found, header = read(content[:cut], chunk)
    except UserError as error:
        assert "is no profiler trace" in str(error)
        return
    assert found == events[: len(found)]
    assert re.fullmatch(rf"it is cut off after {len(found)} events?", header.damage)


@given(files(), st.data())
@settings(max_examples=30)
def test_what_is_cut_off_while_packed(file: tuple[str, list[Any]], data: st.DataObject) -> None:
    text, events = file
    content = gzip.compress(text.encode())
    cut = data.draw(
        st.integers(2, len(content) - 9)
    )  # less than its checksum and length are missing
    try:
        found, header = read(content[:cut], 7)
    except UserError as error:
        assert "trace" in str(error)
        return
    assert found == events[: len(found)] and (header.damage or found == events)


# -- frames ------------------------------------------------------------------------------------------

PART = st.sampled_from(["a", "b", "src", "net.py", "lib"])
PATHS = st.lists(PART, min_size=1, max_size=4).map("/".join)


@given(st.sets(PATHS, max_size=5), PATHS, st.sampled_from(["", "/", "C:\\"]))
def test_a_file_is_found_by_the_end_of_its_path(paths: set[str], path: str, root: str) -> None:
    found = Files.of(paths).find(root + path.replace("/", "\\" if root.startswith("C") else "/"))
    ends = {one for one in paths if f"/{path}".endswith("/" + one)}
    if not root:
        ends |= {one for one in paths if f"/{one}".endswith("/" + path)}
    assert found is None or found in ends
    if path in paths:
        assert found == path or (not root and len(ends) > 1)
    if len(ends) == 1:
        assert ends == {found}


@given(PATHS, st.integers(0, 10**9 - 1), st.text(max_size=20))
def test_a_frame_is_taken_apart(path: str, line: int, function: str) -> None:
    assume(not is_library(f"/x/{path}"))
    found = parsed(f"/x/{path}({line}): {function}", Files(), exact=True)
    assert found is not None
    assert (found.file, found.line, found.function) == (f"/x/{path}", line, function)


@given(st.text(max_size=50))
def test_any_text_is_a_frame_or_none(text: str) -> None:
    of_stack(text, Files.of(["a.py"]), exact=False)
    is_library(text)


@given(st.permutations(range(4)))
def test_the_innermost_frame_of_the_project(order: list[int]) -> None:
    frames = [
        "/proj/src/net.py(4): forward",
        "torch/nn/modules/module.py(1501): _call_impl",
        "<built-in method linear>",
        "/opt/other/tool.py(9): run",
    ]
    stack = [frames[number] for number in order]
    line = of_stack(";".join(stack), Files.of(["src/net.py"]), exact=True)
    assert line is not None and (line.file, line.line, line.ours) == ("src/net.py", 4, True)
    users = [frame for frame in stack if frame.startswith("/")]
    line = of_stack(";".join(stack), Files(), exact=True)
    assert line is not None and users[0].startswith(line.file)


def test_the_longer_end_of_a_path_wins() -> None:
    files = Files.of(["net.py", "src/net.py"])
    assert files.find("/proj/src/net.py") == "src/net.py"
    assert files.find("/proj/net.py") == "net.py"


@pytest.mark.parametrize(
    "path", ["/x/site-packages/net.py", "/x/dist-packages/pkg/net.py", "site-packages/b/net.py"]
)
def test_an_installed_file_is_no_file_of_the_project(path: str) -> None:
    assert Files.of(["net.py", "src/net.py"]).find(path) is None
