"""What stands in for names of torch while there is a ghost: where tensors say their device, move, and are
read, and what is asked of a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.storage import _StorageBase
from torch.utils._device import DeviceContext

from pytest_dispatchguard.runtime.code.foreign import is_foreign
from pytest_dispatchguard.runtime.ghost.marks import (
    is_ghost,
    is_ghost_storage,
    is_pinned,
    mark,
    mark_storage,
    pin,
    unmark,
)
from pytest_dispatchguard.runtime.ghost.sync_operations import COPY_BACK, COPY_OUT, SyncOp
from pytest_dispatchguard.runtime.syncs.syncs import Notes, as_one, quiet

DEVICE = torch.device("cuda", 0)
_PINNED = "the host waits for the copy: from pinned memory non_blocking=True goes on"
Name = tuple[Any, str, Any]
"""An owner, a name in it, and what stands there meanwhile."""

_base = torch._C.TensorBase


class _Move(torch.autograd.Function):  # type: ignore[misc]  # torch is not read when types are checked
    """A copy on the other side, whose gradient comes back."""

    generate_vmap_rule = True

    @staticmethod
    def forward(tensor: Any, to_ghost: bool) -> Any:
        copy = _base.to(tensor, tensor.dtype, copy=True)
        (mark if to_ghost else unmark)(copy)
        return copy

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.to_ghost = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return moved(grad, not ctx.to_ghost), None


def moved(tensor: Any, to_ghost: bool) -> Any:
    """A copy of a tensor on the ghost, or on the host."""
    if is_ghost(tensor) == to_ghost:
        return tensor
    return _Move.apply(tensor, to_ghost)


def _note(notes: Notes, wait: SyncOp) -> None:
    notes.note(wait.name, wait.why, wait.code)


def _note_copy(notes: Notes, to_ghost: bool, source: Any) -> None:
    wait = COPY_OUT if to_ghost else COPY_BACK
    why = _PINNED if to_ghost and is_pinned(source) else wait.why
    notes.note(wait.name, why, wait.code)


def names(notes: Notes) -> Iterator[Name]:
    """All that is replaced."""
    yield from _of_tensors(notes)
    yield from _of_modules()
    yield from _factories(notes)
    yield from _of_cuda(notes)
    yield from _of_amp()
    yield from _of_storages()
    yield from _unsupported()


# -- tensors -----------------------------------------------------------------------------------------


def _of_tensors(notes: Notes) -> Iterator[Name]:
    tensor = torch.Tensor

    def device(self: Any) -> Any:
        return DEVICE if is_ghost(self) else _base.device.__get__(self)

    def is_cuda(self: Any) -> bool:
        return is_ghost(self) or _base.is_cuda.__get__(self)

    def is_cpu(self: Any) -> bool:
        return _base.is_cpu.__get__(self) and not is_ghost(self)

    def get_device(self: Any) -> int:
        return 0 if is_ghost(self) else _base.get_device(self)

    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        target, dtype, non_blocking, rest = _asked(*args, **kwargs)
        if target is None or target.type not in ("cuda", "cpu"):
            return _base.to(self, *args, **kwargs)
        to_ghost = target.type == "cuda"
        other = self
        if is_ghost(self) != to_ghost:
            if self.numel() and (not non_blocking or (to_ghost and not is_pinned(self))):
                _note_copy(notes, to_ghost, self)
            other = moved(self, to_ghost)
            rest.pop("copy", None)
        if dtype is None and not rest:
            return other
        return _base.to(other, dtype or other.dtype, **rest)

    def cuda(self: Any, device: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        return to(self, DEVICE, non_blocking=non_blocking, **kwargs)

    def cpu(self: Any, **kwargs: Any) -> Any:
        return to(self, "cpu", **kwargs)

    def copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
        to_ghost = is_ghost(self)
        if isinstance(src, torch.Tensor) and is_ghost(src) != to_ghost:
            if src.numel() and not (non_blocking and is_pinned(src if to_ghost else self)):
                _note_copy(notes, to_ghost, src)
            src = moved(src, to_ghost)
        return _base.copy_(self, src, non_blocking)

    def numpy(self: Any, *, force: bool = False) -> Any:
        if not is_ghost(self):
            return _base.numpy(self, force=force)
        if force:
            return _base.numpy(cpu(self.detach()), force=True)
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host "
            "memory first."
        )

    def array(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_ghost(self):
            numpy(self)
        return _real_array(self, *args, **kwargs)

    def tolist(self: Any) -> Any:
        if is_ghost(self):
            notes.note("tolist", "the values are read back to the host", "DG413")
        with torch._C.DisableTorchFunction():  # it would call what stands here once more
            return _base.tolist(self)

    def new_tensor(self: Any, data: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        to_ghost = is_ghost(self) if device is None else _device(device).type == "cuda"
        if not to_ghost:
            return _base.new_tensor(self, data, *args, device=device, **kwargs)
        kwargs.setdefault("dtype", self.dtype)
        return torch.tensor(data, *args, device=DEVICE, **kwargs)

    def cuda_array_interface(self: Any) -> Any:
        if is_ghost(self):
            raise AttributeError("a ghost has no memory of a GPU")
        return _real_interface.__get__(self)

    def pin_memory(self: Any, device: Any = None) -> Any:
        if is_ghost(self):
            raise RuntimeError(
                "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned"
            )
        if is_pinned(self):
            return self
        copy = self.clone()
        pin(copy)
        return copy

    def pinned(self: Any, device: Any = None) -> bool:
        return is_pinned(self)

    def kind(self: Any, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        if dtype is None:
            name = _base.type(self)
            return name.replace("torch.", "torch.cuda.", 1) if is_ghost(self) else name
        if isinstance(dtype, torch.dtype):
            return _base.type(self, dtype, non_blocking, **kwargs)
        word = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
        there = to(self, DEVICE if ".cuda." in word else "cpu", non_blocking=non_blocking)
        return there.to(getattr(torch, word.rpartition(".")[2]).dtype, **kwargs)

    def text(self: Any, **kwargs: Any) -> str:
        if is_ghost(self):
            notes.note("repr", "the values are read back to the host", "DG415")
        with quiet():
            return str(_real_repr(self, **kwargs))

    real_grouped = torch._C._group_tensors_by_device_and_dtype

    def grouped(lists: Any, *args: Any, **kwargs: Any) -> Any:
        """Optimizers ask on which device groups of tensors are; it looks past what they say."""
        return {
            (DEVICE if is_ghost(group[0][0][0]) else device, dtype): group
            for (device, dtype), group in real_grouped(lists, *args, **kwargs).items()
        }

    yield torch._C, "_group_tensors_by_device_and_dtype", grouped
    _real_array, _real_repr = tensor.__array__, tensor.__repr__
    _real_interface = vars(tensor)["__cuda_array_interface__"]
    yield tensor, "device", property(device)
    yield tensor, "is_cuda", property(is_cuda)
    yield tensor, "is_cpu", property(is_cpu)
    yield tensor, "get_device", get_device
    yield tensor, "to", to
    yield tensor, "cuda", cuda
    yield tensor, "cpu", cpu
    yield tensor, "copy_", copy_
    yield tensor, "numpy", numpy
    yield tensor, "__array__", array
    yield tensor, "tolist", tolist
    yield tensor, "new_tensor", new_tensor
    yield tensor, "__cuda_array_interface__", property(cuda_array_interface)
    yield tensor, "pin_memory", pin_memory
    yield tensor, "is_pinned", pinned
    yield tensor, "type", kind
    yield tensor, "__repr__", text
    yield tensor, "record_stream", lambda self, stream: None


def _of_modules() -> Iterator[Name]:
    """A module that moves is one wait to who moves it, not one for each of its parameters."""
    real = torch.nn.Module._apply

    def apply(self: Any, *args: Any, **kwargs: Any) -> Any:
        with as_one():
            return real(self, *args, **kwargs)

    yield torch.nn.Module, "_apply", apply


def _asked(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, dict[str, Any]]:
    """What `to` is asked for: the device, if any, the type, if any, whether not to wait, and the rest."""
    given = list(args)
    named = kwargs.pop("device", None)
    dtype = kwargs.pop("dtype", None)
    other = kwargs.pop("other", None)
    if given and isinstance(given[0], torch.Tensor):
        other = given.pop(0)
    elif given and not isinstance(given[0], torch.dtype):
        named = given.pop(0)
    if other is not None:
        named, dtype = other.device, other.dtype
    elif given and (given[0] is None or isinstance(given[0], torch.dtype)):
        dtype = given.pop(0)
    for name, value in zip(("non_blocking", "copy"), given, strict=False):
        kwargs[name] = value
    waits_not = bool(kwargs.pop("non_blocking", False))
    if not kwargs.get("copy", True):
        del kwargs["copy"]
    return (None if named is None else _device(named)), dtype, waits_not, kwargs


def _device(named: Any) -> Any:
    device = torch.device("cuda", named) if isinstance(named, int) else torch.device(named)
    if device.type == "cuda" and (device.index or 0) > 0:
        error = getattr(torch, "AcceleratorError", RuntimeError)  # since 2.8
        raise error("CUDA error: invalid device ordinal")
    return device


# -- what makes tensors ------------------------------------------------------------------------------


def _factories(notes: Notes) -> Iterator[Name]:
    """Those that look at the device before they ask the dispatcher."""

    def standing_in(real: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, device: Any = None, **kwargs: Any) -> Any:
            asked = default_device() if device is None else _device(device)
            source = args[0] if args else None
            if isinstance(source, torch.Tensor) and real is not _tensor:
                return (
                    source.to(device=device, **kwargs)
                    if device is not None
                    else real(source, **kwargs)
                )
            if asked.type != "cuda":
                return (
                    real(*args, **kwargs)
                    if device is None
                    else real(*args, device=device, **kwargs)
                )
            grad = kwargs.pop("requires_grad", False)
            on_host = real(*args, device="cpu", **kwargs)
            if on_host.numel():
                _note(notes, COPY_OUT)
            with torch.no_grad():
                return moved(on_host, True).requires_grad_(grad)

        return made

    _tensor = torch.tensor
    for name in ("tensor", "as_tensor", "asarray"):
        yield torch, name, standing_in(getattr(torch, name))
    for name in ("sparse_coo_tensor", "sparse_csr_tensor", "sparse_compressed_tensor"):
        yield torch, name, standing_in(getattr(torch, name))


def default_device() -> Any:
    """The device of what is made without naming one; torch's own answer makes a tensor to find out."""
    for mode in torch.overrides._get_current_function_mode_stack():
        if isinstance(mode, DeviceContext):
            return mode.device
    return torch.device("cpu")


