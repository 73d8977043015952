"""What a call asks of torch's C functions: every one, with what it was given and what it gave.

Torch's own Python functions ask for overrides before they work, and with a mode on they would find it and
hand the whole call over. While calls are recorded they are told that there are none, so that what is seen is
what they ask of C in the end.
"""

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
"""How names of functions begin that change torch's state, and so are no work of their own."""


@dataclass(frozen=True, slots=True)
class State:
    """What of torch's state decides what a call does."""

    grad: bool
    inference: bool


@dataclass(frozen=True, slots=True)
class TorchCall:
    """One call of a function of torch that is written in C."""

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    result: Any
    state: State
    owner: int
    """The Python call that made it, as its recorder counts them; -1 for none."""

    @property
    def attribute(self) -> str:
        """The attribute that was read, `shape`; empty for what is no reading."""
        if getattr(self.function, "__name__", "") != "__get__":
            return ""
        return str(getattr(getattr(self.function, "__self__", None), "__name__", ""))

    @property
    def method(self) -> str:
        """The name of the method of a tensor that was called; empty for what is none."""
        owner = getattr(self.function, "__objclass__", None)
        return str(getattr(self.function, "__name__", "")) if _is_of_tensor(owner) else ""

    @property
    def name(self) -> str:
        """What people call it: ``torch.add``, ``Tensor.softmax``."""
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
        """Calls that are not kept: under autocast, say, they would do something else on their own."""
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
            return result  # it changes what is around the next calls
        if around != self._around:
            self.passed_over += 1
            return result
        owner = self._owner(sys._getframe(1))
        self._calls.append(TorchCall(func, tuple(args), dict(given), result, state, owner))
        return result


@contextmanager
def recording(owner: Callable[[FrameType], int], calls: list[TorchCall]) -> Iterator[_Recording]:
    """Adds what is called to `calls`; `owner` says for the calling frame which Python call that is."""
    recorder = _Recording(owner, calls)
    with _asking_nobody(), recorder:
        yield recorder


@contextmanager
def _asking_nobody() -> Iterator[None]:
    """Has torch's Python functions find overrides of arguments alone, and not the mode."""
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
