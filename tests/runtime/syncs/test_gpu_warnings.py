"""Waits for a GPU that is there: told by torch's warnings, here by what warns as torch does."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the warnings are torch's")

from pytest_dispatchguard import allow_sync  # noqa: E402 - needs torch
from pytest_dispatchguard.runtime.syncs import gpu_warnings  # noqa: E402 - needs torch

DEVICE = """
import warnings

MODE = [0]
IN_USE = True
LATER = []

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
    def bincount(self): waits(); waits()
    def __getattr__(self, name):
        if name == "sum":
            return lambda: self
        return lambda *args, **kwargs: waits()
"""
"""Of no file, as torch's own code is none of the user's."""


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    found: dict[str, Any] = {}
    exec(compile(DEVICE, "<device>", "exec"), found)
    mode = found["MODE"]
    number = {"default": 0, "warn": 1, "error": 2}
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: found["IN_USE"])
    monkeypatch.setattr(torch.cuda, "_lazy_call", found["LATER"].append)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: mode[0])

    def put(wanted: Any) -> None:
        warnings.warn("Synchronization debug mode is a prototype feature", stacklevel=1)
        mode[0] = number.get(wanted, wanted)

    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", put)
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
    ("if x.sum():\n        pass", "truth", "DG401"),
    ("while 1 and x.sum():\n        break", "truth", "DG401"),
    ("assert x", "truth", "DG401"),
    ("return x[x > 0]", "mask read", "DG422"),
    ("x[x > 0] = 1", "mask write", "DG423"),
    ("y = x.nonzero()", "nonzero", "DG421"),
    ("return x.tolist()", "tolist", "DG413"),
    ("y = x.cpu()", "copy to the host", "DG414"),
    ("float(x)", "float", "DG412"),
    ("x.synchronize()", "synchronize", "DG431"),
    ("x.histc()", "histc", "DG411"),
    ('x.to("cuda")', "copy to the device", "DG510"),
    ('x.to(device="cpu")', "copy to the host", "DG414"),
    ("x.copy_(x)", "copy to the device", "DG510"),
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
    with gpu_warnings.recording() as seen:
        function(device["Tensor"]())
    ((sync, times),) = seen.times.items()
    assert (sync.operation, sync.code, times) == (operation, rule, 1)
    assert sync.place is not None
    assert (Path(sync.place.path).name, sync.place.line) == ("user.py", 2)


@pytest.mark.parametrize(
    ("file", "function"), [("_tensor_str.py", "_str"), ("nn/modules/module.py", "_apply")]
)
def test_a_text_and_a_move_wait_once(
    device: dict[str, Any], code: Any, file: str, function: str
) -> None:
    def of_torch(body: str) -> Any:
        source = f"def {function}(x):\n    {body}\n"
        exec(compile(source, str(Path(torch.__file__).parent / file), "exec"), space)
        return space[function]

    space: dict[str, Any] = {}
    part = of_torch("float(x); float(x)")
    space["part"] = part
    x, whole = device["Tensor"](), of_torch("part(x); part(x)")
    x.shown = lambda: whole(x)
    function = code("for _ in range(3):\n        x.shown()")
    with gpu_warnings.recording() as seen:
        function(x)
    assert seen.total == 3


def test_an_operation_that_waits_twice_within_is_told_once(
    device: dict[str, Any], code: Any
) -> None:
    function = code("for _ in range(3):\n        x.bincount()")
    with gpu_warnings.recording() as seen:
        function(device["Tensor"]())
    assert [(s.operation, times) for s, times in seen.times.items()] == [("bincount", 3)]


def test_an_expression_over_several_lines(device: dict[str, Any], code: Any) -> None:
    function = code("y = max(\n        1,\n        x.sum(\n        ).item() or 1,\n    )")
    with gpu_warnings.recording() as seen:
        function(device["Tensor"]())
    ((sync, _),) = seen.times.items()
    if sys.version_info >= (3, 11):
        assert (sync.operation, sync.place and sync.place.line) == ("item", 5)


def test_waits_that_are_meant_and_other_warnings(
    device: dict[str, Any], code: Any, recwarn: pytest.WarningsRecorder
) -> None:
    function = code("y = x.item()")
    with gpu_warnings.recording() as seen:
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
    with pytest.raises(ZeroDivisionError), gpu_warnings.recording():
        torch.cuda.set_sync_debug_mode("default")  # a test that leaves another mode behind
        raise ZeroDivisionError
    assert device["MODE"] == [2]
    assert module._showwarnmsg is show and warnings.filters == filters
    with gpu_warnings.recording() as seen:
        assert device["MODE"] == [1]
        thread = threading.Thread(target=code("y = x.item()"), args=(device["Tensor"](),))
        thread.start()
        thread.join()
    assert seen.total == 1


@pytest.mark.filterwarnings("error")
def test_what_torch_warns_of_besides_is_no_error(device: dict[str, Any], code: Any) -> None:
    function = code("y = x.item()")
    with gpu_warnings.recording() as seen:
        function(device["Tensor"]())
    assert seen.total == 1


def test_a_gpu_that_nobody_uses_is_left_alone(device: dict[str, Any], code: Any) -> None:
    device["IN_USE"] = False
    with gpu_warnings.recording() as seen:
        assert device["MODE"] == [0]
        (begin,) = device["LATER"]
        begin()  # as torch does when the GPU is used first
        device["IN_USE"] = True
        code("y = x.item()")(device["Tensor"]())
    assert seen.total == 1 and device["MODE"] == [0]
    device["IN_USE"] = False
    with gpu_warnings.recording():
        pass
    device["LATER"][-1]()  # too late: nobody watches any more
    assert device["MODE"] == [0]


def test_threads_that_allow_at_once(device: dict[str, Any]) -> None:
    first, second = threading.Event(), threading.Event()

    def allows() -> None:
        with allow_sync("in a thread"):
            first.set()
            second.wait()

    with gpu_warnings.recording():
        thread = threading.Thread(target=allows)
        thread.start()
        first.wait()
        with allow_sync("here"):
            second.set()
            thread.join()
            assert device["MODE"] == [0]
        assert device["MODE"] == [1]
    assert device["MODE"] == [0]


def test_torch_may_be_imported_later() -> None:
    program = """
