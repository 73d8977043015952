"""Waits for a GPU that is there: told by torch's warnings, here by what warns as torch does."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the warnings are torch's")

from pytest_dispatchguard import allow_sync  # noqa: E402 - needs torch
from pytest_dispatchguard.runtime import device_waits  # noqa: E402 - needs torch

DEVICE = """
import warnings

MODE = [0]

def waits():
    if MODE[0]:
        warnings.warn("called a synchronizing CUDA operation (Triggered internally at CUDAFunctions.cpp)")

class Tensor:
    def __bool__(self): waits(); return True
    def __getitem__(self, mask): waits(); return self
    def __setitem__(self, mask, value): waits()
    def __gt__(self, other): return self
    def __format__(self, spec): waits(); return ""
    def __float__(self): waits(); return 1.0
    def __getattr__(self, name):
        if name == "sum":
            return lambda: self
        return lambda *args: waits()
"""
"""Of no file, as torch's own code is none of the user's."""


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    found: dict[str, Any] = {}
    exec(compile(DEVICE, "<device>", "exec"), found)
    mode = found["MODE"]
    number = {"default": 0, "warn": 1, "error": 2}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: mode[0])
    monkeypatch.setattr(
        torch.cuda, "set_sync_debug_mode", lambda m: mode.__setitem__(0, number.get(m, m))
    )
    yield found


@pytest.fixture
def code(tmp_path: Path) -> Callable[[str], Callable[[Any], None]]:
    """A function of a file of the user's."""

    def made(body: str) -> Callable[[Any], None]:
        path = tmp_path / "user.py"
        path.write_text(f"def f(x):\n    {body}\n")
        space: dict[str, Any] = {}
        exec(compile(path.read_text(), str(path), "exec"), space)
        function: Callable[[Any], None] = space["f"]
        return function

    return made


CASES = [
    ("y = x.sum().item()", "item", "DG411"),
    ("if x:\n        pass", "truth", "DG401"),
    ("if x.sum() > 0:\n        pass", "truth", "DG401"),
    ("assert x", "truth", "DG401"),
    ("return x[x > 0]", "mask read", "DG422"),
    ("x[x > 0] = 1", "mask write", "DG423"),
    ("y = x.nonzero()", "nonzero", "DG421"),
    ("return x.tolist()", "tolist", "DG413"),
    ("y = x.cpu()", "copy to the host", "DG414"),
    ("float(x)", "float", "DG412"),
    ("x.synchronize()", "synchronize", "DG431"),
    ("x.histc()", "histc", "DG411"),
    pytest.param(
        'y = f"{x}"',
        "format",
        "DG415",
        marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="needs columns"),
    ),
]


@pytest.mark.parametrize(("body", "operation", "rule"), CASES)
def test_a_wait_is_told_by_its_line(
    device: dict[str, Any], code: Any, body: str, operation: str, rule: str
) -> None:
    function = code(body)
    with device_waits.recording() as seen:
        function(device["Tensor"]())
    ((sync, times),) = seen.times.items()
    assert (sync.operation, sync.code, times) == (operation, rule, 1)
    assert sync.place is not None
    assert (Path(sync.place.path).name, sync.place.line) == ("user.py", 2)


def test_an_expression_over_several_lines(device: dict[str, Any], code: Any) -> None:
    function = code("y = max(\n        1,\n        x.sum(\n        ).item() or 1,\n    )")
    with device_waits.recording() as seen:
        function(device["Tensor"]())
    ((sync, _),) = seen.times.items()
    if sys.version_info >= (3, 11):
        assert (sync.operation, sync.place and sync.place.line) == ("item", 5)


def test_waits_that_are_meant_and_other_warnings(
    device: dict[str, Any], code: Any, recwarn: pytest.WarningsRecorder
) -> None:
    function = code("y = x.item()")
    with device_waits.recording() as seen:
        with allow_sync("once"):
            function(device["Tensor"]())
            assert device["MODE"] == [0]
        assert device["MODE"] == [1]
        warnings.warn("something else", UserWarning, stacklevel=1)
        with pytest.warns(DeprecationWarning):
            warnings.warn("old", DeprecationWarning, stacklevel=1)
    assert not seen.times
    assert [str(w.message) for w in recwarn] == ["something else"]


def test_nothing_is_left_behind(device: dict[str, Any], code: Any) -> None:
    module: Any = warnings
    show, filters = module._showwarnmsg, list(warnings.filters)
    torch.cuda.set_sync_debug_mode("error")
    with pytest.raises(ZeroDivisionError), device_waits.recording():
        torch.cuda.set_sync_debug_mode("default")  # a test that leaves another mode behind
        raise ZeroDivisionError
    assert device["MODE"] == [2]
    assert module._showwarnmsg is show and warnings.filters == filters
    with device_waits.recording() as seen:
        assert device["MODE"] == [1]
        thread = threading.Thread(target=code("y = x.item()"), args=(device["Tensor"](),))
        thread.start()
        thread.join()
    assert seen.total == 1


def test_where_there_is_no_gpu_there_is_nothing_to_do() -> None:
    if not torch.cuda.is_available():
        assert not device_waits.is_at_hand()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no cuda device here")
def test_a_real_gpu(code: Any) -> None:
    assert device_waits.is_at_hand()
    for body, operation, rule in CASES[:8]:
        function = code(body)
        x = torch.ones((), device="cuda") if "x > 0]" not in body else torch.ones(3, device="cuda")
        with device_waits.recording() as seen:
            function(x)
        assert [(s.operation, s.code) for s in seen.times] == [(operation, rule)], body
