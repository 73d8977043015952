"""The tests that workers run to price specimens: the bad form of each is the subject, the good form the
reference. Run by `prices` alone."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pytest_dispatchguard.runtime.syncs import gpu_warnings, syncs

if TYPE_CHECKING:
    from pytest_dispatchguard.measure.timing.subject import Overhead

torch.set_num_threads(1)
SPECIMENS: list[str] = json.loads(os.environ["DISPATCHGUARD_SPECIMENS"])
each_specimen = pytest.mark.parametrize("specimen", SPECIMENS, ids=map(str, range(len(SPECIMENS))))


@each_specimen
def test_price(specimen: str, overhead: Overhead) -> None:
    """Times a call of both forms."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    module = _loaded(specimen)
    for form in (module.bad, module.good):
        form(*module.inputs())  # one-time setup in the first call
    bad = overhead(module.bad, *module.inputs())
    bad.against(module.good, *module.inputs()).named("bad").unchecked()


@each_specimen
def test_waits(
    specimen: str, ghost_cuda: torch.device, record_property: Callable[[str, object], None]
) -> None:
    """Counts the waits of a call of both forms."""
    warnings.simplefilter("ignore")
    module = _loaded(specimen)
    record_property(
        "waits", [_waits(getattr(module, n), module, ghost_cuda) for n in ("bad", "good")]
    )


def _waits(form: Callable[..., Any], module: ModuleType, device: torch.device) -> int:
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


def _loaded(specimen: str) -> ModuleType:
    path = Path(specimen)
    name = f"dispatchguard_specimen_{path.parent.name}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
