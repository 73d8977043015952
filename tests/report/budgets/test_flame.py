"""Layers as a flame graph."""

from __future__ import annotations

import json
from typing import Any

from pytest_dispatchguard.model.layers import Layer, LayerKind, Layers
from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.report.budgets.flame import as_speedscope


def layer(name: str, kind: LayerKind, us: float, depth: int = 0, **more: Any) -> Layer:
    return Layer(name, kind, Interval(us, us, us), depth, **more)


CALL = Layers(
    "f(x)",
    Interval(10.0, 9.0, 11.0),
    (
        layer("f", "python", 1.0, path="lib.py", line=3),
        layer("g", "python", 2.0, 1, times=2, path="lib.py", line=9),
        layer("scope", "context", 0.5, 2),
        layer("h", "python", 1.5, 1, path="lib.py", line=20),
        layer("kernels", "kernel", 4.0),
    ),
    100,
)


def spans(profile: dict[str, Any], frames: list[dict[str, Any]]) -> list[tuple[str, float, float]]:
    """Name, start and end of all that is entered, in the order in which it is left; what is left is what was
    entered last."""
    opened: list[tuple[int, float]] = []
    found = []
    for event in profile["events"]:
        if event["type"] == "O":
            opened.append((event["frame"], event["at"]))
        else:
            frame, start = opened.pop()
            assert frame == event["frame"]
            found.append((frames[frame]["name"], start, event["at"]))
    assert not opened
    return found


def test_what_a_function_calls_stands_on_it() -> None:
    told = json.loads(as_speedscope([CALL]))
    assert told["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert told["exporter"] == "dispatchguard"
    (profile,) = told["profiles"]
    assert (profile["type"], profile["unit"], profile["name"]) == (
        "evented",
        "microseconds",
        "f(x)",
    )
    assert (profile["startValue"], profile["endValue"]) == (0, 10.0)
    frames = told["shared"]["frames"]
    assert spans(profile, frames) == [
        ("with scope", 3.0, 3.5),
        ("g (2 times)", 1.0, 3.5),
        ("h", 3.5, 5.0),
        ("f", 0.0, 5.0),
        ("kernels", 5.0, 9.0),
        ("f(x)", 0.0, 10.0),
    ]
    assert frames[1] == {"name": "f", "file": "lib.py", "line": 3}
    assert frames[0] == {"name": "f(x)"}


def test_calls_share_their_frames() -> None:
    told = json.loads(as_speedscope([CALL, CALL]))
    assert len(told["profiles"]) == 2
    assert len(told["shared"]["frames"]) == 6
    assert told["profiles"][0]["events"] == told["profiles"][1]["events"]
