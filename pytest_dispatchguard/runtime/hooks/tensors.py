"""Finds the tensors in what torch's functions are given and return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

_PLAIN = frozenset(
    {type(None), bool, int, float, complex, str, torch.dtype, torch.device, torch.layout}
)
"""Types of most of what is no tensor, told without asking further: this is done for every operation."""


def storage_of(tensor: torch.Tensor) -> Any:
    """The memory of a tensor; None where it has none of its own, as sparse, wrapped and lazy ones."""
    if tensor.device.type == "lazy":
        return None  # torch makes one up whose address is null
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def tensors(value: Any) -> list[torch.Tensor]:
    """Those in lists, tuples and dicts of any depth, in order."""
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
