"""Models whose tracing is counted, small in size and many in operations, each also as a user may write it so
that less is traced."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Branches(nn.Module):
    """Convolutions side by side, put together again."""

    def __init__(self, channels: int, branches: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            _Branch(channels, channels // branches) for _ in range(branches)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.cat([branch(x) for branch in self.branches], 1)


class OneBranch(nn.Module):
    """The same as one convolution: each branch makes a part of its channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.branch = _Branch(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


class _Branch(nn.Sequential):
    def __init__(self, taken: int, made: int) -> None:
        convolution = nn.Conv2d(taken, made, 3, padding=1, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(made), nn.ReLU())


class Stack(nn.Module):
    """Blocks one after the other."""

    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Region(Stack):
    """The same blocks, the compiler told that they repeat."""

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = _region(block, x)
        return x


@getattr(torch.compiler, "nested_compile_region", lambda function: function)
def _region(block: nn.Module, x: Tensor) -> Tensor:
    out: Tensor = block(x)
    return out


class Heads(nn.Module):
    """A transformer's block with projections of its own for every head."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        each = width // heads
        self.projections = nn.ModuleList(
            nn.ModuleList(nn.Linear(width, each) for _ in range(3)) for _ in range(heads)
        )
        self.around = _Around(width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.around.first(x)
        heads = [
            functional.scaled_dot_product_attention(query(y), key(y), value(y))
            for query, key, value in self.projections
        ]
        rest: Tensor = self.around(x, torch.cat(heads, -1))
        return rest


class Transformer(nn.Module):
    """A transformer's block with one projection for all heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.projection = nn.Linear(width, 3 * width)
        self.around = _Around(width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.projection(self.around.first(x)).unflatten(-1, (3, self.heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind()
        y = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        rest: Tensor = self.around(x, y)
        return rest


class _Around(nn.Module):
    """What both have beside their heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.out = nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.out(attended)
        out: Tensor = x + self.narrow(functional.gelu(self.wide(self.second(x))))
        return out


class Hashing(nn.Module):
    """Attention among those that hash alike, as in Reformer: sorted by bucket, in chunks that see the one
    before, several rounds of hashes, each in turn."""

    def __init__(self, width: int, rounds: int, buckets: int, chunk: int) -> None:
        super().__init__()
        self.rounds, self.buckets, self.chunk = rounds, buckets, chunk
        self.norm = nn.LayerNorm(width)
        self.shared, self.value = nn.Linear(width, width), nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.register_buffer("rotations", torch.randn(rounds, width, buckets // 2))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        keys, values = self.shared(y), self.value(y)
        found = [self.attended(keys, values, self.rotations[i]) for i in range(self.rounds)]
        weights = torch.softmax(torch.stack([total for _, total in found]), 0)
        both = torch.stack([out for out, _ in found])
        mixed: Tensor = x + self.out((weights.unsqueeze(-1) * both).sum(0))
        return mixed

    def attended(self, keys: Tensor, values: Tensor, rotation: Tensor) -> tuple[Tensor, Tensor]:
        """What one round of hashes finds, and the logarithm of its weight."""
        turned = keys @ rotation
        bucket = torch.cat([turned, -turned], -1).argmax(-1)
        order = bucket.argsort(dim=-1, stable=True)
        back = order.argsort(-1)
        at = order.unsqueeze(-1).expand(*order.shape, keys.shape[-1])
        query = keys.gather(-2, at).unflatten(-2, (-1, self.chunk))
        value = values.gather(-2, at).unflatten(-2, (-1, self.chunk))
        of = bucket.gather(-1, order).unflatten(-1, (-1, self.chunk))
        key = functional.normalize(query, dim=-1)
        key, value = _with_before(key, -3), _with_before(value, -3)
        unlike = of.unsqueeze(-1) != _with_before(of, -2).unsqueeze(-2)
        scores = (query @ key.transpose(-1, -2)).masked_fill(unlike, -1e4)
        total = scores.logsumexp(-1)
        out = ((scores - total.unsqueeze(-1)).exp() @ value).flatten(-3, -2)
        at = back.unsqueeze(-1).expand_as(out)
        return out.gather(-2, at), total.flatten(-2).gather(-1, back)


class HashingAtOnce(Hashing):
    """The same with all rounds at once."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        keys, values = (
            part.expand(self.rounds, *part.shape) for part in (self.shared(y), self.value(y))
        )
        both, totals = self.attended(keys, values, self.rotations.unsqueeze(1))
        weights = torch.softmax(totals, 0)
        mixed: Tensor = x + self.out((weights.unsqueeze(-1) * both).sum(0))
        return mixed


def _with_before(x: Tensor, dim: int) -> Tensor:
    """Each chunk with the one before it; ``dim`` counts chunks."""
    return torch.cat([x.roll(1, dim), x], dim + 1)
