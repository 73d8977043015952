"""Private names of torch's dispatcher: operator schemas, dispatch modes, grad state, TorchScript."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

_OPTIMIZERS = str(Path("torch", "optim", "optimizer.py"))


def schema_of(operation: Any) -> Any:
    """The schema of an overload; None for higher-order operators, such as flex_attention."""
    return getattr(operation, "_schema", None)


def overloads_of(operation: Any) -> list[Any]:
    """All overloads of an operation, given one of them."""
    packet = operation._overloadpacket
    return [getattr(packet, name) for name in packet.overloads()]


def resolved(operation: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """The overload of an operation that accepts the arguments, `Tensor` or `default`; None if none does."""
    import torch

    try:
        return torch._C._jit_resolve_packet(f"aten::{operation}", *args, **kwargs) or "default"
    except (RuntimeError, TypeError):
        return None


def operation_behind(function: Callable[..., Any]) -> str:
    """The operation that TorchScript maps a function of torch to, `linear`; empty if there is none."""
    import torch

    return str(torch.jit._builtins._find_builtin(function) or "").rpartition("::")[2]


def script(source: str) -> Callable[..., Any]:
    """A function from the text of a TorchScript graph."""
    import torch

    made: Callable[..., Any] = torch._C._create_function_from_graph(
        "script", torch._C.parse_ir(source)
    )
    return made


@contextmanager
def scripts_unoptimised() -> Iterator[None]:
    """Compiles scripts that run here for the first time without optimizations."""
    import torch

    before = torch._C._get_graph_executor_optimize()
    profiling = torch._C._jit_set_profiling_executor(False)
    torch._C._set_graph_executor_optimize(False)
    try:
        yield
    finally:
        torch._C._set_graph_executor_optimize(before)
        torch._C._jit_set_profiling_executor(profiling)


def overrides(kind: type) -> bool:
    """Whether `__torch_function__` of a class is called at present."""
    import torch

    none = torch._C._disabled_torch_function_impl
    if kind is torch.Tensor or getattr(kind, "__torch_function__", none) is none:
        return False
    return bool(torch._C._is_torch_function_enabled())


def plain_tensors() -> AbstractContextManager[object]:
    """Disables `__torch_function__` of subclasses."""
    import torch

    found: AbstractContextManager[object] = torch._C.DisableTorchFunctionSubclass()
    return found


@contextmanager
def below_autograd() -> Iterator[None]:
    """Excludes the dispatch keys of autograd and of ADInplaceOrView, for operations that kernels call too:
    after autograd's kernels these keys are excluded as well."""
    import torch

    views = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    with torch._C._AutoDispatchBelowAutograd(), torch._C._ExcludeDispatchKeyGuard(views):
        yield


def modes_are_guarded() -> bool:
    """Whether this torch recompiles code when a new dispatch mode is active."""
    from torch.utils._python_dispatch import TorchDispatchMode

    return not hasattr(TorchDispatchMode, "ignore_compile_internals")


def see_operators_of_functions(mode: type) -> None:
    """Makes a dispatch mode see higher-order operators, where this torch needs a rule for each of them."""
    from torch._ops import _higher_order_ops
    from torch.utils._python_dispatch import TorchDispatchMode

    if hasattr(TorchDispatchMode, "supports_higher_order_operators"):
        return

    def rule(operator: Any) -> Callable[..., Any]:
        return lambda mode, *args, **kwargs: mode.__torch_dispatch__(operator, (), args, kwargs)

    for operator in _higher_order_ops.values():
        operator.python_key_table.setdefault(mode, rule(operator))


def surroundings() -> tuple[object, ...]:
    """The global state beside grad mode that changes what torch does: autocast, modes, the default dtype;
    empty where torch is not imported."""
    torch = sys.modules.get("torch")
    if torch is None:
        return ()
    return (
        torch._C._is_any_autocast_enabled(),
        torch._C._len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
        torch.get_default_dtype(),
    )


def grad_state() -> tuple[bool, bool]:
    """Whether grad mode is on, and inference mode."""
    torch = sys.modules.get("torch")
    if torch is None:
        return True, False
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled()


@contextmanager
def in_grad_state(grad: bool, inference: bool) -> Iterator[None]:
    """Enters a state that `grad_state` returned."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    with torch.inference_mode() if inference else torch.set_grad_enabled(grad):
        yield


def in_backward() -> bool:
    """Whether this thread runs a backward pass."""
    import torch

    return bool(torch._C._current_graph_task_id() != -1)


def is_optimizer_step(code: CodeType) -> bool:
    """Whether code is the wrapper that torch puts around `step` of every optimizer."""
    return code.co_name == "wrapper" and code.co_filename.endswith(_OPTIMIZERS)
