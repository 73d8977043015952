"""What Keras on torch costs over the eager torch call that does the same: one suite for every version."""

from __future__ import annotations

import os
from typing import Any

import keras
import pytest
import torch

WIDTHS = pytest.mark.parametrize("n", [4, 256])
DEVICE = os.environ.get("KERAS_SUITE_DEVICE", "cpu")
"""Where Keras puts its weights as well: on the GPU, where one is."""
torch.backends.cudnn.allow_tf32 = False  # else two convolutions may not agree
budget = pytest.mark.overhead_budget
"""Between what Keras 3.12.0 and 3.15.1 cost: the older one exceeds them, the newer one does not."""


def square(n: int) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(n, n).to(DEVICE)


def values(parameter: torch.Tensor) -> Any:
    return parameter.detach().cpu().numpy()


@budget(ratio=11, instructions=500)
@WIDTHS
def test_add(overhead: Any, n: int) -> None:
    x, y = square(n), square(n)
    overhead(keras.ops.add, x, y).against(torch.add, x, y)


@budget(ratio=24, instructions=2000)
@WIDTHS
def test_matmul(overhead: Any, n: int) -> None:
    x, y = square(n), square(n)
    overhead(keras.ops.matmul, x, y).against(torch.matmul, x, y)


@budget(ratio=14, instructions=1000)
@WIDTHS
def test_softmax(overhead: Any, n: int) -> None:
    x = square(n)
    overhead(keras.ops.softmax, x).against(torch.softmax, x, -1)


@budget(ratio=9.5, instructions=9000)
@WIDTHS
def test_dense(overhead: Any, n: int) -> None:
    x, dense, linear = square(n), keras.layers.Dense(n), torch.nn.Linear(n, n).to(DEVICE)
    dense.build((None, n))
    dense.set_weights([values(linear.weight).T, values(linear.bias)])
    overhead(dense, x).named("Dense").against(linear, x).agreeing(rtol=1e-4, atol=1e-5)


@budget(ratio=35, instructions=6000)
@WIDTHS
def test_relu(overhead: Any, n: int) -> None:
    x = square(n)
    overhead(keras.layers.ReLU(), x).against(torch.nn.ReLU(), x)


@budget(ratio=100, instructions=5000)
@WIDTHS
def test_identity(overhead: Any, n: int) -> None:
    x = square(n)
    overhead(keras.layers.Identity(), x).against(torch.nn.Identity(), x)


@budget(ratio=7, instructions=60000)
@WIDTHS
def test_cnn(overhead: Any, n: int) -> None:
    """Two convolutions, a mean over the picture, a dense layer: a forward."""
    first = torch.nn.Conv2d(3, n, 3, padding=1)
    second = torch.nn.Conv2d(n, n, 3, padding=1)
    head = torch.nn.Linear(n, 10)
    eager = torch.nn.Sequential(
        first,
        torch.nn.ReLU(),
        second,
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        head,
    ).to(DEVICE)
    wide: dict[str, Any] = {"padding": "same", "data_format": "channels_first"}
    model = keras.Sequential(
        [
            keras.layers.Conv2D(n, 3, **wide),
            keras.layers.ReLU(),
            keras.layers.Conv2D(n, 3, **wide),
            keras.layers.ReLU(),
            keras.layers.GlobalAveragePooling2D(data_format="channels_first"),
            keras.layers.Dense(10),
        ]
    )
    x = torch.randn(2, 3, 8, 8).to(DEVICE)
    model.build(x.shape)
    weights = []
    for layer in (first, second, head):
        kernel = values(layer.weight)
        weights += [
            kernel.transpose(2, 3, 1, 0) if kernel.ndim == 4 else kernel.T,
            values(layer.bias),
        ]
    model.set_weights(weights)
    overhead(model, x).named("CNN").against(eager, x).agreeing(rtol=1e-4, atol=1e-5)
