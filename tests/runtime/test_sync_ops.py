"""What makes the host wait and what does not, case by case, as on a GPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="tells what torch's operations wait for")

from pytest_dispatchguard.runtime.ghost import ghost  # noqa: E402 - needs torch, which may be missing
from pytest_dispatchguard.runtime.sync_ops import (  # noqa: E402 - needs torch, which may be missing
    TABLE,
    SyncOp,
    syncs,
)

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real GPU here")
F = torch.nn.functional


class Given:
    """What cases work on."""

    def __init__(self) -> None:
        self.x = torch.arange(4.0, device="cuda")
        self.i = torch.arange(2, device="cuda")
        self.mask = self.x > 1
        self.n = torch.ones((), device="cuda")
        self.host = torch.ones(4)
        self.pinned = torch.ones(4).pin_memory()


def index_with(x: Any, index: Any, value: Any) -> None:
    x[index] = value


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
    "cpu": lambda g: g.x.cpu(),
    "to the host": lambda g: g.x.to("cpu"),
    "to the device": lambda g: g.host.to("cuda"),
    "cuda": lambda g: g.host.cuda(),
    "to the device, pinned, blocking": lambda g: g.pinned.to("cuda"),
    "to the device, not blocking, not pinned": lambda g: g.host.to("cuda", non_blocking=True),
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
    "unique_consecutive": lambda g: g.x.unique_consecutive(),
    "repeat_interleave": lambda g: g.x[:2].repeat_interleave(g.i),
    "bincount": lambda g: g.i.bincount(),
    "bincount with a size": lambda g: g.i.bincount(minlength=4),
    "equal": lambda g: torch.equal(g.x, g.x),
    "allclose": lambda g: torch.allclose(g.x, g.x),
    "in": lambda g: 1.0 in g.x,
    "tensor of data": lambda g: torch.tensor([1.0], device="cuda"),
    "tensor of a number": lambda g: torch.tensor(1.0, device="cuda"),
    "as_tensor of data": lambda g: torch.as_tensor([1, 2], device="cuda"),
    "one number as an index": lambda g: g.x[g.i[0]],
    "a bound": lambda g: g.x[: g.i[1]],
    "a list as an index": lambda g: g.x[[0, 1]],
    "a tensor of the host as an index": lambda g: g.x[torch.tensor([0, 1])],
    "range": lambda g: range(g.i[1]),
    "arange": lambda g: torch.arange(g.i[1], device="cuda"),
    "a size": lambda g: torch.zeros(g.i[1], device="cuda"),
    "one_hot": lambda g: F.one_hot(g.i),
    "histc without bounds": lambda g: torch.histc(g.x),
    "multinomial": lambda g: torch.multinomial(g.x, 2),
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
    "an event": lambda g: torch.cuda.Event().synchronize(),
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
RELEASE = tuple(map(int, torch.__version__.split("+")[0].split(".")[:2]))
WAITS.update(NUMBERS if RELEASE < (2, 15) else {})
GOES_ON.update({} if RELEASE < (2, 15) else NUMBERS)
WAITS.update(HOST_MASKS if RELEASE < (2, 9) else {})
GOES_ON.update({} if RELEASE < (2, 9) else HOST_MASKS)


@pytest.mark.parametrize("case", WAITS)
def test_the_host_waits(case: str) -> None:
    with ghost() as seen:
        given = Given()
        seen.times.clear()
        WAITS[case](given)
    assert seen.total == 1
    ((sync, _),) = seen.times.items()
    assert sync.code.startswith(("DG4", "DG5")) and sync.why


@pytest.mark.parametrize("case", GOES_ON)
def test_the_host_goes_on(case: str) -> None:
    with ghost() as seen:
        given = Given()
        seen.times.clear()
        GOES_ON[case](given)
    assert seen.times == {}


def test_every_entry_of_the_table_has_a_case() -> None:
    met: set[str] = set()

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]  # torch is not read when types are checked
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            met.add(func._schema.name)
            return func(*args, **(kwargs or {}))

    for case in WAITS.values():
        with ghost():
            given = Given()
            with Watch():
                case(given)
    # Older forms of the same operation, and those that others are made of, come from other releases.
    spared = {
        "aten::is_nonzero",
        "aten::_unique",
        "aten::unique_dim_consecutive",
        "aten::index_put",
        "aten::_index_put_impl_",
    }
    assert set(TABLE) - met == spared


def test_entries_name_operations_of_torch() -> None:
    for name in TABLE:
        assert torch._C._jit_get_schemas_for_operator(name), f"torch has no {name}"


def test_every_wait_is_in_the_docs(root: Path) -> None:
    page = (root / "docs" / "syncs.md").read_text(encoding="utf-8")
    table = page[page.index("## What makes the host wait") : page.index("No wait:")]
    words = {
        "bool": "the truth",
        "mask read": "x[mask]",
        "mask write": "x[mask] = tensor",
        "linalg": "torch.linalg",
        "index": "an index that is",
        "copy to the device": "copies to the device",
        "copy to the host": "copies to the host",
        "write of a number": "x[indices] = 1.0",
    }
    for entry in itertools.chain.from_iterable(TABLE.values()):
        assert words.get(entry.name, entry.name) in table, entry.name
        assert entry.code in table
        assert not entry.until or f"until torch {entry.until}" in table, entry.name


def test_entries_hold_for_some_releases() -> None:
    op = SyncOp("x", "y", "DG411", since="2.4", until="2.15")
    assert [
        op.in_force(v) for v in ("2.3.1", "2.4.0", "2.13.0+cpu", "2.14.1", "2.15.0", "3.0")
    ] == [
        False,
        True,
        True,
        True,
        False,
        False,
    ]
    assert not SyncOp("x", "y", "DG411", until="2.15").in_force("2.15.0a0+git123")
    older, newer = syncs("2.14.0"), syncs("2.15.0")
    assert len(older["aten::index_put_"]) == len(newer["aten::index_put_"]) + 1
    assert older.keys() == newer.keys()
