"""A GPU that is not there: code written for `cuda` runs on the CPU, and where a real GPU would make the host
wait is recorded."""

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
    """Has `device` there for what runs inside, and yields what records the waits. Inside of another ghost it
    is that one which goes on, with one more record."""
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
        for owner, name, value in names(NOTES):
            if isinstance(owner, ModuleType) and not hasattr(owner, name):
                continue  # a function that this torch does not have yet
            if owner is torch and isinstance(value, FunctionType):
                taken[getattr(owner, name)] = value
            stack.enter_context(_replaced(owner, name, _for_now(owner, name, value)))
        if "torch._dynamo" in sys.modules:  # what is compiled already runs as it is written
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
            # None where there was none: the CPU by name would put a layer of Python under every call.
            torch.set_default_device(None if before is None else before.device)
            if before is None:  # older releases ask what is there for its device
                vars(torch._GLOBAL_DEVICE_CONTEXT).pop("device_context", None)


def _default_context() -> Any:
    """What `torch.set_default_device` left in this thread."""
    return getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)


def _for_now(owner: Any, name: str, value: Any) -> Any:
    """What stands for a function of a module: who takes it now and keeps it has the real one afterwards."""
    if not isinstance(owner, ModuleType) or not isinstance(value, FunctionType):
        return value
    real = getattr(owner, name)

    @wraps(real)
    def stands_in(*args: Any, **kwargs: Any) -> Any:
        return (value if is_there() else real)(*args, **kwargs)

    return stands_in


@contextmanager
def _threads_too(taken: Mapping[Any, Callable[..., Any]]) -> Iterator[None]:
    """Threads that are started inside see the ghost as well."""
    real = threading.Thread.run

    def run(self: threading.Thread) -> None:
        with Calls(taken), Operations(NOTES):
            real(self)

    with _replaced(threading.Thread, "run", run):
        yield
