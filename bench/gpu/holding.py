"""Asks a GPU itself whether the host waits for it."""

from __future__ import annotations

from collections.abc import Callable

from pytest_dispatchguard.measure.timing.devices import Device

HELD_NS = 50_000_000
"""How long the GPU is held back: longer than the host takes for a call that does not wait."""


def waited_for(call: Callable[[], object], device: Device) -> bool | None:
    """Whether a GPU that is held back has gone on when a call returns; None where it cannot be held. What the
    first call sets up is to be there."""
    device.wait()
    if device.queue is None or not device.queue.hold(HELD_NS):
        return None
    mark = device.queue.mark()
    call()
    passed = mark.passed()
    device.wait()
    return passed
