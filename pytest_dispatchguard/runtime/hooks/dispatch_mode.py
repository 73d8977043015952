"""The dispatch mode that all others here are made from."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from pytest_dispatchguard.runtime.torch_private import compiler, dispatcher


class DispatchMode(TorchDispatchMode):  # type: ignore[misc]  # torch is not read when types are checked
    """Sees every ATen operation.

    torch puts a wrapper around `__torch_dispatch__`, for torch.compile to leave it alone. The wrapper imports
    torch._dynamo, a second or more, and takes a few microseconds of each operation: here it is put on only
    where torch._dynamo is there already.
    """

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """torch.compile works under it as it does without: this one only watches."""
        return True

    @classmethod
    def is_infra_mode(cls) -> bool:
        """The same for a torch that has no such word: there, what is compiled is left for good once it is met
        under a mode that is none of torch's own."""
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
        """Runs an operation: what the mode is for."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        if "torch._dynamo" in sys.modules:
            self.__class__ = _hidden(type(self))
        dispatcher.see_operators_of_functions(type(self))
        return super().__enter__()


_HIDDEN: dict[Any, Any] = {}


def _hidden(mode: Any) -> Any:
    """The same mode, left alone by torch.compile."""
    if mode not in _HIDDEN:
        dispatch = compiler.left_alone(mode.__torch_dispatch__)
        hidden = type(mode.__name__, (mode,), {"__torch_dispatch__": dispatch})
        _HIDDEN[mode] = _HIDDEN[hidden] = hidden
    return _HIDDEN[mode]
