"""A mode that sees every operation, and what torch puts around it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the modes are torch's")

from pytest_dispatchguard.runtime.hooks.dispatch_mode import DispatchMode  # noqa: E402 - needs torch
from pytest_dispatchguard.runtime.torch_private import dispatcher  # noqa: E402 - torch first


class Names(DispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        self.seen.append(func.__name__)
        return func(*args, **kwargs)


def test_it_imports_nothing() -> None:
    code = """
import sys, torch
before = set(sys.modules)
from pytest_dispatchguard import ghost
from pytest_dispatchguard.runtime.counters.torch_calls import dispatched
assert dispatched(lambda: torch.ones(2) + 1).operations == 2
with ghost("cuda"):
    assert torch.ones(2, device="cuda").sum().item() == 2
print("torch._dynamo" in set(sys.modules) - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "False\n", done.stderr


def test_torch_compile_leaves_it_alone() -> None:
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()

    @torch.compile(backend=counter)  # type: ignore[untyped-decorator]  # of torch
    def subject(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    x = torch.ones(2)
    subject(x)
    compiled = counter.frame_count
    with Names() as mode:
        subject(x)
    again = dispatcher.modes_are_guarded()  # by older releases: compiled once more, and run as such
    assert counter.frame_count == compiled * (2 if again else 1) == (4 if again else 2)
    assert mode.seen == ["add.Tensor", "mul.Tensor"]
    with Names() as another:
        x + 1
    assert type(another) is type(mode) is not Names
    assert isinstance(another, Names)
