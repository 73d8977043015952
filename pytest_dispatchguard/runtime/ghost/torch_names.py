"""The names of torch that the ghost replaces: those of tensors and devices, and what makes, moves or saves
tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.storage import _StorageBase
from torch.utils._device import DeviceContext

from pytest_dispatchguard.runtime.code.foreign import is_foreign
from pytest_dispatchguard.runtime.ghost.copies import DEVICE, Name, device_of, moved
from pytest_dispatchguard.runtime.ghost.cuda_api import cuda_names
from pytest_dispatchguard.runtime.ghost.marks import is_ghost_storage, mark_storage, pin
from pytest_dispatchguard.runtime.ghost.sync_operations import COPY_OUT
from pytest_dispatchguard.runtime.ghost.tensor_methods import tensor_names
from pytest_dispatchguard.runtime.syncs.syncs import NOTES, as_one


def names() -> Iterator[Name]:
    """All names that are replaced."""
    yield from tensor_names()
    yield from _of_modules()
    yield from _factories()
    yield from cuda_names()
    yield torch, "Generator", _Generator
    yield from _of_amp()
    yield from _of_storages()
    yield from _unsupported()


def _of_modules() -> Iterator[Name]:
    """Records moving a module as one wait, not as one for each parameter."""
    real = torch.nn.Module._apply

    def apply(self: Any, *args: Any, **kwargs: Any) -> Any:
        with as_one():
            return real(self, *args, **kwargs)

    yield torch.nn.Module, "_apply", apply


def _factories() -> Iterator[Name]:
    """Functions that make tensors and look at the device before they call the dispatcher."""

    def standing_in(real: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, device: Any = None, **kwargs: Any) -> Any:
            asked = default_device() if device is None else device_of(device)
            source = args[0] if args else None
            if isinstance(source, torch.Tensor) and real is not _tensor:
                return (
                    source.to(device=device, **kwargs)
                    if device is not None
                    else real(source, **kwargs)
                )
            pinned = kwargs.pop("pin_memory", False)
            if asked.type != "cuda":
                where = {} if device is None else {"device": device}
                result = real(*args, **where, **kwargs)
            else:
                grad = kwargs.pop("requires_grad", False)
                on_host = real(*args, device="cpu", **kwargs)
                if on_host.numel():
                    NOTES.note(COPY_OUT.name, COPY_OUT.why, COPY_OUT.code)
                with torch.no_grad():
                    result = moved(on_host, True).requires_grad_(grad)
            if pinned:
                pin(result)  # fails on the ghost, as on a GPU
            return result

        return made

    _tensor = torch.tensor
    for name in ("tensor", "as_tensor", "asarray"):
        yield torch, name, standing_in(getattr(torch, name))
    for name in ("sparse_coo_tensor", "sparse_csr_tensor", "sparse_compressed_tensor"):
        yield torch, name, standing_in(getattr(torch, name))


def default_device() -> Any:
    """The default device; torch's own function makes a tensor to find out."""
    for mode in torch.overrides._get_current_function_mode_stack():
        if isinstance(mode, DeviceContext):
            return mode.device
    return torch.device("cpu")


class _Generator(torch.Generator):  # type: ignore[misc]  # as above
    """A generator for the ghost, with the CPU's random numbers."""

    def __new__(cls, device: Any = "cpu") -> Any:
        made = super().__new__(cls, "cpu")
        made.is_of = device_of(device)
        return made

    @property
    def device(self) -> Any:
        return self.is_of if self.is_of.type != "cuda" else DEVICE


def _of_amp() -> Iterator[Name]:
    """Autocast for the ghost: that of the CPU, with the dtypes of a GPU."""
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
    """What cannot work with replaced names: exporting would crash the process, TorchScript is another
    language, and a compiler would trace the replacements. Code to compile runs eagerly."""

    def compiled(model: Any = None, **kwargs: Any) -> Any:
        return (lambda function: function) if model is None else model

    yield torch, "compile", compiled

    real_script = torch.jit.script

    def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
        code = getattr(obj, "__code__", None)
        # torch scripts functions of its own, and needs the result.
        return real_script(obj, *args, **kwargs) if code and is_foreign(code) else obj

    yield torch.jit, "script", script

    def export(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("torch.export does not work under the ghost: export outside of it")

    yield torch.export, "export", export


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
