"""A small training with waits planted in it, each in a function of its own, and a copy without a wait."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

PLANTED = {"batch_moved": 2, "hardest": 1, "kept": 1, "logged": 1}
"""How often each function makes the host wait in a step."""
WIDTH, BATCH = 1024, 256


def train(device: torch.device, steps: int) -> Iterator[float]:
    """The loss of each step, when the step is over."""
    torch.manual_seed(0)
    layers = [
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, 8),
    ]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y, weights = torch.randn(BATCH, WIDTH), torch.randint(8, (BATCH,)), torch.ones(BATCH)
    if device.type != "cpu":
        weights = weights.pin_memory()
    for _ in range(steps):
        inputs, labels = batch_moved(x, y, device)
        losses = nn.functional.cross_entropy(model(inputs), labels, reduction="none")
        loss = (losses * weights_moved(weights, device)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hardest(losses.detach())  # detached: the backward of a mask waits once more
        kept(losses)
        yield logged(loss)


def batch_moved(x: Tensor, y: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """Two copies from memory that is not pinned."""
    return x.to(device), y.to(device)


def weights_moved(weights: Tensor, device: torch.device) -> Tensor:
    """A copy that the host goes on beside."""
    return weights.to(device, non_blocking=True)


def hardest(losses: Tensor) -> Tensor:
    """An index that is a mask: the host waits to learn how many there are."""
    return losses[losses >= losses.mean()]


def kept(losses: Tensor) -> Tensor:
    """A copy to the host."""
    return losses.detach().cpu()


def logged(loss: Tensor) -> float:
    """A value read back."""
    return loss.item()
