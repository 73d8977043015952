"""Which tensors lie on the ghost: the mark is on their memory, so views, parameters and gradients of one are
on it too, and it ends with the memory."""

from __future__ import annotations

from typing import Any

import torch

_GHOST = "_dispatchguard_ghost"
_PINNED = "_dispatchguard_pinned"
_functorch = torch._C._functorch
_storage = torch._C.TensorBase.untyped_storage
_is_wrapped = _functorch.is_functorch_wrapped_tensor


def is_ghost(tensor: torch.Tensor) -> bool:
    """Whether a tensor lies on the ghost."""
    # As `_holder` does, which is asked for nearly every argument of every operation.
    if not _is_wrapped(tensor):
        try:
            return hasattr(_storage(tensor), _GHOST)
        except (NotImplementedError, RuntimeError):
            return hasattr(tensor, _GHOST)
    return hasattr(_holder(tensor), _GHOST)


def mark(tensor: torch.Tensor) -> None:
    """Puts a tensor, and all that shares its memory, on the ghost."""
    setattr(_holder(tensor), _GHOST, True)


def unmark(tensor: torch.Tensor) -> None:
    """Takes it off again."""
    holder = _holder(tensor)
    if hasattr(holder, _GHOST):
        delattr(holder, _GHOST)


def is_pinned(tensor: torch.Tensor) -> bool:
    """Whether a tensor of the host counts as one of pinned memory."""
    return hasattr(_holder(tensor), _PINNED)


def pin(tensor: torch.Tensor) -> None:
    """Has it count as one."""
    setattr(_holder(tensor), _PINNED, True)


def is_ghost_storage(storage: Any) -> bool:
    """The same of memory."""
    return hasattr(storage, _GHOST)


def mark_storage(storage: Any) -> None:
    """The same of memory."""
    setattr(storage, _GHOST, True)


def _holder(tensor: torch.Tensor) -> Any:
    """What carries the marks: the memory, or the tensor itself where it has none of its own."""
    while _is_wrapped(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    try:
        return _storage(tensor)
    except (NotImplementedError, RuntimeError):
        return tensor
