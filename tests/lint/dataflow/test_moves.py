"""Parameters that a function moves to a device itself."""

from __future__ import annotations

import pytest

from .reading import body, words

MOVES = """
show(x)
{moves}
show(y)
"""
PARAMS = "x: Tensor, other: Tensor, device, flag"


@pytest.mark.parametrize(
    "moves",
    [
        "y = x.to(device)",
        "y = x.to(device_id)",
        "y = x.to(local_rank)",
        "y = x.to(device=device)",
        "y = x.float().cuda()",
        "y = x.to('cuda:0')",
        "y = torch.cat([other, x[:, :3]], dim=-1).to(device)",
        "y = (-x if flag else x * 2)\ny = y.to(device)",
        "if flag:\n    y = x.abs()\nelse:\n    y = x + 1\ny = y.to(device)",
        "y = torch.where(flag, other, x).to(device)",
    ],
)
def test_what_is_moved_later_may_be_on_the_cpu_until_then(moves: str) -> None:
    assert words(body(MOVES.format(moves=moves), PARAMS)) == ["tensor@any", "tensor"]


@pytest.mark.parametrize(
    "moves",
    [
        "y = x.abs()",
        "y = x.to(torch.float64)",
        "y = x.to(other)",
        "y = x.to(other.device)",
        "y = torch.arange(x.shape[0]).to(device)",
        "y = x.new_zeros(3).to(device)",
        "y = torch.zeros(x.size(0)).to(device) + x",
        "x = torch.zeros(3)\ny = other",
    ],
)
def test_what_is_not_moved_is_taken_to_be_on_the_device(moves: str) -> None:
    assert words(body(MOVES.format(moves=moves), PARAMS))[0] == "tensor"


def test_the_device_of_self_moves_that_of_another_object_does_not() -> None:
    source = """
    class M(nn.Module):
        def forward(self, x: Tensor, other: Tensor, batch):
            show(x, other)
            a = x.to(self.device)
            b = other.to(batch.device)
            return show(a, b)
    """
    assert words(source) == ["tensor@any", "tensor", "tensor", "tensor"]


def test_what_a_loop_leaves_behind_stays_on_the_cpu() -> None:
    source = body(
        """
        for i, (ids, mask, label, names) in enumerate(loader):
            ids = ids.to(device)
            mask = mask.to(device) if flag else mask
            show(i, ids, mask, label, label[0])
            label = net(ids)
            show(label)
        for one, other in pairs:
            show(one, other, one.to(torch.float64))
        """,
        "loader, device, flag, pairs, net",
    )
    assert words(source) == [
        "scalar", "tensor?", "tensor?", "tensor?@cpu", "tensor?@cpu", "tensor?",
        "unknown", "unknown", "tensor?",
    ]  # fmt: skip
