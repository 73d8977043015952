"""Work that grows no faster than the code it is about: counted, not timed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SWEEPS = Path(__file__).parents[2] / "bench" / "attacks" / "size_sweeps.py"


@pytest.fixture(scope="module")
def sweeps() -> ModuleType:
    if not SWEEPS.exists():
        pytest.skip("the benchmarks are not here")
    spec = importlib.util.spec_from_file_location("size_sweeps", SWEEPS)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["size_sweeps"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("case", "most"),
    [
        ("tensor parameters", 1.15),
        ("conjunction", 1.15),
        ("list", 1.15),
        ("sum", 1.15),
        ("calls", 1.25),
        ("subscripts", 1.25),
        ("attributes", 1.25),
        ("signs", 1.25),
        ("ternaries", 1.25),
        ("statements", 1.15),
        ("branches", 1.25),
        ("aliases", 1.15),
    ],
)
def test_twice_the_code_is_twice_the_work(sweeps: ModuleType, case: str, most: float) -> None:
    one = sweeps.sweep(case, (30, 60, 120, 240), times=1)
    assert one.call_exponent < most, one
    assert one.problems == ()
