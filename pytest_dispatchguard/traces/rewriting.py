"""Writes a trace again, with more events: a stream from one file into another."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from pytest_dispatchguard.traces.stream import Header, Tell, events

_DEEPEST = 50


def rewritten(
    path: Path, more: Iterable[Mapping[str, Any]], out: TextIO, tell: Tell | None = None
) -> None:
    """Writes the events of a trace, then others. What comes out is JSON, whatever went in: a damaged trace
    ends where it breaks off, and numbers that JSON does not have are null."""
    header = Header()
    write = out.write
    write('{"traceEvents": [')
    between = "\n"
    for event in events(path, header, tell):
        write(between + _json(event))
        between = ",\n"
    for one in more:
        write(between + _json(one))
        between = ",\n"
    write("\n]")
    for key, value in header.values.items():
        write(f",\n{_json(key)}: {_json(value)}")
    write("}\n")


_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def _json(value: object) -> str:
    try:
        return _encode(value)
    except (ValueError, RecursionError):  # of NaN and the infinite, which PyTorch writes
        return _encode(_plain(value))


def _plain(value: object, depth: int = 0) -> object:
    """A value that JSON has; what lies deeper than any viewer looks is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict | list) and depth > _DEEPEST:
        return None
    if isinstance(value, dict):
        return {key: _plain(one, depth + 1) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one, depth + 1) for one in value]
    return value
