"""Counts a call's functions of torch, operations, and allocations of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from pytest_dispatchguard.runtime.hooks.dispatch_mode import DispatchMode
from pytest_dispatchguard.runtime.hooks.tensors import storage_of, tensors
from pytest_dispatchguard.runtime.torch_private.compiler import compiler_is_there, lookups
from pytest_dispatchguard.runtime.torch_private.dispatcher import modes_are_guarded


class Dispatched(NamedTuple):
    """What the dispatcher did in one call."""

    operations: int
    """ATen operations."""
    allocations: int
    """Results with new memory."""


class _Dispatches(DispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.operations = 0
        self.allocations = 0
        self._seen: dict[int, Any] = {}
        """Storages by address; kept alive, so that no address is reused."""

    def run(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Runs an operation and counts it."""
        self.operations += 1
        for given in tensors((args, kwargs)):
            self._is_new(given)
        made = func(*args, **kwargs)
        self.allocations += sum(self._is_new(tensor) for tensor in tensors(made))
        return made

    def _is_new(self, tensor: torch.Tensor) -> bool:
        storage = storage_of(tensor)
        if storage is None or storage._cdata in self._seen:
            return False
        self._seen[storage._cdata] = storage
        return True


class _Functions(TorchFunctionMode):  # type: ignore[misc]  # torch is not read when types are checked
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


def dispatched(run: FunctionType) -> Dispatched:
    """Runs a function once and counts the operations that reach the dispatcher, below autograd."""
    with _Dispatches() as mode:
        run()
    return Dispatched(mode.operations, mode.allocations)


def functions(run: FunctionType) -> int | None:
    """Runs a function once and counts the calls of torch's Python functions, methods and attributes; None
    where this torch would recompile for the mode that counts."""
    if compiler_is_there() and modes_are_guarded() and lookups(run):
        return None
    with _Functions() as mode:
        run()
    calls: int = mode.calls
    return calls
