"""Finds the tensors in what torch's functions are given and return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

_PLAIN = frozenset(
    {type(None), bool, int, float, complex, str, torch.dtype, torch.device, torch.layout}
)
"""Types of most of what is no tensor, told without asking further: this is done for every operation."""


def tensors(value: Any) -> list[torch.Tensor]:
    """Those in lists, tuples and dicts of any depth, in order."""
    found: list[torch.Tensor] = []
    _gather((value,), found)
    return found


def _gather(values: Any, found: list[torch.Tensor]) -> None:
    for value in values:
        kind = type(value)
        if kind is torch.Tensor:
            found.append(value)
        elif kind is tuple or kind is list:
            if value:
                _gather(value, found)
        elif kind in _PLAIN:
            continue
        elif isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            _gather(value, found)
        elif isinstance(value, Mapping):
            _gather(value.values(), found)
