"""Finds the tensors in what torch's functions are given and return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Those in lists, tuples and dicts of any depth, in order."""
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, torch.Tensor):
            yield part
        elif isinstance(part, list | tuple):
            stack.extend(reversed(part))
        elif isinstance(part, Mapping):
            stack.extend(reversed(list(part.values())))
