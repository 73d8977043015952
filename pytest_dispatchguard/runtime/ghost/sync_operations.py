"""The table of operations that make the host wait for a GPU, which the ghost follows.

Taken from where torch's CUDA code copies and waits (what `torch.cuda.set_sync_debug_mode` warns of), from its
tests and changelogs, and held against a GPU (bench/results/gpu). An operation that waits several times within
counts once. Calls that are no ATen operations (`to`,
`tolist`, `synchronize`) are recorded where they are replaced, in `tensor_methods` and `cuda_api`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from packaging.version import Version

from pytest_dispatchguard.runtime.ghost.marks import is_ghost, is_pinned

When = Callable[[Sequence[Any], Mapping[str, Any]], bool]


@dataclass(frozen=True, slots=True)
class SyncOp:
    """One way in which an operation makes the host wait."""

    name: str
    """Its public name."""
    why: str
    code: str
    """The code of the rule about it."""
    when: When = lambda args, kwargs: True
    """Whether it waits with these arguments, some of which are on the GPU."""
    since: str = ""
    """The release of torch that it waits from; empty if it always did."""
    until: str = ""
    """The release of torch that it no longer waits from."""

    def in_force(self, torch_version: str) -> bool:
        """Whether it waits in a release of torch."""
        release = Version(torch_version).release
        begun = not self.since or release >= Version(self.since).release
        return begun and not (self.until and release >= Version(self.until).release)


_VALUE = "a value is read back to the host"
_COUNT = "the host waits to learn how many there are"
_ANSWER = "the answer is read back to the host"
_CHECKED = "whether it worked is read back to the host"
_SIGNS = "whether no deviation is negative is read back to the host"
_BOUNDS = "whether the sorter is within bounds is read back to the host"


def _is_mask(index: torch.Tensor) -> bool:
    return index.dtype in (torch.bool, torch.uint8)


def _indices(args: Sequence[Any]) -> list[torch.Tensor]:
    return [index for index in args[1] or () if index is not None]


def _mask(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """A mask of the host is counted on the host, without a wait."""
    return any(_is_mask(index) and is_ghost(index) for index in _indices(args))


def _fills(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Writing one number of the host through one mask is done by filling, without counting."""
    given = _indices(args)
    accumulates = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    one_number = args[2].dim() == 0 and not is_ghost(args[2]) and not accumulates
    return one_number and len(given) == 1 and _mask(args, kwargs)


