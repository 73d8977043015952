"""A simulated GPU: code written for `cuda` runs on the CPU, and the places where a real GPU would make the
host wait are recorded."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from functools import wraps
from types import FunctionType, ModuleType
from typing import Any

import torch

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.runtime.ghost.modes import Calls, Operations
from pytest_dispatchguard.runtime.ghost.torch_names import names
from pytest_dispatchguard.runtime.syncs.syncs import NOTES, Recorder, is_there, recording

_MISSING = object()


@contextmanager
def ghost(device: str = "cuda") -> Iterator[Recorder]:
    """Simulates `device` in this context, and yields a recorder of the waits. Within another ghost that one
    continues, with one more recorder."""
    if device not in ("cuda", "cuda:0"):
        raise UserError(f'there is a ghost of "cuda" alone, not of "{device}"')
    first = not is_there()
    if first and torch.cuda.is_available():
        raise UserError("there is a real GPU here: run on it, the ghost is for machines without")
    with recording() as recorder, _there() if first else nullcontext():
        yield recorder


@contextmanager
def _there() -> Iterator[None]:
    with ExitStack() as stack:
        taken: dict[Any, Callable[..., Any]] = {}
        for owner, name, value in names():
            if isinstance(owner, ModuleType) and not hasattr(owner, name):
                continue  # a function that this release of torch lacks
            if owner is torch and isinstance(value, FunctionType):
                taken[getattr(owner, name)] = value
            stack.enter_context(_replaced(owner, name, _for_now(owner, name, value)))
        if "torch._dynamo" in sys.modules:  # code that is compiled already runs eagerly
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(_threads_too(taken))
        stack.enter_context(_default_device_kept())
        stack.enter_context(Calls(taken))
        stack.enter_context(Operations(NOTES))
        yield


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = vars(owner).get(name, _MISSING)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


@contextmanager
def _default_device_kept() -> Iterator[None]:
    before = _default_context()
    try:
        yield
    finally:
        if _default_context() is not before:
            # None if there was none: naming the CPU would add a Python mode to every call.
            torch.set_default_device(None if before is None else before.device)
            if before is None:  # older releases read its device
                vars(torch._GLOBAL_DEVICE_CONTEXT).pop("device_context", None)


def _default_context() -> Any:
    """The context that `torch.set_default_device` set in this thread."""
    return getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)


def _for_now(owner: Any, name: str, value: Any) -> Any:
    """Wraps the replacement of a module's function, so that references kept after the ghost call the real
    one."""
    if not isinstance(owner, ModuleType) or not isinstance(value, FunctionType):
        return value
    real = getattr(owner, name)

    @wraps(real)
    def stands_in(*args: Any, **kwargs: Any) -> Any:
        return (value if is_there() else real)(*args, **kwargs)

    return stands_in


@contextmanager
def _threads_too(taken: Mapping[Any, Callable[..., Any]]) -> Iterator[None]:
    """Activates the ghost in threads that are started in this context."""
    real = threading.Thread.run

    def run(self: threading.Thread) -> None:
        with Calls(taken), Operations(NOTES):
            real(self)

    with _replaced(threading.Thread, "run", run):
        yield
