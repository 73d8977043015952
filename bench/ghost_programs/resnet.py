"""A small residual network learns from batches of a data loader; prints its losses."""

import json
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

DEVICE = sys.argv[1]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.last = nn.BatchNorm2d(width)

    def forward(self, x):
        return functional.relu(
            x + self.last(self.second(functional.relu(self.norm(self.first(x)))))
        )


def main():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), Block(8), nn.MaxPool2d(2), Block(8),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10),
    ).to(DEVICE)  # fmt: skip
    steps = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(steps, 6)
    data = TensorDataset(torch.randn(48, 3, 8, 8), torch.randint(0, 10, (48,)))
    losses, right = [], 0
    for images, labels in DataLoader(data, 8, pin_memory=DEVICE != "cpu"):
        images = images.to(DEVICE, non_blocking=True)
        labels = labels.to(DEVICE, non_blocking=True)
        out = model(images)
        loss = functional.cross_entropy(out, labels)
        steps.zero_grad(set_to_none=True)
        loss.backward()
        steps.step()
        schedule.step()
        losses.append(loss.item())
        right += (out.argmax(1) == labels).sum().item()
    print(json.dumps([*losses, right]))


if __name__ == "__main__":
    main()
