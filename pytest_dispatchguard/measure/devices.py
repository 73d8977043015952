"""What a device asks of whoever times calls on it: an accelerator works on after a call has returned."""

from __future__ import annotations

import sys
from typing import Any, Protocol


class Device(Protocol):
    """Where the work of calls is done."""

    name: str
    most_calls: int
    """Calls in one block: fewer than what the device queues, else calls wait for each other."""

    def wait(self) -> None:
        """Until the device has done all that was asked of it."""


class _Host:
    name = "cpu"
    most_calls = 10_000

    def wait(self) -> None:
        """What runs on the host is done when it returns."""


HOST: Device = _Host()


class Accelerator:
    """The accelerator that torch knows."""

    most_calls = 50

    def __init__(self) -> None:
        torch = sys.modules["torch"]
        self.name: str = torch.accelerator.current_accelerator().type
        self.wait = torch.accelerator.synchronize


def here() -> Device:
    """The device that calls of this process work on: an accelerator once it is in use."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "accelerator"):
        return HOST
    if torch.accelerator.is_available() and _in_use(torch):
        return Accelerator()
    return HOST


def _in_use(torch: Any) -> bool:
    kind = torch.accelerator.current_accelerator().type
    module = getattr(torch, kind, None)
    is_initialized = getattr(module, "is_initialized", None)
    return bool(is_initialized()) if is_initialized is not None else True
