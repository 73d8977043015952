"""The forms of specimens, and their inputs on a device."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from pytest_dispatchguard.runtime.syncs import gpu_warnings, syncs


def loaded(specimen: str) -> ModuleType:
    """The module of a specimen: `bad`, `good` and `inputs`."""
    path = Path(specimen)
    name = f"dispatchguard_specimen_{path.parent.name}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def waits(form: Callable[..., Any], module: ModuleType, device: torch.device) -> int:
    """How often a call of a form waits for the device: the real one, or the ghost."""
    call, given = moved(form, device), moved(module.inputs(), device)
    call(*given)  # one-time setup
    given = moved(module.inputs(), device)
    watch = syncs.recording if syncs.is_there() else gpu_warnings.recording
    with watch() as seen:
        call(*given)
    return seen.total


def moved(value: Any, device: torch.device) -> Any:
    """A value of a specimen, moved to a device."""
    if isinstance(value, torch.Tensor | torch.nn.Module):
        return value.to(device)
    if isinstance(value, dict):
        return {key: moved(inner, device) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(moved(inner, device) for inner in value)
    return value
