"""Every private name of torch that is used is there, and does what it is used for."""

from __future__ import annotations

from importlib import import_module

import pytest

from pytest_dispatchguard.runtime import torch_private

torch = pytest.importorskip("torch", reason="holds names of torch")


@pytest.fixture
def lazy() -> str:
    missing = torch_private.lazy_backend_started()
    if missing:
        pytest.skip(missing)
    return "lazy"


@pytest.mark.parametrize(
    "name",
    [
        "torch._lazy:mark_step",
        "torch._lazy.ts_backend:init",
        "torch._lazy.metrics:counter_names",
        "torch._lazy.metrics:counter_value",
    ],
)
def test_the_name_of_the_lazy_backend_is_there(name: str) -> None:
    module, _, attribute = name.partition(":")
    assert hasattr(import_module(module), attribute), f"this torch has no {name} any more"


def test_the_lazy_backend_may_be_asked_for_again(lazy: str) -> None:
    assert torch_private.lazy_backend_started() == ""
    assert torch.ones(2, device=lazy).device.type == "lazy"


def test_why_there_is_no_lazy_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise RuntimeError("not built for this\nmore of it")

    def absent(*args: object, **kwargs: object) -> None:
        raise NotImplementedError("no such backend")

    from torch._lazy import ts_backend

    monkeypatch.setattr(torch, "empty", absent)
    monkeypatch.setattr(ts_backend, "init", refused)
    said = torch_private.lazy_backend_started()
    assert said == "torch's lazy backend does not start: not built for this"


def test_a_trace_is_executed(lazy: str) -> None:
    x = torch.ones(2, device=lazy)
    torch_private.lazy_trace_executed()
    for _ in range(3):
        x.add_(1)
    assert pending(x) == 3
    torch_private.lazy_trace_executed()
    assert pending(x) == 0
    assert x.tolist() == [4, 4]


def pending(tensor: object) -> int:
    """How many additions a lazy tensor stands for."""
    text: str = torch._C._lazy._get_tensors_text([tensor])
    return text.count("aten::add")


def test_lazy_operations_are_counted_traced_or_not(lazy: str) -> None:
    x = torch.ones(2, 2, device=lazy)
    before = torch_private.lazy_operations()
    torch.relu(x + x)
    assert torch_private.lazy_operations() - before == 2
    torch.lgamma(x)  # runs at once, between a copy to the CPU and one back
    assert torch_private.lazy_operations() - before == 2 + 3
