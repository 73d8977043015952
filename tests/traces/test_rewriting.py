"""Traces written again: what went in comes out, as JSON, with more at its end."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.traces.rewriting import rewritten

EVENTS: list[dict[str, Any]] = [
    {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
    {"ph": "X", "cat": "cpu_op", "name": "größe\x1b", "pid": 1, "tid": 2, "ts": 1.5, "dur": 2},
    {"ph": "s", "id": 7, "pid": 1, "tid": 2, "ts": 1e300, "cat": "ac2g", "name": "ac2g"},
]
MARK = {"ph": "i", "name": "ours", "ts": 3.0}


def again(path: Path) -> Any:
    out = io.StringIO()
    rewritten(path, [MARK], out)

    def refused(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(out.getvalue(), parse_constant=refused)


def test_all_events_come_again_and_what_stands_beside_them(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    whole = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "A100"}],
        "baseTimeNanoseconds": 1234567890123456789,
        "displayTimeUnit": "ms",
        "traceEvents": EVENTS,
        "traceName": "trace.json",
    }
    path.write_bytes(gzip.compress(json.dumps(whole).encode()))
    assert again(path) == {**whole, "traceEvents": [*EVENTS, MARK]}


def test_a_bare_list_becomes_an_object(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(EVENTS))
    assert again(path) == {"traceEvents": [*EVENTS, MARK]}


def test_a_cut_off_file_ends_where_it_breaks_off(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    text = json.dumps({"traceEvents": EVENTS})
    path.write_text(text[: text.index('"id": 7')])
    assert again(path) == {"traceEvents": [*EVENTS[:2], MARK]}


def test_numbers_that_json_lacks_are_null(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": [{"ph": "X", "ts": NaN, "args": {"a": [Infinity, 1]}}]}')
    (event, _) = again(path)["traceEvents"]
    assert event == {"ph": "X", "ts": None, "args": {"a": [None, 1]}}


def test_depth_is_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    deep = "[" * 400 + "NaN" + "]" * 400
    path.write_text(f'{{"traceEvents": [{{"ph": "X", "args": {{"a": {deep}}}}}]}}')
    (event, _) = again(path)["traceEvents"]
    assert event["ph"] == "X" and "null" in json.dumps(event)


def test_members_do_not_pile_up(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    others = {f"m{n}": n for n in range(5000)} | {"long": "x" * 100_000}
    path.write_text(json.dumps({**others, "traceEvents": EVENTS}))
    assert len(again(path)) <= 102


def test_keys_that_are_no_names_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('{[1]: 2, "traceEvents": [{"ph": "X"}]}')
    assert again(path) == {"traceEvents": [{"ph": "X"}, MARK]}


def test_what_is_no_trace_is_said(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("{}")
    with pytest.raises(UserError, match="is no profiler trace"):
        again(path)
