"""Finds the tensors among the arguments and results of torch's functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

_PLAIN = frozenset(
    {type(None), bool, int, float, complex, str, torch.dtype, torch.device, torch.layout}
)
"""Types of most other arguments, checked first for speed: this runs for every operation."""


def storage_of(tensor: torch.Tensor) -> Any:
    """The storage of a tensor; None for sparse, wrapped and lazy ones, which have none."""
    if tensor.device.type == "lazy":
        return None  # its storage is a dummy without memory
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def tensors(value: Any) -> list[torch.Tensor]:
    """All tensors in nested lists, tuples and dicts, in order."""
    found: list[torch.Tensor] = []
    left = [value]
    while left:
        value = left.pop()
        kind = type(value)
        if kind is torch.Tensor:
            found.append(value)
        elif kind is tuple or kind is list:
            left += value[::-1]
        elif kind in _PLAIN:
            continue
        elif isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            left += list(value)[::-1]
        elif isinstance(value, Mapping):
            left += list(value.values())[::-1]
    return found
