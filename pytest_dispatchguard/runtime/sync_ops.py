"""What makes the host wait for a GPU, operation by operation: the table that the ghost follows.

Taken from where torch's CUDA code copies back and waits (what `torch.cuda.set_sync_debug_mode` tells), from
its tests of that, and from NVIDIA's list of operations that wait. Calls that are no ATen operations, as
copies, `tolist` and `synchronize`, are told where they are replaced (`ghost_names`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class SyncOp:
    """An operation after which the host waits."""

    name: str
    """As its user knows it."""
    why: str
    code: str
    """Of the rule about it."""
    when: Callable[[Sequence[Any], Mapping[str, Any]], bool] = lambda args, kwargs: True
    """Whether it waits with these arguments."""


_VALUE = "a value is read back to the host"
_COUNT = "the host waits to learn how many there are"
_ANSWER = "the answer is read back to the host"
_CHECKED = "whether it worked is read back to the host"


def _mask(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return any(
        index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1] or ()
    )


def _mask_by_tensor(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Writing one number through one mask is done in place, where nobody counts."""
    given = [index for index in args[1] if index is not None]
    accumulates = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    one_number = args[2].numel() == 1 and args[2].dim() == 0 and not accumulates
    return _mask(args, kwargs) and not (len(given) == 1 and one_number)


def _no_size(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return kwargs.get("output_size") is None


def _checks_its_input(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Drawing with replacement does not; drawing once or without does."""
    times = args[1] if len(args) > 1 else kwargs.get("num_samples")
    replaced = args[2] if len(args) > 2 else kwargs.get("replacement", False)
    return not replaced or times == 1


def _by_itself(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Without bounds it looks for them."""
    low = args[2] if len(args) > 2 else kwargs.get("min", 0)
    high = args[3] if len(args) > 3 else kwargs.get("max", 0)
    return bool(low == high)


SYNCS: Mapping[str, SyncOp] = {
    "aten::_local_scalar_dense": SyncOp("item", _VALUE, "DG411"),
    "aten::equal": SyncOp("equal", _ANSWER, "DG429"),
    "aten::allclose": SyncOp("allclose", _ANSWER, "DG429"),
    "aten::is_nonzero": SyncOp("bool", _ANSWER, "DG401"),
    "aten::nonzero": SyncOp("nonzero", _COUNT, "DG421"),
    "aten::masked_select": SyncOp("masked_select", _COUNT, "DG422"),
    "aten::index": SyncOp("mask read", _COUNT, "DG422", _mask),
    "aten::index_put": SyncOp("mask write", _COUNT, "DG423", _mask_by_tensor),
    "aten::index_put_": SyncOp("mask write", _COUNT, "DG423", _mask_by_tensor),
    "aten::_index_put_impl_": SyncOp("mask write", _COUNT, "DG423", _mask_by_tensor),
    "aten::_unique": SyncOp("unique", _COUNT, "DG424"),
    "aten::_unique2": SyncOp("unique", _COUNT, "DG424"),
    "aten::unique_dim": SyncOp("unique", _COUNT, "DG424"),
    "aten::unique_consecutive": SyncOp("unique_consecutive", _COUNT, "DG424"),
    "aten::unique_dim_consecutive": SyncOp("unique_consecutive", _COUNT, "DG424"),
    "aten::bincount": SyncOp("bincount", _COUNT, "DG425"),
    "aten::repeat_interleave": SyncOp("repeat_interleave", _COUNT, "DG426", _no_size),
    "aten::histc": SyncOp("histc", "its bounds are read back to the host", "DG411", _by_itself),
    "aten::multinomial": SyncOp("multinomial", _CHECKED, "DG411", _checks_its_input),
    "aten::_linalg_check_errors": SyncOp("linalg", _CHECKED, "DG411"),
}
