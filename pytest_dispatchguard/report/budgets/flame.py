"""The layers of calls as a flame graph, in speedscope's file format."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pytest_dispatchguard.model.layers import Layer, Layers
from pytest_dispatchguard.report.budgets.layers import relative
from pytest_dispatchguard.report.wording import NAME

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
Frame = tuple[str, str, int]
"""Name, file and line; without a file, an empty string and 0."""


def as_speedscope(found: Sequence[Layers]) -> str:
    """One profile per call: the whole call at the bottom, its functions on top, and next to them what
    torch does below Python."""
    frames: dict[Frame, int] = {}
    profiles = [_profile(call, frames) for call in found]
    told = [
        {"name": name, **({"file": file, "line": line} if file else {})}
        for name, file, line in frames
    ]
    whole = {
        "$schema": _SCHEMA,
        "exporter": NAME,
        "name": ", ".join(call.subject for call in found),
        "activeProfileIndex": 0,
        "shared": {"frames": told},
        "profiles": profiles,
    }
    return json.dumps(whole, indent=1) + "\n"


def _profile(call: Layers, frames: dict[Frame, int]) -> dict[str, Any]:
    events = list(_events(call, frames))
    return {
        "type": "evented",
        "name": call.subject,
        "unit": "microseconds",
        "startValue": 0,
        "endValue": events[-1]["at"],
        "events": events,
    }


def _events(call: Layers, frames: dict[Frame, int]) -> Iterator[dict[str, Any]]:
    """Where each layer begins and ends: first its own time, then the layers inside it."""
    at = 0.0
    opened: list[tuple[int, int]] = []

    def event(kind: str, frame: int) -> dict[str, Any]:
        return {"type": kind, "frame": frame, "at": round(at, 6)}

    whole = frames.setdefault((call.subject, "", 0), len(frames))
    yield event("O", whole)
    for layer in call.layers:
        while opened and opened[-1][0] >= layer.depth:
            yield event("C", opened.pop()[1])
        frame = frames.setdefault(_frame(layer), len(frames))
        yield event("O", frame)
        opened.append((layer.depth, frame))
        at += max(layer.us.value, 0.0)
    while opened:
        yield event("C", opened.pop()[1])
    at = max(at, call.whole_us.value)
    yield event("C", whole)


def _frame(layer: Layer) -> Frame:
    times = f" ({layer.times} times)" if layer.times > 1 else ""
    return f"{layer.called}{times}", relative(layer.path) if layer.path else "", layer.line
