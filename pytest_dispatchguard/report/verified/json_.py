"""Verified changes as JSON. Fields are added, never renamed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.model.reviews import Gain, Verification, Verified

SCHEMA = 1


def as_json(found: Verification, machine: Mapping[str, str]) -> str:
    """All changes as one object."""
    together = found.together
    told = {
        "schema": SCHEMA,
        "machine": dict(machine),
        "changes": [as_object(change) for change in found.changes],
        "together": None if together is None else as_object(together),
        "notes": list(found.notes),
        "applied": None if found.applied is None else list(found.applied),
    }
    return json.dumps(told, indent=1) + "\n"


def as_object(change: Verified) -> dict[str, Any]:
    """One change."""
    return {
        "name": change.name,
        "kept": change.kept,
        "reason": change.reason,
        "tests": change.tests,
        "files": list(change.files),
        "calls": [_gain(gain) for gain in change.gains],
    }


def _gain(gain: Gain) -> dict[str, Any]:
    return {
        "name": gain.name,
        "before": dict(gain.before),
        "after": dict(gain.after),
        "varying": list(gain.varying),
        "before_us": gain.us,
        "change": _figure(gain.change),
        "moved_us": _figure(gain.moved_us),
        "note": gain.note,
    }


def _figure(interval: Interval | None) -> dict[str, float | None] | None:
    if interval is None:
        return None
    ends = {"value": interval.value, "low": interval.low, "high": interval.high}
    return {name: end if math.isfinite(end) else None for name, end in ends.items()}