import sys
from pytest_dispatchguard.runtime.syncs import gpu_warnings
with gpu_warnings.recording() as seen:
    assert "torch" not in sys.modules
    import torch
    queued = [call for call, _ in torch.cuda._queued_calls if "torch_mode" in call.__module__]
print(len(queued), seen.total)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "1 0\n", done.stderr


def test_where_torch_knows_no_gpu_there_is_nothing_to_see() -> None:
    if not torch.backends.cuda.is_built():
        assert not gpu_warnings.may_be_seen()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("body", "operation", "rule"), [case for case in CASES[:12] if case[0] != "x[x > 0] = 1"]
)
def test_a_real_gpu(code: Any, body: str, operation: str, rule: str) -> None:
    """A number written through a mask is not among them: a GPU goes on."""
    assert gpu_warnings.may_be_seen()
    function = code(body)
    x = torch.ones(3 if "x > 0]" in body else (), device="cuda")
    with gpu_warnings.recording() as seen:
        function(x)
    assert [(s.operation, s.code) for s in seen.times] == [(operation, rule)]


@pytest.mark.gpu
@pytest.mark.parametrize(
    "body",
    [
        "str(x)",
        "x.bincount()",
        "x.repeat_interleave(x)",
        "x.float().histc()",
        "torch.nn.Linear(2, 2).cuda()",
    ],
)
def test_what_waits_often_within_is_one_wait_of_a_real_gpu(code: Any, body: str) -> None:
    function = code(f"import torch\n    for _ in range(3):\n        {body}")
    x = torch.arange(3, device="cuda")
    function(x)
    with gpu_warnings.recording() as seen:
        function(x)
    assert seen.total == 3
