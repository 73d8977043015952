"""The methods and attributes of tensors that the ghost replaces: device, copies, and reads of values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from pytest_dispatchguard.runtime.ghost.copies import DEVICE, Name, device_of, moved, note_copy
from pytest_dispatchguard.runtime.ghost.marks import is_ghost, is_pinned, pin
from pytest_dispatchguard.runtime.ghost.sync_operations import goes_on
from pytest_dispatchguard.runtime.syncs.syncs import NOTES, quiet

_base = torch._C.TensorBase


def tensor_names() -> Iterator[Name]:
    """All names of tensors that are replaced."""
    yield from _device_names()
    yield from _copying_names()
    yield from _reading_names()
    yield from _pinning_names()


def _device_names() -> Iterator[Name]:
    """What says which device a tensor is on."""
    real_grouped = torch._C._group_tensors_by_device_and_dtype

    def device(self: Any) -> Any:
        return DEVICE if is_ghost(self) else _base.device.__get__(self)

    def is_cuda(self: Any) -> bool:
        return is_ghost(self) or _base.is_cuda.__get__(self)

    def is_cpu(self: Any) -> bool:
        return _base.is_cpu.__get__(self) and not is_ghost(self)

    def get_device(self: Any) -> int:
        return 0 if is_ghost(self) else _base.get_device(self)

    def grouped(lists: Any, *args: Any, **kwargs: Any) -> Any:
        """Optimizers group tensors by device in C++, which does not see the properties above."""
        return {
            (DEVICE if is_ghost(group[0][0][0]) else device, dtype): group
            for (device, dtype), group in real_grouped(lists, *args, **kwargs).items()
        }

    yield torch._C, "_group_tensors_by_device_and_dtype", grouped
    yield torch.Tensor, "device", property(device)
    yield torch.Tensor, "is_cuda", property(is_cuda)
    yield torch.Tensor, "is_cpu", property(is_cpu)
    yield torch.Tensor, "get_device", get_device


def _copying_names() -> Iterator[Name]:
    """What copies a tensor to another device or type, or makes one beside it."""
    yield torch.Tensor, "to", _to
    yield torch.Tensor, "cuda", _cuda
    yield torch.Tensor, "cpu", _cpu
    yield torch.Tensor, "copy_", _copy_
    yield torch.Tensor, "new_tensor", new_tensor
    yield torch.Tensor, "type", _type
    yield torch.Tensor, "type_as", lambda self, other: _to(self, other)
    yield torch.Tensor, "__deepcopy__", _copied_on_its_side(torch.Tensor.__deepcopy__)
    yield torch.Tensor, "record_stream", lambda self, stream: None


def _to(self: Any, *args: Any, **kwargs: Any) -> Any:
    target, dtype, non_blocking, rest = _parse_to(*args, **kwargs)
    if target is None or target.type not in ("cuda", "cpu"):
        return _base.to(self, *args, **kwargs)
    to_ghost = target.type == "cuda"
    other = self
    if is_ghost(self) != to_ghost:
        # A copy to the host that is not to wait goes into pinned memory.
        waits = to_ghost or not non_blocking
        if waits and not goes_on(self, self, asked=non_blocking, out=to_ghost):
            note_copy(self, to_ghost=to_ghost)
        other = moved(self, to_ghost)
        rest.pop("copy", None)
    if dtype is None and not rest:
        return other
    return _base.to(other, dtype or other.dtype, **rest)


def _cuda(self: Any, device: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    return _to(self, DEVICE, non_blocking=non_blocking, **kwargs)


def _cpu(self: Any, **kwargs: Any) -> Any:
    return _to(self, "cpu", **kwargs)


def _copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    to_ghost = is_ghost(self)
    if isinstance(src, torch.Tensor) and is_ghost(src) != to_ghost:
        if not goes_on(src, src if to_ghost else self, asked=non_blocking, out=to_ghost):
            note_copy(src, to_ghost=to_ghost)
        src = moved(src, to_ghost)
    return _base.copy_(self, src, non_blocking)


def _copied_on_its_side(real: Any) -> Any:
    """A copy that the device makes itself, in other memory of its own."""

    def deepcopy(self: Any, memo: Any) -> Any:
        if not is_ghost(self):
            return real(self, memo)
        with quiet():
            return real(self, memo)

    return deepcopy


def new_tensor(self: Any, data: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
    """Stands in for `Tensor.new_tensor`."""
    to_ghost = is_ghost(self) if device is None else device_of(device).type == "cuda"
    if not to_ghost:
        return _base.new_tensor(self, data, *args, device=device, **kwargs)
    kwargs.setdefault("dtype", self.dtype)
    return torch.tensor(data, *args, device=DEVICE, **kwargs)


def _type(self: Any, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    if dtype is None:
        name = _base.type(self)
        return name.replace("torch.", "torch.cuda.", 1) if is_ghost(self) else name
    if isinstance(dtype, torch.dtype):
        return _base.type(self, dtype, non_blocking, **kwargs)
    word = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
    there = _to(self, DEVICE if ".cuda." in word else "cpu", non_blocking=non_blocking)
    return there.to(getattr(torch, word.rpartition(".")[2]).dtype, **kwargs)


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, dict[str, Any]]:
    """Parses the arguments of `Tensor.to`: device, dtype, `non_blocking`, and the other keywords."""
    given = list(args)
    named = kwargs.pop("device", None)
    dtype = kwargs.pop("dtype", None)
    other = kwargs.pop("other", None)
    if given and isinstance(given[0], torch.Tensor):
        other = given.pop(0)
    elif given and not isinstance(given[0], torch.dtype):
        named = given.pop(0)
    if other is not None:
        named, dtype = other.device, other.dtype
    elif given and (given[0] is None or isinstance(given[0], torch.dtype)):
        dtype = given.pop(0)
    for name, value in zip(("non_blocking", "copy"), given, strict=False):
        kwargs[name] = value
    non_blocking = bool(kwargs.pop("non_blocking", False))
    if not kwargs.get("copy", True):
        del kwargs["copy"]
    return (None if named is None else device_of(named)), dtype, non_blocking, kwargs


def _reading_names() -> Iterator[Name]:
    """What reads the values of a tensor back to the host."""
    real_array, real_repr = torch.Tensor.__array__, torch.Tensor.__repr__
    real_interface = vars(torch.Tensor)["__cuda_array_interface__"]

    def numpy(self: Any, *, force: bool = False) -> Any:
        if not is_ghost(self):
            return _base.numpy(self, force=force)
        if force:
            return _base.numpy(_cpu(self.detach()), force=True)
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host "
            "memory first."
        )

    def array(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_ghost(self):
            numpy(self)
        return real_array(self, *args, **kwargs)

    def tolist(self: Any) -> Any:
        if is_ghost(self):
            NOTES.note("tolist", "the values are read back to the host", "DG413")
        with torch._C.DisableTorchFunction():  # it would call this replacement again
            return _base.tolist(self)

    def cuda_array_interface(self: Any) -> Any:
        if is_ghost(self):
            raise AttributeError("a ghost has no memory of a GPU")
        return real_interface.__get__(self)

    def shown(self: Any, **kwargs: Any) -> str:
        if is_ghost(self):
            NOTES.note("repr", "the values are read back to the host", "DG415")
        with quiet():
            return str(real_repr(self, **kwargs))

    yield torch.Tensor, "numpy", numpy
    yield torch.Tensor, "__array__", array
    yield torch.Tensor, "tolist", tolist
    yield torch.Tensor, "__cuda_array_interface__", property(cuda_array_interface)
    yield torch.Tensor, "__repr__", shown


def _pinning_names() -> Iterator[Name]:
    def pin_memory(self: Any, device: Any = None) -> Any:
        if is_pinned(self):
            return self
        copy = self.clone()
        pin(copy)
        return copy

    yield torch.Tensor, "pin_memory", pin_memory
    yield torch.Tensor, "is_pinned", lambda self, device=None: is_pinned(self)
