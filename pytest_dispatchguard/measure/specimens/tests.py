"""The tests that workers run to price specimens: the bad form of each is the subject, the good form the
reference. Run by `prices` alone."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch

from pytest_dispatchguard.measure.specimens.forms import loaded, waits

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
    module = loaded(specimen)
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
    module = loaded(specimen)
    record_property(
        "waits", [waits(getattr(module, n), module, ghost_cuda) for n in ("bad", "good")]
    )
