"""Decides whether what was measured is a gain."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_dispatchguard.model.reviews import Gain

WAITS = "syncs"
WAIT_US = 6.0
"""Three waits in four take longer than this on the GPU that was measured (docs/internals/gpu.md)."""
OF_WORK = ("instructions", "dispatches")
"""Exact counters of the work on the host. They stand in for time where that cannot be told apart."""


def against(gains: Sequence[Gain]) -> str:
    """Why a change is not kept; empty where it surely pays and nothing surely costs more.

    Waits and time are what users notice: more of either is dearer, but for the few microseconds that a wait
    takes on a device. More instructions or dispatches are dearer unless fewer waits or less time show
    that they pay."""
    dearer = [f"{gain.name}: {what}" for gain in gains for what in _dearer(gain)]
    if dearer:
        return f"dearer: {', '.join(dearer)}" if len(gains) > 1 else "dearer"
    return "" if any(map(_pays, gains)) else "not measurably cheaper"


def _dearer(gain: Gain) -> list[str]:
    found = ["waits"] if gain.moved(WAITS) > 0 else []
    if gain.change is not None and gain.change.low > 1 and not _pays_in_waits(gain):
        found.append("time")
    if not (found or _surely_better(gain)):
        found = [name for name in OF_WORK if gain.moved(name) > 0]
    return found


def _pays_in_waits(gain: Gain) -> bool:
    """Whether the waits that are gone would take longer than what the call surely takes more here."""
    fewer, moved = -gain.moved(WAITS), gain.moved_us
    return fewer > 0 and moved is not None and moved.low < fewer * WAIT_US


def _pays(gain: Gain) -> bool:
    return _surely_better(gain) or any(gain.moved(name) < 0 for name in OF_WORK)


def _surely_better(gain: Gain) -> bool:
    return gain.moved(WAITS) < 0 or (gain.change is not None and gain.change.high < 1)
