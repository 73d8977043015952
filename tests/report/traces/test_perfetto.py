"""Marks on the timeline of a trace."""

from __future__ import annotations

import json
from typing import Any

from pytest_dispatchguard.model.trace_marks import Mark
from pytest_dispatchguard.model.traces import NOWHERE, Told
from pytest_dispatchguard.report.traces.perfetto import PROCESS, marked

from .conftest import ITEM, LOSS, STEP, told, trace

MARKS = (
    Mark("call", 100.0, 0.0, STEP, "", "", 0),
    Mark("wait", 110.0, 20.0, STEP, "cudaStreamSynchronize", "aten::item", 1),
    Mark("idle", 120.0, 15.0, STEP, "waits", "aten::item", 0),
    Mark("idle", 140.0, 5.0, NOWHERE, "late", "", 0),
    Mark("wait", 150.0, 2.0, NOWHERE, "cudaDeviceSynchronize", "", 1),
    Mark("wait", 210.0, 20.0, STEP, "cudaStreamSynchronize", "aten::item", 1),
)


def events(one: Told, marks: tuple[Mark, ...] = MARKS) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(json.dumps(list(marked(one, marks))))
    return found


def test_waits_have_tracks_by_place_with_what_the_linter_says() -> None:
    made = events(told(trace()))
    assert {event["pid"] for event in made} == {PROCESS}
    begins = [event for event in made if event["ph"] == "b"]
    assert [(event["name"], event["ts"]) for event in begins] == [
        ("wait: train.py:44 in step", 110.0),
        ("device 0 idle: the host had waited", 120.0),
        ("device 0 idle: launched too late", 140.0),
        ("wait: cudaDeviceSynchronize", 150.0),
        ("wait: train.py:44 in step", 210.0),
    ]
    assert begins[0]["args"] == {
        "call": "cudaStreamSynchronize",
        "operator": "aten::item",
        "place": "train.py:44 in step",
        "code": "DG402",
        "message": "`loss.item()` waits for the device",
        "fix": "keep the sum on the device (unsafe)",
        "page": "https://pytest-dispatchguard.readthedocs.io/rules/DG402/",
    }
    assert begins[1]["args"]["cause"] == "waits" and begins[1]["args"]["code"] == "DG402"
    assert begins[2]["args"] == {"cause": "late"}


def test_each_begin_has_its_end() -> None:
    open_spans: dict[tuple[str, int], float] = {}
    for event in events(told(trace())):
        key = (event["name"], event.get("id", 0))
        if event["ph"] == "b":
            assert key not in open_spans
            open_spans[key] = event["ts"]
        elif event["ph"] == "e":
            assert open_spans.pop(key) <= event["ts"]
    assert open_spans == {}


def test_calls_are_marked_where_a_finding_is_about_no_wait() -> None:
    one = trace(waits=())
    made = [event for event in events(told(one)) if event["ph"] == "i"]
    assert [(event["name"], event["ts"]) for event in made] == [
        ("DG402: train.py:44 in step", 100.0)
    ]
    assert made[0]["args"]["message"] == ITEM.message
    quiet = (Mark("call", 100.0, 0.0, LOSS, "", "", 0),)
    assert [event for event in events(told(one), quiet) if event["ph"] == "i"] == []
