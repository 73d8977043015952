"""The base class of all dispatch modes here."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from pytest_dispatchguard.runtime.torch_private import compiler, dispatcher


class DispatchMode(TorchDispatchMode):  # type: ignore[misc]  # torch is not read when types are checked
    """Sees every ATen operation.

    torch wraps `__torch_dispatch__` to hide it from torch.compile. The wrapper imports torch._dynamo, which
    takes a second or more, and costs some microseconds an operation, so it is only used here where
    torch._dynamo is imported already."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Lets torch.compile work as it does without the mode, which only watches."""
        return True

    @classmethod
    def is_infra_mode(cls) -> bool:
        """The same for older releases of torch: they give up on compiled code for good once it runs under a
        mode that is not an infra mode."""
        return cls.ignore_compile_internals() and dispatcher.modes_are_guarded()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return self.run(func, args, kwargs or {})

    def run(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Runs an operation; subclasses do their work here."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        if "torch._dynamo" in sys.modules:
            self.__class__ = _hidden(type(self))
        dispatcher.see_operators_of_functions(type(self))
        return super().__enter__()


_HIDDEN: dict[Any, Any] = {}


def _hidden(mode: Any) -> Any:
    """A subclass of the mode that torch.compile does not trace."""
    if mode not in _HIDDEN:
        dispatch = compiler.hidden_from_dynamo(mode.__torch_dispatch__)
        hidden = type(mode.__name__, (mode,), {"__torch_dispatch__": dispatch})
        _HIDDEN[mode] = _HIDDEN[hidden] = hidden
    return _HIDDEN[mode]
