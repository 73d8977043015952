"""A hundred small modules, each with a number of its own, in the forms that the study of guards compares."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Constant(nn.Module):
    """Multiplies by its own Python float."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class Buffer(nn.Module):
    """The same with the constant moved to a buffer."""

    factor: Tensor

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.register_buffer("factor", torch.tensor(factor))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class Chain(nn.Module):
    """Small modules, one after the other."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x


class OneTuple(nn.Module):
    """The same with all constants in one tuple of the whole."""

    def __init__(self, factors: Sequence[float]) -> None:
        super().__init__()
        self.factors = tuple(factors)

    def forward(self, x: Tensor) -> Tensor:
        for factor in self.factors:
            x = x * factor
        return x


class OneBuffer(nn.Module):
    """The same with all constants in one buffer of the whole."""

    factors: Tensor

    def __init__(self, factors: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("factors", torch.tensor(factors))

    def forward(self, x: Tensor) -> Tensor:
        for factor in self.factors.unbind():
            x = x * factor
        return x


def constants(number: int) -> Chain:
    """As the tutorial has it."""
    return Chain([Constant(factor) for factor in factors(number)])


def buffers(number: int) -> Chain:
    """A buffer in each module."""
    return Chain([Buffer(factor) for factor in factors(number)])


def one_tuple(number: int) -> OneTuple:
    """One tuple in the whole."""
    return OneTuple(factors(number))


def one_buffer(number: int) -> OneBuffer:
    """One buffer in the whole."""
    return OneBuffer(factors(number))


def factors(number: int) -> list[float]:
    """Different numbers close to one."""
    return [1 + i / 1e6 for i in range(1, number + 1)]