def _mask_by_tensor(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return _mask(args, kwargs) and not _fills(args, kwargs)


def _host_indices(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return any(not _is_mask(index) and not is_ghost(index) for index in _indices(args))


def _host_mask(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return any(_is_mask(index) and not is_ghost(index) for index in _indices(args))


def _number_written(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Numbers are passed to the operation as tensors of the host."""
    return not is_ghost(args[2]) and not _fills(args, kwargs)


STAGED = 1 << 21
"""Bytes of memory that is not pinned which the driver takes aside, so that a `non_blocking` copy of them to
the device goes on. Asked on an H200: 2 MiB go on, 3 MiB wait."""


def goes_on(copied: torch.Tensor, host: torch.Tensor, *, asked: bool, out: bool) -> bool:
    """Whether the host goes on beside a copy: if that was asked for, and its own memory is pinned; to the
    device also if there is little to copy."""
    nothing = copied.numel() == 0
    little = out and copied.numel() * copied.element_size() <= STAGED
    return nothing or (asked and (is_pinned(host) or little))


def _copied(args: Sequence[Any], kwargs: Mapping[str, Any], *, out: bool) -> bool:
    """Whether a copy to the device, or back, waits."""
    into, source = args[0], args[1]
    asked = bool(args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
    waits = not goes_on(source, source if out else into, asked=asked, out=out)
    return is_ghost(into) is out and is_ghost(source) is not out and waits


def _number_copied(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """One element is written by a copy; numbers too before torch 2.15, which fills."""
    return args[1].dim() == 0 and _copied(args, kwargs, out=True)


def _values_copied(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return args[1].dim() > 0 and _copied(args, kwargs, out=True)


def _copied_back(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return _copied(args, kwargs, out=False)


def _each(when: When) -> When:
    """The same condition for an operation on lists."""
    return lambda args, kwargs: any(
        when((into, source, *args[2:]), kwargs)
        for into, source in zip(args[0], args[1], strict=True)
    )


def _spread_given(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """The standard deviation is a tensor of the device, whose values are checked."""
    spread = args[1] if len(args) > 1 else kwargs.get("std")
    return isinstance(spread, torch.Tensor) and is_ghost(spread)


def _sorter_given(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return kwargs.get("sorter") is not None


def _no_size(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return kwargs.get("output_size") is None


def _compared(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """What has another shape differs, and what is the same memory is the same: the host knows."""
    first, second = args[0], args[1]
    if first.shape != second.shape or first.numel() == 0:
        return False
    return not (_has_memory(first) and _has_memory(second) and first.is_set_to(second))


def _has_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one piece of memory, as sparse and nested ones are not."""
    return tensor.layout == torch.strided and not tensor.is_nested


def _some(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return bool(args[0].numel())


def _from_host(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """One of the tensors is a number of the host, which is moved to the others."""
    return any(isinstance(one, torch.Tensor) and not is_ghost(one) for one in args)


def _given(*positions: int) -> When:
    """A number at one of these positions is a tensor of the device."""

    def when(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        numbers = [args[at] for at in positions if at < len(args)]
        return any(isinstance(one, torch.Tensor) and is_ghost(one) for one in numbers)

    return when


def _by_itself(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Without bounds, they are read from the input."""
    low = args[2] if len(args) > 2 else kwargs.get("min", 0)
    high = args[3] if len(args) > 3 else kwargs.get("max", 0)
    return bool(low == high)


COPY_BACK = SyncOp(
    "copy to the host", "the host waits until it has the copy", "DG414", _copied_back
)
COPY_OUT = SyncOp(
    "copy to the device",
    "the host waits until memory that is not pinned is copied",
    "DG510",
    _values_copied,
)
READ_AMONG = SyncOp("tensor of tensors", _VALUE, "DG508")
_READ = SyncOp("item", _VALUE, "DG411")
_INDEX = SyncOp("index", "the indices are copied to the device", "DG510", _host_indices)
# A mask of the host is counted on the host, and its indices are copied from pinned memory.
_HOST_MASK = SyncOp("index", "the mask is copied to the device", "DG510", _host_mask, until="2.9")
LISTED_MASK = replace(_HOST_MASK, until="")
"""A mask that is a list of booleans is made a tensor of the device first."""
# Numbers are written by filling, or made on the device.
_NUMBER = SyncOp(
    "write of a number",
    "the number is copied to the device",
    "DG510",
    _number_written,
    until="2.15",
)
_WRITE = (
    SyncOp("mask write", _COUNT, "DG423", _mask_by_tensor),
    _INDEX,
    _HOST_MASK,
    _NUMBER,
)
_FILL = SyncOp("masked_fill", _VALUE, "DG427", _given(2))
_INDEX_FILL = SyncOp("index_fill", _VALUE, "DG427", _given(3))
_UNIQUE = SyncOp("unique", _COUNT, "DG424")
_LINALG = SyncOp("linalg", _CHECKED, "DG411")
_NESTED = SyncOp("nested tensor", "lengths are read back to the host", "DG411")
_CONSECUTIVE = SyncOp("unique_consecutive", _COUNT, "DG424")

TABLE: Mapping[str, tuple[SyncOp, ...]] = {
    "aten::_local_scalar_dense": (_READ,),
    "aten::equal": (SyncOp("equal", _ANSWER, "DG429", _compared),),
    "aten::allclose": (SyncOp("allclose", _ANSWER, "DG429"),),
    "aten::is_nonzero": (SyncOp("bool", _ANSWER, "DG401"),),
    "aten::nonzero": (SyncOp("nonzero", _COUNT, "DG421"),),
    "aten::masked_select": (SyncOp("masked_select", _COUNT, "DG422"),),
    "aten::index": (SyncOp("mask read", _COUNT, "DG422", _mask), _INDEX, _HOST_MASK),
    "aten::index_put": _WRITE,
    "aten::index_put_": _WRITE,
    "aten::_index_put_impl_": _WRITE,
    "aten::copy_": (replace(_NUMBER, when=_number_copied, until=""), COPY_OUT, COPY_BACK),
    "aten::_foreach_copy_": tuple(
        replace(copied, when=_each(copied.when)) for copied in (COPY_OUT, COPY_BACK)
    ),
    "aten::_unique": (_UNIQUE,),
    "aten::_unique2": (_UNIQUE,),
    "aten::unique_dim": (_UNIQUE,),
    "aten::unique_consecutive": (_CONSECUTIVE,),
    "aten::unique_dim_consecutive": (_CONSECUTIVE,),
    "aten::bincount": (SyncOp("bincount", _COUNT, "DG425", _some),),
    "aten::repeat_interleave": (SyncOp("repeat_interleave", _COUNT, "DG426", _no_size),),
    "aten::histc": (SyncOp("histc", "its bounds are read back to the host", "DG411", _by_itself),),
    "aten::normal": (SyncOp("normal", _SIGNS, "DG444", _spread_given),),
    "aten::searchsorted": (SyncOp("searchsorted", _BOUNDS, "DG411", _sorter_given),),
    "aten::where": (SyncOp("where", "the number is copied to the device", "DG503", _from_host),),
    "aten::masked_fill": (_FILL,),
    "aten::masked_fill_": (_FILL,),
    "aten::index_fill": (_INDEX_FILL,),
    "aten::index_fill_": (_INDEX_FILL,),
    "aten::linspace": (SyncOp("linspace", _VALUE, "DG427", _given(0, 1)),),
    "aten::logspace": (SyncOp("logspace", _VALUE, "DG427", _given(0, 1)),),
    "aten::_linalg_check_errors": (_LINALG,),
    "aten::_linalg_svd": (_LINALG,),
    "aten::_linalg_eigh": (_LINALG,),
    "aten::linalg_eig": (_LINALG,),
    "aten::linalg_lstsq": (_LINALG,),
    "aten::linalg_pinv": (_LINALG,),
    "aten::linalg_matrix_exp": (_LINALG,),
    "aten::_ctc_loss": (SyncOp("ctc_loss", "lengths are read back to the host", "DG411"),),
    "aten::_to_sparse": (SyncOp("to_sparse", _COUNT, "DG421"),),
    "aten::_nested_tensor_from_mask_left_aligned": (_NESTED,),
    "aten::to_padded_tensor": (_NESTED,),
}
"""All waits by operation, for all releases of torch."""


def syncs(torch_version: str) -> dict[str, tuple[SyncOp, ...]]:
    """The waits by operation, for one release."""
    found = {
        name: tuple(op for op in ops if op.in_force(torch_version)) for name, ops in TABLE.items()
    }
    return {name: ops for name, ops in found.items() if ops}
