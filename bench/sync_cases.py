"""Small cases of what makes the host wait for a GPU and what does not: the tests run them on the ghost,
bench_waits.py on a GPU. Those of reading, copying and indexing are here, others in torch_cases.py."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch_cases
from torch_cases import Given, index_with

F = torch.nn.functional


def recorded() -> Any:
    event = torch.cuda.Event()
    event.record()  # for one that is not, nobody waits
    return event


WAITS: dict[str, Callable[[Given], Any]] = {
    "item": lambda g: g.n.item(),
    "truth": lambda g: bool(g.mask[0]),
    "branch": lambda g: 1 if g.mask[0] else 0,
    "not": lambda g: not g.n,
    "and": lambda g: g.n and 1,
    "float": lambda g: float(g.n),
    "int": lambda g: int(g.n),
    "complex": lambda g: complex(g.n),
    "an index of a list": lambda g: [1, 2, 3][g.i[0]],
    "format": lambda g: f"{g.n:.2f}",
    "str": lambda g: str(g.x),
    "repr": lambda g: repr(g.x),
    "tolist": lambda g: g.x.tolist(),
    "a tensor made of a list of tensors": lambda g: torch.tensor([[1.0, g.n]]),
    "a new tensor of the host, made of a list of tensors": lambda g: g.host.new_tensor([g.n]),
    "cpu": lambda g: g.x.cpu(),
    "to the host": lambda g: g.x.to("cpu"),
    "to the device": lambda g: g.host.to("cuda"),
    "cuda": lambda g: g.host.cuda(),
    "to the device, pinned, blocking": lambda g: g.pinned.to("cuda"),
    "to the device and a type": lambda g: g.host.to("cuda", torch.float16),
    "copy_ from the device": lambda g: g.host.copy_(g.x),
    "copy_ to the device": lambda g: g.x.copy_(g.host),
    "nonzero": lambda g: g.x.nonzero(),
    "nonzero as a tuple": lambda g: g.x.nonzero(as_tuple=True),
    "argwhere": lambda g: torch.argwhere(g.x),
    "where of one": lambda g: torch.where(g.mask),
    "mask read": lambda g: g.x[g.mask],
    "mask write of a tensor": lambda g: index_with(g.x, g.mask, g.i.float()),
    "masked_select": lambda g: g.x.masked_select(g.mask),
    "unique": lambda g: g.x.unique(),
    "unique, counted": lambda g: g.x.unique(return_counts=True),
    "unique of rows": lambda g: torch.unique(g.x[None], dim=0),
    "unique_consecutive of rows": lambda g: torch.unique_consecutive(g.x[None], dim=0),
    "unique_consecutive": lambda g: g.x.unique_consecutive(),
    "repeat_interleave": lambda g: g.x[:2].repeat_interleave(g.i),
    "bincount": lambda g: g.i.bincount(),
    "bincount with a size": lambda g: g.i.bincount(minlength=4),
    "equal": lambda g: torch.equal(g.x, g.y),
    "allclose": lambda g: torch.allclose(g.x, g.y),
    "in": lambda g: 1.0 in g.x,
    "tensor of data": lambda g: torch.tensor([1.0], device="cuda"),
    "tensor of a number": lambda g: torch.tensor(1.0, device="cuda"),
    "as_tensor of data": lambda g: torch.as_tensor([1, 2], device="cuda"),
    "one number as an index": lambda g: g.x[g.i[0]],
    "a bound": lambda g: g.x[: g.i[1]],
    "a list as an index": lambda g: g.x[[0, 1]],
    "a list of booleans as an index": lambda g: g.x[[True, False, True, False]],
    "a list of booleans among indices": lambda g: g.m[:, [True, False, True]],
    "a write through a list of booleans": lambda g: index_with(g.m, [True, False, True], 1.0),
    "a tensor of the host as an index": lambda g: g.x[torch.tensor([0, 1])],
    "range": lambda g: range(g.i[1]),
    "arange": lambda g: torch.arange(g.i[1], device="cuda"),
    "a size": lambda g: torch.zeros(g.i[1], device="cuda"),
    "one_hot": lambda g: F.one_hot(g.i),
    "histc without bounds": lambda g: torch.histc(g.x),
    "inverse": lambda g: torch.linalg.inv(torch.eye(2, device="cuda")),
    "drawn with deviations": lambda g: torch.normal(0.0, g.x),
    "searchsorted with a sorter": lambda g: torch.searchsorted(g.x, g.x, sorter=g.x.argsort()),
    "a slice of the host": lambda g: index_with(g.x, slice(0, 2), g.host[:2]),
    "a slice to the host": lambda g: index_with(g.host, slice(0, 2), g.x[:2]),
    "one element of the host": lambda g: index_with(g.x, 0, g.host[0]),
    "_foreach_copy_ to the device": lambda g: torch._foreach_copy_([g.x], [g.host]),
    "_foreach_copy_ to the host": lambda g: torch._foreach_copy_([g.host], [g.x]),
    "synchronize": lambda g: torch.cuda.synchronize(),
    "accelerator.synchronize": lambda g: torch.accelerator.synchronize(),
    "an event": lambda g: recorded().synchronize(),
    "a stream": lambda g: torch.cuda.current_stream().synchronize(),
}
GOES_ON: dict[str, Callable[[Given], Any]] = {
    "shape": lambda g: (g.x.shape, g.x.size(0), g.x.dim(), g.x.numel(), len(g.x), g.x.stride()),
    "type": lambda g: (g.x.dtype, g.x.device, g.x.is_cuda, g.x.is_floating_point(), g.x.type()),
    "is": lambda g: g.x is None or g.x.requires_grad or g.x.is_contiguous(),
    "indices": lambda g: g.x[g.i],
    "write through indices": lambda g: index_with(g.x, g.i, g.i.float()),
    "write of a number on the device": lambda g: index_with(g.x, g.i, g.n),
    "a number in a slice": lambda g: index_with(g.x, slice(0, 2), 1.0),
    "a number everywhere": lambda g: index_with(g.x, ..., 1.0),
    "drawn with one deviation": lambda g: (torch.normal(g.x, 1.0), g.x.normal_(0, 2)),
    "searchsorted": lambda g: torch.searchsorted(g.x, g.x),
    "a slice from pinned memory, not blocking": lambda g: torch._foreach_copy_(
        [g.x], [g.pinned], non_blocking=True
    ),
    "mask write of a number": lambda g: index_with(g.x, g.mask, 1.0),
    "mask write of one element": lambda g: index_with(g.x, g.mask, torch.tensor(2.0)),
    "masked_fill": lambda g: g.x.masked_fill(g.mask, 0.0),
    "where of three": lambda g: torch.where(g.mask, g.x, 0),
    "repeat_interleave with a size": lambda g: g.x[:2].repeat_interleave(g.i, output_size=1),
    "repeat_interleave by a number": lambda g: g.x.repeat_interleave(2),
    "one_hot with a size": lambda g: F.one_hot(g.i, 5),
    "pinned, not blocking": lambda g: g.pinned.to("cuda", non_blocking=True),
    "made in pinned memory, not blocking": lambda g: torch.tensor([1.0, 2.0], pin_memory=True).to(
        "cuda", non_blocking=True
    ),
    "zeros in pinned memory, not blocking": lambda g: torch.zeros(2, pin_memory=True).to(
        "cuda", non_blocking=True
    ),
    "from the device into pinned, not blocking": lambda g: g.pinned.copy_(g.x, non_blocking=True),
    "nothing to copy": lambda g: (torch.tensor([], device="cuda"), torch.empty(0).to("cuda")),
    "zeros": lambda g: torch.zeros(3, device="cuda"),
    "full": lambda g: torch.full((2,), 1.0, device="cuda"),
    "arange by a number": lambda g: torch.arange(3, device="cuda"),
    "randperm": lambda g: torch.randperm(4, device="cuda"),
    "new": lambda g: (g.x.new_zeros(3), torch.rand_like(g.x)),
    "arithmetic": lambda g: g.x + 1 * g.x,
    "a number of the host": lambda g: g.x * torch.tensor(2.0),
    "comparison": lambda g: (g.x > 1).any(),
    "isnan": lambda g: torch.isnan(g.x).any(),
    "max": lambda g: g.x.max(),
    "sort": lambda g: (g.x.sort(), g.x.topk(2), g.x.argsort()),
    "moved where it is": lambda g: g.x.to("cuda"),
    "another type": lambda g: g.x.half(),
    "gather": lambda g: (g.x.gather(0, g.i), g.x.index_select(0, g.i), g.x.take(g.i)),
    "scatter": lambda g: (g.x.scatter(0, g.i, 1.0), g.x.index_add(0, g.i, g.i.float())),
    "iteration": lambda g: [t + 1 for t in g.x],
    "slices": lambda g: (g.x[1:3], g.x[0], g.x[None], g.x[..., -1]),
    "cat": lambda g: (torch.cat([g.x, g.x]), torch.stack([g.x, g.x])),
    "copy_ on the device": lambda g: g.x.copy_(g.x + 1),
    "losses": lambda g: (F.cross_entropy(g.x[None], g.i[:1]), F.mse_loss(g.x, g.x)),
    "softmax": lambda g: g.x.softmax(0),
    "clamp": lambda g: g.x.clamp(min=g.n),
    "norm": lambda g: (g.x.norm(), g.x.cumsum(0), g.x.std()),
    "drawn without replacement": lambda g: torch.multinomial(g.x, 2),
    "drawn with replacement": lambda g: torch.multinomial(g.x, 2, replacement=True),
    "histc with bounds": lambda g: torch.histc(g.x, bins=4, min=0, max=3),
    "embedding": lambda g: F.embedding(g.i, g.x[:, None]),
    "dropout": lambda g: F.dropout(g.x, 0.5),
    "inverse, unchecked": lambda g: torch.linalg.inv_ex(torch.eye(2, device="cuda")),
    "the host's item": lambda g: g.host[0].item(),
    "the host's truth": lambda g: bool(g.host[0]),
    "the host's nonzero": lambda g: (g.host.nonzero(), g.host[g.host > 0], g.host.unique()),
    "events": lambda g: torch.cuda.Event().record(),
}


WAITS.update(torch_cases.WAITS)
GOES_ON.update(torch_cases.GOES_ON)
NUMBERS: dict[str, Callable[[Given], Any]] = {
    "a number through indices": lambda g: index_with(g.x, g.i, 1.0),
    "a number in one element": lambda g: index_with(g.x, 0, 1.0),
    "a number through a mask of the host": lambda g: index_with(g.x, g.host > 2, 1.0),
}
"""What waits in some releases of torch."""
HOST_MASKS: dict[str, Callable[[Given], Any]] = {
    "read through a mask of the host": lambda g: g.x[g.host > 0],
    "write through a mask of the host": lambda g: index_with(g.x, g.host > 0, g.x + 1),
}
"""Of other releases."""
SEVERAL = torch_cases.SEVERAL
RELEASE = tuple(map(int, torch.__version__.split("+")[0].split(".")[:2]))
if RELEASE < (2, 9):
    del NUMBERS["a number through a mask of the host"]  # waits twice
WAITS.update(NUMBERS if RELEASE < (2, 15) else {})
GOES_ON.update({} if RELEASE < (2, 15) else NUMBERS)
WAITS.update(HOST_MASKS if RELEASE < (2, 9) else {})
GOES_ON.update({} if RELEASE < (2, 9) else HOST_MASKS)
UNTOLD = frozenset(
    {
        "synchronize",
        "accelerator.synchronize",
        "an event",
        "a stream",
        "unique of rows",
        "unique_consecutive of rows",
        *torch_cases.UNTOLD,
    }
)
"""What waits though torch's debug mode for waits says nothing of it."""
