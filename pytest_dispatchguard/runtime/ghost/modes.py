"""The modes that run operations for the ghost: on the CPU, with results marked as on the ghost. Operations
that mix devices fail as on a GPU, and those that make the host wait are recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from pytest_dispatchguard.runtime.ghost.marks import is_ghost, mark, pin
from pytest_dispatchguard.runtime.ghost.sync_operations import (
    LISTED_MASK,
    READ_AMONG,
    SyncOp,
    syncs,
)
from pytest_dispatchguard.runtime.ghost.tensor_methods import new_tensor
from pytest_dispatchguard.runtime.hooks.dispatch_mode import DispatchMode
from pytest_dispatchguard.runtime.hooks.function_calls import paused, resumed
from pytest_dispatchguard.runtime.hooks.tensors import tensors
from pytest_dispatchguard.runtime.syncs.syncs import NOTES, Notes, quiet

HOST = torch.device("cpu")
_TWO_DEVICES = (
    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
)
_MAY_MIX = frozenset(
    {
        "aten::copy_",
        "aten::_to_copy",
        "aten::set_",
        "aten::set_data",
        "aten::_foreach_copy_",
        "aten::index",
        "aten::index_put",
        "aten::index_put_",
        "aten::_index_put_impl_",
        # Lengths and batch sizes of sequences belong on the host.
        "aten::_pack_padded_sequence",
        "aten::_pad_packed_sequence",
        "aten::_pack_padded_sequence_backward",
        "aten::lstm",
        "aten::gru",
        "aten::rnn_tanh",
        "aten::rnn_relu",
        "aten::_ctc_loss",
        "aten::_ctc_loss_backward",
        "aten::tensor_split",
    }
)
_FILLS = frozenset({"aten::masked_fill_", "aten::index_fill_"})
"""How torch 2.15 and later write a number through a mask or indices where all tensors are on one device, as
they are on the CPU that the ghost uses."""
_INDEXED = {"aten::index": False, "aten::index_put": True, "aten::index_put_": True}
_READS = {
    "__bool__": ("truth", "DG401"),
    "__nonzero__": ("truth", "DG401"),
    "__contains__": ("in", "DG401"),
    "is_nonzero": ("truth", "DG401"),
    "__float__": ("float", "DG412"),
    "__int__": ("int", "DG412"),
    "__long__": ("int", "DG412"),
    "__complex__": ("complex", "DG412"),
    "__index__": ("index", "DG427"),
    "__format__": ("format", "DG415"),
}
"""The name and rule of a read, by the function that reads; the others read by `item`."""
_TAKE_DATA = frozenset({torch.tensor, torch.as_tensor, torch.asarray, new_tensor})
"""Functions that make a tensor of lists. They read the tensors within where no mode sees it."""
_INDEXING = frozenset({"__getitem__", "__setitem__"})
_READ = "aten::_local_scalar_dense"
_SYNCS = syncs(torch.__version__)
_local = threading.local()


def _made_on_ghost() -> bool | None:
    """Where new tensors go: True for the ghost, if the running function was given ghosts; False for the
    host, if it was asked for the CPU; else None."""
    answer: bool | None = getattr(_local, "made_on_ghost", None)
    return answer


class _Known(NamedTuple):
    """Facts about an operation, looked up once."""

    composite: bool
    name: str
    waits: tuple[SyncOp, ...]


@cache
def _known(func: Any) -> _Known:
    if not hasattr(func, "_schema"):  # a higher-order operator, such as flex_attention
        return _Known(False, str(func.name()), ())
    name = func._schema.name
    if name.startswith("prim::"):  # the dispatcher has no table of these
        return _Known(False, name, ())
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(
        func.name(), "CompositeImplicitAutograd"
    )
    return _Known(composite, name, _SYNCS.get(name, ()))


def _note_reads(data: list[Any] | tuple[Any, ...]) -> None:
    """Records that a tensor made of lists reads each value of the tensors in them."""
    for one in data:
        if isinstance(one, list | tuple):
            _note_reads(one)
        elif isinstance(one, torch.Tensor) and is_ghost(one):
            for _ in range(one.numel()):
                NOTES.note(READ_AMONG.name, READ_AMONG.why, READ_AMONG.code)


def _with_masks(index: Any) -> Any:
    """An index whose lists of booleans are tensors of the ghost, as torch makes them for a GPU where no mode
    sees it."""
    return tuple(map(_as_mask, index)) if isinstance(index, tuple) else _as_mask(index)


def _as_mask(part: Any) -> Any:
    listed = isinstance(part, list | tuple) and part and all(isinstance(one, bool) for one in part)
    if not listed:
        return part
    NOTES.note(LISTED_MASK.name, LISTED_MASK.why, LISTED_MASK.code)
    with quiet():
        made = torch.tensor(part)
    mark(made)
    return made


def _moved_by(function: str | None, name: str) -> bool:
    """Whether a function moves what it is given from the host itself: lengths to divide by, a number."""
    return function == "ctc_loss" or (function == "__setitem__" and name in _FILLS)


class Calls(TorchFunctionMode):  # type: ignore[misc]  # torch is not read when types are checked
    """Notes whether the running function was given ghosts, as tensors that it makes are then on the ghost
    too. Redirects references to torch functions that were taken before the ghost (`from torch import
    tensor`)."""

    def __init__(self, replaced: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__()
        self.replaced = replaced

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        tracer = paused()
        kwargs = kwargs or {}
        takes_data = func in _TAKE_DATA
        func = self.replaced.get(func, func)
        before = _made_on_ghost()
        outermost = getattr(_local, "function", None) is None
        name = getattr(func, "__name__", "")
        if outermost:
            _local.function = name
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "cpu":
            _local.made_on_ghost = False
        else:
            given = tensors((args, kwargs) if kwargs else args)
            _local.made_on_ghost = any(map(is_ghost, given)) or None
        try:
            if takes_data:
                data = (*args, *kwargs.values())
                _note_reads([one for one in data if isinstance(one, list | tuple)])
            if name in _INDEXING and is_ghost(args[0]):
                args = (args[0], _with_masks(args[1]), *args[2:])
            if _local.made_on_ghost and func is torch.nn.functional.one_hot:
                return self._one_hot(func, args, kwargs)
            # C functions run no Python code but this package's.
            if isinstance(func, FunctionType):
                resumed(tracer)
                tracer = None
            return func(*args, **kwargs)
        finally:
            resumed(tracer)
            _local.made_on_ghost = before
            if outermost:
                _local.function = None

    def _one_hot(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Hides that the CPU reads the values to check them; a GPU only reads them to find the number of
        classes."""
        classes = args[1] if len(args) > 1 else kwargs.get("num_classes", -1)
        if classes < 0:
            classes = int(args[0].max()) + 1
        with quiet():
            return func(args[0], classes)


