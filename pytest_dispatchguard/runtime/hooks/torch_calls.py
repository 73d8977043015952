"""Records the calls of torch's C functions, with arguments and results.

torch's own Python functions check for overrides first, and would hand the whole call to an active mode.
While calls are recorded, that check finds no mode, so that the mode sees the C functions that they call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from pytest_dispatchguard.runtime.torch_private import dispatcher

_ASKS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")

_SWITCHES = ("_set_", "set_", "_enter_", "_exit_")
"""Prefixes of functions that change torch's state and do no work."""


@dataclass(frozen=True, slots=True)
class State:
    """The part of torch's state that changes what a call does."""

    grad: bool
    inference: bool


@dataclass(frozen=True, slots=True)
class TorchCall:
    """A call of a C function of torch."""

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    result: Any
    state: State
    owner: int
    """The number of the Python call that made it; -1 for none."""

    @property
    def attribute(self) -> str:
        """The attribute that was read, `shape`; empty for calls."""
        if getattr(self.function, "__name__", "") != "__get__":
            return ""
        return str(getattr(getattr(self.function, "__self__", None), "__name__", ""))

    @property
    def method(self) -> str:
        """The method of a tensor that was called; empty for others."""
        owner = getattr(self.function, "__objclass__", None)
        return str(getattr(self.function, "__name__", "")) if _is_of_tensor(owner) else ""

    @property
    def name(self) -> str:
        """Its public name: ``torch.add``, ``Tensor.softmax``."""
        if self.attribute or self.method:
            return f"Tensor.{self.attribute or self.method}"
        name = getattr(self.function, "__name__", None) or str(self.function)
        return name if "." in name else f"torch.{name}"


def _is_of_tensor(owner: object) -> bool:
    return isinstance(owner, type) and issubclass(torch.Tensor, owner)


class _Recording(TorchFunctionMode):  # type: ignore[misc]  # torch is not there when types are checked
    """Sees every function that tensors can override."""

    def __init__(self, owner: Callable[[FrameType], int], calls: list[TorchCall]) -> None:
        super().__init__()
        self._owner = owner
        self._calls = calls
        self.passed_over = 0
        """Calls that are not kept, as they would do something else on their own: under autocast, for
        example."""
        self._around = dispatcher.surroundings()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        overriding: Any = next(filter(dispatcher.overrides, types), None)
        if overriding is not None:
            with self:
                return overriding.__torch_function__(func, types, args, given)
        around = dispatcher.surroundings()
        state = State(*dispatcher.grad_state())
        result = func(*args, **given)
        if getattr(func, "__name__", "").startswith(_SWITCHES):
            return result  # it changes the state of the next calls
        if around != self._around:
            self.passed_over += 1
            return result
        owner = self._owner(sys._getframe(1))
        self._calls.append(TorchCall(func, tuple(args), dict(given), result, state, owner))
        return result


@contextmanager
def recording(owner: Callable[[FrameType], int], calls: list[TorchCall]) -> Iterator[_Recording]:
    """Adds calls to `calls`; `owner` maps the calling frame to the number of its Python call."""
    recorder = _Recording(owner, calls)
    with _asking_nobody(), recorder:
        yield recorder


@contextmanager
def _asking_nobody() -> Iterator[None]:
    """Makes torch's Python functions check their arguments for overrides, but not the mode."""
    replaced: list[tuple[dict[str, Any], str, Any]] = []
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "torch" or name == "torch.overrides":
            continue
        space = getattr(module, "__dict__", {})
        replaced += [(space, ask, space[ask]) for ask in _ASKS if ask in space]
    try:
        for space, ask, _ in replaced:
            space[ask] = _given_together if ask == "has_torch_function" else _given_apart
        yield
    finally:
        for space, ask, found in replaced:
            space[ask] = found


def _given_together(args: Sequence[Any]) -> bool:
    return _given_apart(*args)


def _given_apart(*args: Any) -> bool:
    return any(dispatcher.overrides(type(arg)) for arg in args)
