"""Marks the tensors on the ghost. The mark is on the storage, so views and parameters share it, and it is
freed with the memory."""

from __future__ import annotations

from typing import Any

import torch

_GHOST = "_dispatchguard_ghost"
_PINNED = "_dispatchguard_pinned"
_functorch = torch._C._functorch
_storage = torch._C.TensorBase.untyped_storage
_is_wrapped = _functorch.is_functorch_wrapped_tensor


def is_ghost(tensor: torch.Tensor) -> bool:
    """Whether a tensor is on the ghost."""
    # Inlines the usual case of `_holder`: this runs for nearly every argument of every operation.
    if not _is_wrapped(tensor):
        try:
            return hasattr(_storage(tensor), _GHOST)
        except (NotImplementedError, RuntimeError):
            return hasattr(tensor, _GHOST)
    return hasattr(_holder(tensor), _GHOST)


def mark(tensor: torch.Tensor) -> None:
    """Puts a tensor, and all that share its memory, on the ghost."""
    setattr(_holder(tensor), _GHOST, True)


def unmark(tensor: torch.Tensor) -> None:
    """Puts it back on the host."""
    holder = _holder(tensor)
    if hasattr(holder, _GHOST):
        delattr(holder, _GHOST)


def is_pinned(tensor: torch.Tensor) -> bool:
    """Whether a tensor of the host counts as pinned."""
    return hasattr(_holder(tensor), _PINNED)


def pin(tensor: torch.Tensor) -> None:
    """Makes a tensor of the host count as pinned."""
    if is_ghost(tensor):
        raise RuntimeError(
            "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned"
        )
    setattr(_holder(tensor), _PINNED, True)


def is_ghost_storage(storage: Any) -> bool:
    """Whether a storage is on the ghost."""
    return hasattr(storage, _GHOST)


def mark_storage(storage: Any) -> None:
    """Puts a storage on the ghost."""
    setattr(storage, _GHOST, True)


def _holder(tensor: torch.Tensor) -> Any:
    """The object that carries the marks: the storage, or the tensor itself if it has none."""
    while _is_wrapped(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    try:
        return _storage(tensor)
    except (NotImplementedError, RuntimeError):
        return tensor