class Operations(DispatchMode):
    """Runs every ATen operation."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Disables compiling: a compiler would trace the replacements."""
        return False

    def __init__(self, notes: Notes) -> None:
        super().__init__()
        self.notes = notes

    def run(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Runs an operation on the CPU, records waits, and marks results of ghosts as ghosts."""
        tracer = paused()
        try:
            return self._run(func, args, kwargs)
        finally:
            resumed(tracer)

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        composite, name, waits = _known(func)
        if composite:
            # Only in inference mode do composite operations get here undecomposed.
            with self:
                return func.decompose(*args, **kwargs)
        device = kwargs.get("device")
        asked = device is not None and device.type == "cuda"
        if asked:
            kwargs = {**kwargs, "device": HOST}
        pinned = kwargs.get("pin_memory")
        if pinned:
            kwargs = {**kwargs, "pin_memory": False}
        given = tensors((args, kwargs) if kwargs else args)
        ghosts = [is_ghost(tensor) for tensor in given]
        some = any(ghosts)
        if some and not all(ghosts):
            self._check(name, args, given, ghosts)
        if some:
            for wait in waits:
                if wait.when(args, kwargs):
                    self._note(name, wait)
        made = func(*args, **kwargs)
        where = _made_on_ghost()
        without = not given and device == HOST
        if asked or (where is not False and some) or (where and without):
            known = {id(tensor) for tensor in given}
            for tensor in tensors(made):
                if id(tensor) not in known:
                    mark(tensor)
        if pinned:
            pin(made)
        return made

    def _note(self, name: str, wait: SyncOp) -> None:
        said = (wait.name, wait.code)
        if name == _READ:
            said = _READS.get(getattr(_local, "function", None) or "", said)
        self.notes.note(said[0], wait.why, said[1])

    def _check(self, name: str, args: Any, given: Any, ghosts: Any) -> None:
        """Raises as CUDA does if an operation mixes tensors of both devices."""
        if name in _INDEXED:
            if not is_ghost(args[0]):
                raise RuntimeError(
                    "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
                )
            if _INDEXED[name] and not is_ghost(args[2]) and args[2].dim():
                raise RuntimeError(_TWO_DEVICES)
        elif _moved_by(getattr(_local, "function", None), name):
            pass
        elif name not in _MAY_MIX and any(
            tensor.dim() and not ghost for tensor, ghost in zip(given, ghosts, strict=True)
        ):
            raise RuntimeError(_TWO_DEVICES)