class _Generator(torch.Generator):  # type: ignore[misc]  # as above
    """Draws for the ghost: the CPU's numbers."""

    def __new__(cls, device: Any = "cpu") -> Any:
        made = super().__new__(cls, "cpu")
        made.is_of = _device(device)
        return made

    @property
    def device(self) -> Any:
        return self.is_of if self.is_of.type != "cuda" else DEVICE


# -- the device --------------------------------------------------------------------------------------


class _Stream:
    """All streams are one: the CPU's order."""

    device = DEVICE
    stream_id = 0
    cuda_stream = 0
    notes: Notes

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def synchronize(self) -> None:
        self.notes.note("Stream.synchronize", "the host waits for a stream", "DG431")

    def wait_stream(self, stream: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def record_event(self, event: Any = None) -> Any:
        return event or _Event()

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *raised: object) -> None:
        pass


class _Event:
    """A time on the CPU's clock."""

    notes: Notes

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.at = 0.0

    def record(self, stream: Any = None) -> None:
        self.at = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        self.notes.note("Event.synchronize", "the host waits for an event", "DG431")

    def elapsed_time(self, other: _Event) -> float:
        return 1000 * (other.at - self.at)


def _of_cuda(notes: Notes) -> Iterator[Name]:
    cuda, accelerator = torch.cuda, getattr(torch, "accelerator", None)  # since 2.6
    stream_type = type("Stream", (_Stream,), {"notes": notes})
    event_type = type("Event", (_Event,), {"notes": notes})
    stream = stream_type()

    def synchronize(device: Any = None) -> None:
        notes.note("synchronize", "the host waits for the whole device", "DG431")

    @contextmanager
    def on(device: Any = None) -> Iterator[None]:
        yield

    def always(value: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: value

    yield cuda, "_lazy_init", always(None)
    yield cuda, "init", always(None)
    yield cuda, "is_initialized", always(True)
    for owner in filter(None, (cuda, accelerator)):
        yield owner, "is_available", always(True)
        yield owner, "device_count", always(1)
        yield owner, "synchronize", synchronize
        yield owner, "current_stream", always(stream)
        yield owner, "set_stream", always(None)
        yield owner, "empty_cache", always(None)
        for name in (
            "memory_allocated",
            "max_memory_allocated",
            "memory_reserved",
            "max_memory_reserved",
        ):
            yield owner, name, always(0)
        yield owner, "reset_peak_memory_stats", always(None)
    if accelerator is not None:
        yield accelerator, "current_accelerator", always(torch.device("cuda"))
        yield accelerator, "current_device_index", always(0)
        yield accelerator, "set_device_index", always(None)
    yield cuda, "current_device", always(0)
    yield cuda, "set_device", always(None)
    yield cuda, "device", on
    yield cuda, "device_of", on
    # A torch built for CUDA has it, and would lay the weights of recurrent layers out on a real GPU.
    yield torch.backends.cudnn, "is_acceptable", always(False)
    yield cuda, "default_stream", always(stream)
    yield cuda, "stream", lambda given=None: nullcontext(given)
    yield cuda, "Stream", stream_type
    yield cuda, "Event", event_type
    yield torch, "Stream", stream_type
    yield torch, "Event", event_type
    yield torch, "Generator", _Generator
    yield cuda, "get_device_name", always("ghost")
    yield cuda, "get_device_capability", always((8, 0))
    yield cuda, "is_bf16_supported", always(True)
    yield cuda, "mem_get_info", always((0, 0))
    yield cuda, "memory_stats", always({})
    yield cuda, "manual_seed", always(None)
    yield cuda, "manual_seed_all", always(None)
    yield cuda, "get_rng_state", lambda device=None: torch.get_rng_state()
    yield cuda, "set_rng_state", always(None)
    yield cuda, "get_rng_state_all", lambda: [torch.get_rng_state()]
    yield cuda, "set_rng_state_all", always(None)
    yield cuda, "is_current_stream_capturing", always(False)
    mode = [0]
    yield cuda, "get_sync_debug_mode", lambda: mode[0]
    yield (
        cuda,
        "set_sync_debug_mode",
        lambda wanted: mode.__setitem__(0, _LEVELS.get(wanted, 0)),
    )


_LEVELS: dict[Any, int] = {"default": 0, "warn": 1, "error": 2, 1: 1, 2: 2}


def _of_amp() -> Iterator[Name]:
    """Autocast for the ghost is the CPU's, with the types of a GPU."""
    autocast = torch.amp.autocast_mode.autocast
    real_init = autocast.__init__
    real_enabled, real_dtype = torch.is_autocast_enabled, torch.get_autocast_dtype

    def init(
        self: Any,
        device_type: str,
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: Any = None,
    ) -> None:
        if device_type == "cuda":
            device_type = "cpu"
            dtype = dtype or real_dtype("cuda")
        real_init(self, device_type, dtype, enabled, cache_enabled)

    yield autocast, "__init__", init
    yield (
        torch,
        "is_autocast_enabled",
        lambda kind="cuda": real_enabled("cpu" if kind == "cuda" else kind),
    )


def _unsupported() -> Iterator[Name]:
    """What looks below what stands in here: exporting would end the process, TorchScript is another language,
    and a compiler would trace what stands in; what is to be compiled runs as it is written."""

    def compiled(model: Any = None, **kwargs: Any) -> Any:
        return (lambda function: function) if model is None else model

    yield torch, "compile", compiled

    real_script = torch.jit.script

    def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
        code = getattr(obj, "__code__", None)
        # Torch scripts functions of its own, and needs what comes of it.
        return real_script(obj, *args, **kwargs) if code and is_foreign(code) else obj

    yield torch.jit, "script", script

    def export(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("torch.export does not work under the ghost: export outside of it")

    yield torch.export, "export", export


# -- memory and files --------------------------------------------------------------------------------


def _of_storages() -> Iterator[Name]:
    real_clone = _StorageBase.clone

    def clone(self: Any) -> Any:
        copy = real_clone(self)
        if is_ghost_storage(self):
            mark_storage(copy)
        return copy

    def tag(storage: Any) -> str | None:
        return "cuda:0" if is_ghost_storage(storage) else None

    def put(storage: Any, location: str) -> Any:
        if not location.startswith("cuda"):
            return None
        mark_storage(storage)
        return storage

    registry = torch.serialization._package_registry
    yield _StorageBase, "clone", clone
    yield torch.serialization, "_package_registry", [(0, tag, put), *registry]
