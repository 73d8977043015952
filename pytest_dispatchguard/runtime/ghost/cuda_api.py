"""The GPU that the ghost pretends to be: `torch.cuda`, `torch.accelerator`, streams and events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from pytest_dispatchguard.runtime.ghost.copies import DEVICE, Name
from pytest_dispatchguard.runtime.syncs.syncs import NOTES


class _Stream:
    """A stream; all streams run in the order of the CPU."""

    device = DEVICE
    stream_id = 0
    cuda_stream = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def synchronize(self) -> None:
        NOTES.note("Stream.synchronize", "the host waits for a stream", "DG431")

    def wait_stream(self, stream: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def record_event(self, event: Any = None) -> Any:
        return event or _Event()

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *raised: object) -> None:
        pass


class _Event:
    """An event that keeps the time of the CPU."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.at = 0.0

    def record(self, stream: Any = None) -> None:
        self.at = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        NOTES.note("Event.synchronize", "the host waits for an event", "DG431")

    def elapsed_time(self, other: _Event) -> float:
        return 1000 * (other.at - self.at)


def cuda_names() -> Iterator[Name]:
    """All names of `torch.cuda` and `torch.accelerator` that are replaced."""
    stream = _Stream()
    yield from _device_names(stream)
    yield from _stream_names(stream)
    yield from _state_names()


def _always(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


def _synchronize(device: Any = None) -> None:
    NOTES.note("synchronize", "the host waits for the whole device", "DG431")


@contextmanager
def _on(device: Any = None) -> Iterator[None]:
    yield


def _device_names(stream: _Stream) -> Iterator[Name]:
    """Which devices exist, and what they can be asked to do."""
    cuda, accelerator = torch.cuda, getattr(torch, "accelerator", None)  # since 2.6
    yield cuda, "_lazy_init", _always(None)
    yield cuda, "init", _always(None)
    yield cuda, "is_initialized", _always(True)
    for owner in filter(None, (cuda, accelerator)):
        yield owner, "is_available", _always(True)
        yield owner, "device_count", _always(1)
        yield owner, "synchronize", _synchronize
        yield owner, "current_stream", _always(stream)
        yield owner, "set_stream", _always(None)
        yield owner, "empty_cache", _always(None)
        for name in (
            "memory_allocated",
            "max_memory_allocated",
            "memory_reserved",
            "max_memory_reserved",
        ):
            yield owner, name, _always(0)
        yield owner, "reset_peak_memory_stats", _always(None)
    if accelerator is not None:
        yield accelerator, "current_accelerator", _always(torch.device("cuda"))
        yield accelerator, "current_device_index", _always(0)
        yield accelerator, "set_device_index", _always(None)
    yield cuda, "current_device", _always(0)
    yield cuda, "set_device", _always(None)
    yield cuda, "device", _on
    yield cuda, "device_of", _on
    # A CUDA build of torch would use cuDNN to lay out the weights of recurrent layers on a real GPU.
    yield torch.backends.cudnn, "is_acceptable", _always(False)


def _stream_names(stream: _Stream) -> Iterator[Name]:
    """Streams and events."""
    cuda = torch.cuda
    yield cuda, "default_stream", _always(stream)
    yield cuda, "stream", lambda given=None: nullcontext(given)
    yield cuda, "Stream", _Stream
    yield cuda, "Event", _Event
    yield torch, "Stream", _Stream
    yield torch, "Event", _Event


def _state_names() -> Iterator[Name]:
    """The state of the device: properties, random numbers, modes."""
    cuda = torch.cuda
    yield cuda, "get_device_name", _always("ghost")
    yield cuda, "get_device_capability", _always((8, 0))
    yield cuda, "is_bf16_supported", _always(True)
    yield cuda, "mem_get_info", _always((0, 0))
    yield cuda, "memory_stats", _always({})
    yield cuda, "manual_seed", _always(None)
    yield cuda, "manual_seed_all", _always(None)
    yield cuda, "get_rng_state", lambda device=None: torch.get_rng_state()
    yield cuda, "set_rng_state", _always(None)
    yield cuda, "get_rng_state_all", lambda: [torch.get_rng_state()]
    yield cuda, "set_rng_state_all", _always(None)
    yield cuda, "is_current_stream_capturing", _always(False)
    mode = [0]
    yield cuda, "get_sync_debug_mode", lambda: mode[0]
    yield (
        cuda,
        "set_sync_debug_mode",
        lambda wanted: mode.__setitem__(0, _LEVELS.get(wanted, 0)),
    )


_LEVELS: dict[Any, int] = {"default": 0, "warn": 1, "error": 2, 1: 1, 2: 2}
