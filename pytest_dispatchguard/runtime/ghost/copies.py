"""Copies of tensors between the host and the ghost, and the waits that they cause."""

from __future__ import annotations

from typing import Any

import torch

from pytest_dispatchguard.runtime.ghost.marks import is_ghost, is_pinned, mark, unmark
from pytest_dispatchguard.runtime.ghost.sync_operations import COPY_BACK, COPY_OUT
from pytest_dispatchguard.runtime.syncs.syncs import NOTES

DEVICE = torch.device("cuda", 0)
Name = tuple[Any, str, Any]
"""A name of torch to replace: its owner, the name, and the replacement."""

_PINNED = "the host waits for the copy: from pinned memory non_blocking=True goes on"
_base = torch._C.TensorBase


class _Move(torch.autograd.Function):  # type: ignore[misc]  # torch is not read when types are checked
    """Copies a tensor to the other side; its gradient is copied back."""

    generate_vmap_rule = True

    @staticmethod
    def forward(tensor: Any, to_ghost: bool) -> Any:
        copy = _base.to(tensor, tensor.dtype, copy=True)
        (mark if to_ghost else unmark)(copy)
        return copy

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.to_ghost = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return moved(grad, not ctx.to_ghost), None


def moved(tensor: Any, to_ghost: bool) -> Any:
    """Returns the tensor on the ghost, or on the host: a copy where it is on the other side."""
    if is_ghost(tensor) == to_ghost:
        return tensor
    return _Move.apply(tensor, to_ghost)


def note_copy(source: Any, *, to_ghost: bool) -> None:
    """Records that the host waits for a copy."""
    wait = COPY_OUT if to_ghost else COPY_BACK
    why = _PINNED if to_ghost and is_pinned(source) else wait.why
    NOTES.note(wait.name, why, wait.code)


def device_of(named: Any) -> Any:
    """The device that a name or number means, as CUDA counts devices."""
    device = torch.device("cuda", named) if isinstance(named, int) else torch.device(named)
    if device.type == "cuda" and (device.index or 0) > 0:
        error = getattr(torch, "AcceleratorError", RuntimeError)  # since 2.8
        raise error("CUDA error: invalid device ordinal")
    return device
