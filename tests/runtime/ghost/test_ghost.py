"""The ghost: code for `cuda` does what it does on a GPU, and leaves nothing behind."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the ghost stands in for torch's device")

from pytest_dispatchguard.model.errors import UserError  # noqa: E402 - needs torch, which may be missing
from pytest_dispatchguard.runtime.ghost.ghost import ghost  # noqa: E402 - needs torch, which may be missing
from pytest_dispatchguard.runtime.ghost.torch_names import names  # noqa: E402 - needs torch, which may be missing
from pytest_dispatchguard.runtime.syncs.syncs import Recorder, allow_sync  # noqa: E402 - needs torch, which may be missing

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real GPU here")
F = torch.nn.functional
HOST, GHOST = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture
def seen() -> Iterator[Recorder]:
    with ghost() as recorder:
        yield recorder


def ways() -> dict[str, Callable[[], Any]]:
    x, host = torch.ones(2, 3, device="cuda"), torch.ones(2, 3)
    layer = torch.nn.Linear(3, 2, device="cuda")
    return {
        "cuda": lambda: host.cuda(),
        "to a name": lambda: host.to("cuda"),
        "to an index": lambda: host.to(0),
        "to a device and a type": lambda: host.to(GHOST, torch.float16),
        "to keywords": lambda: host.to(device="cuda", dtype=torch.float64, non_blocking=True),
        "to another's": lambda: host.to(x),
        "type": lambda: host.type("torch.cuda.DoubleTensor"),
        "zeros": lambda: torch.zeros(2, device="cuda:0"),
        "randn": lambda: torch.randn(2, device="cuda"),
        "tensor": lambda: torch.tensor([1, 2], device="cuda"),
        "as_tensor": lambda: torch.as_tensor(host, device="cuda"),
        "new": lambda: x.new_zeros(3),
        "new of data": lambda: x.new_tensor([1, 2]),
        "legacy new": lambda: x.new(3),
        "like": lambda: torch.rand_like(host, device="cuda"),
        "view": lambda: x.t()[1:].flatten(),
        "arithmetic": lambda: x * 2 + torch.tensor(1.0),
        "in place": lambda: x.clone().add_(1),
        "several": lambda: torch.cat([x, x]).split(2)[1],
        "detached": lambda: layer.weight.detach().data,
        "parameter": lambda: torch.nn.Parameter(x),
        "layer": lambda: layer(x),
        "moved layer": lambda: torch.nn.Linear(3, 2).cuda().weight,
        "buffer": lambda: torch.nn.BatchNorm1d(3).to("cuda").running_mean,
        "convolution": lambda: torch.nn.Conv1d(2, 1, 1).cuda()(x),
        "attention": lambda: torch.nn.MultiheadAttention(3, 1, device="cuda")(x, x, x)[0],
        "recurrent": lambda: torch.nn.LSTM(3, 2).cuda()(x)[0],
        "one hot": lambda: F.one_hot(torch.arange(3, device="cuda"), 4),
        "loss": lambda: F.cross_entropy(x, torch.zeros(2, dtype=torch.long, device="cuda")),
        "sparse": lambda: torch.eye(3, device="cuda").to_sparse(),
        "deep copy": lambda: copy.deepcopy(layer).weight,
        "pickled": lambda: pickle.loads(pickle.dumps(x)),
        "loaded": lambda: loaded(layer.state_dict())["weight"],
        "loaded there": lambda: loaded({"x": host}, map_location="cuda")["x"],
        "generator": lambda: torch.randn(2, generator=torch.Generator("cuda"), device="cuda"),
        "vmap": lambda: torch.func.vmap(lambda a: a + torch.ones(3, device=a.device))(x),
        "grad": lambda: torch.func.grad(lambda a: layer(a).sum())(x),
        "jvp": lambda: torch.func.jvp(torch.sin, (x,), (x,))[1],
    }


def loaded(value: Any, **kwargs: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **kwargs)


with ghost():
    WAYS = list(ways())


@pytest.mark.parametrize("way", WAYS)
def test_it_is_on_the_ghost(seen: Recorder, way: str) -> None:
    tensor = ways()[way]()
    assert tensor.device == GHOST and tensor.is_cuda and not tensor.is_cpu
    assert tensor.get_device() == 0 and type(tensor) in (torch.Tensor, torch.nn.Parameter)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: torch.zeros(2),
        lambda x: x.cpu(),
        lambda x: x.to("cpu"),
        lambda x: x.to(torch.ones(1)),
        lambda x: torch.ones(2, 3).copy_(x),
        lambda x: torch.zeros_like(x, device="cpu"),
        lambda x: x.new_zeros(3, device="cpu"),
        lambda x: torch.tensor(x.tolist()),
        lambda x: loaded({"x": x}, map_location="cpu")["x"],
        lambda x: torch.ones(2)[:1] + torch.tensor(1),
    ],
)
def test_it_is_on_the_host(seen: Recorder, make: Callable[[Any], Any]) -> None:
    tensor = make(torch.ones(2, 3, device="cuda"))
    assert tensor.device == HOST and tensor.is_cpu and not tensor.is_cuda
    assert tensor.get_device() == -1


def test_gradients_cross_with_their_tensors(seen: Recorder) -> None:
    there = torch.ones(3, device="cuda", requires_grad=True)
    here = torch.ones(3, requires_grad=True)
    ((here.cuda() * there).cpu() * 2).sum().backward()
    assert here.grad is not None and here.grad.device == HOST
    assert there.grad is not None and there.grad.device == GHOST
    assert here.grad.tolist() == there.grad.tolist() == [2, 2, 2]


def test_a_layer_learns_as_on_the_host() -> None:
    def train(device: str, optimizer: type[Any], **kwargs: Any) -> tuple[list[float], str]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.GELU(), torch.nn.Linear(8, 2)
        ).to(device)
        x, y = torch.randn(16, 4).to(device), torch.randint(0, 2, (16,)).to(device)
        steps = optimizer(model.parameters(), lr=0.1, **kwargs)
        losses = []
        for _ in range(5):
            loss = F.cross_entropy(model(x), y)
            steps.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            steps.step()
            losses.append(loss.item())
        return losses, str(next(model.parameters()).device)

    for kind, kwargs in (
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.AdamW, {}),
        (torch.optim.AdamW, {"foreach": True}),
        (torch.optim.Adam, {"fused": True}),
    ):
        expected, _ = train("cpu", kind, **kwargs)
        with ghost():
            found, device = train("cuda", kind, **kwargs)
        assert found == pytest.approx(expected, rel=1e-5) and device == "cuda:0"


def test_mixed_precision(seen: Recorder) -> None:
    layer = torch.nn.Linear(3, 2, device="cuda")
    steps = torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", init_scale=128)
    with torch.autocast("cuda"):
        assert torch.is_autocast_enabled("cuda")
        out = layer(torch.ones(1, 3, device="cuda"))
        assert out.dtype == torch.float16 and out.device == GHOST
    before = layer.weight.detach().cpu()
    scaler.scale(out.float().sum()).backward()
    scaler.step(steps)
    scaler.update()
    assert not torch.equal(layer.weight.detach().cpu(), before)


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_backward_calls_back(seen: Recorder, reentrant: bool) -> None:
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * torch.full((3,), 2.0, device="cuda")

    def block(x: Any) -> Any:
        return (Own.apply(x) + torch.zeros(3, device=x.device)).sin()

    x = torch.ones(3, device="cuda", requires_grad=True)
    torch.utils.checkpoint.checkpoint(block, x, use_reentrant=reentrant).sum().backward()
    assert x.grad is not None and x.grad.device == GHOST


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda x, host: x + host, "at least two devices, cuda:0 and cpu"),
        (lambda x, host: torch.nn.functional.linear(x, host), "at least two devices"),
        (lambda x, host: torch.cat([x, host]), "at least two devices"),
        (lambda x, host: host[torch.tensor([0], device="cuda")], "indices should be either on cpu"),
        (lambda x, host: x.numpy(), "can't convert cuda:0 device type tensor to numpy"),
        (lambda x, host: memoryview(x.__array__()), "can't convert cuda:0"),
        (lambda x, host: x.pin_memory(), "cannot pin"),
        (lambda x, host: torch.zeros(1, device="cuda", pin_memory=True), "cannot pin"),
        (lambda x, host: torch.tensor([1], device="cuda", pin_memory=True), "cannot pin"),
        (lambda x, host: torch.zeros(1).to("cuda:1"), "invalid device ordinal"),
    ],
)
def test_what_fails_on_a_gpu_fails_here(
    seen: Recorder, wrong: Callable[[Any, Any], Any], error: str
) -> None:
    with pytest.raises((RuntimeError, TypeError), match=error):
        wrong(torch.ones(2, 2, device="cuda"), torch.ones(2, 2))


def test_the_device_answers(seen: Recorder) -> None:
    cuda = torch.cuda
    assert cuda.is_available() and cuda.device_count() == 1 and cuda.current_device() == 0
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    with cuda.stream(cuda.Stream()), cuda.device(0):
        start.record()
        end.record()
    assert start.elapsed_time(end) >= 0 and cuda.memory_allocated() == 0
    assert "cuda:0" in repr(torch.ones(1, device="cuda"))
    with torch.device("cuda"):
        assert torch.zeros(1).device == torch.tensor([1]).device == GHOST
    torch.set_default_device("cuda")
    assert torch.zeros(1).device == torch.tensor([1]).device == GHOST


def everything() -> list[tuple[Any, str, Any]]:
    return [(owner, name, vars(owner).get(name, "missing")) for owner, name, _ in names()]


def test_nothing_is_left_behind() -> None:
    before = everything()
    modes = torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()
    run = threading.Thread.run

    def same() -> bool:
        now = everything()
        return all(old is new for (_, _, old), (_, _, new) in zip(before, now, strict=True))

    with ghost():
        torch.set_default_device("cuda")
        assert not same()
        with ghost() as inner:
            torch.ones(1, device="cuda").item()
        assert inner.total == 1
        assert torch.ones(1, device="cuda").is_cuda, "the outer one goes on"
    assert same() and torch.get_default_device() == HOST and threading.Thread.run is run
    with pytest.raises(ZeroDivisionError), ghost():
        raise ZeroDivisionError
    assert same()
    assert modes == (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack())
    with pytest.raises((AssertionError, RuntimeError)):
        torch.ones(1, device="cuda")


def test_threads_see_it_too(seen: Recorder) -> None:
    found: list[Any] = []

    def work() -> None:
        x = torch.ones(2, device="cuda")
        found.append((x.device, x.sum().item()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(GHOST, 2.0)] and seen.total == 1


def test_waits_that_are_meant(seen: Recorder) -> None:
    x = torch.ones(2, device="cuda")
    with allow_sync("the loss is logged once per epoch"):
        x.tolist()
    assert seen.total == 0
    with pytest.raises(ValueError, match="needs a reason"), allow_sync(" "):
        pass


def test_the_line_is_told(seen: Recorder) -> None:
    def helper(x: Any) -> bool:
        return bool(F.relu(x).any())

    helper(torch.ones(2, device="cuda"))
    ((sync, times),) = seen.times.items()
    assert times == 1 and sync.operation == "truth" and sync.place is not None
    assert sync.place.path == __file__
    assert sync.place.line == helper.__code__.co_firstlineno + 1
    assert sync.place.function.endswith("helper")
    assert sync.frames[1].line == helper.__code__.co_firstlineno + 3


def test_other_devices_have_no_ghost() -> None:
    with pytest.raises(UserError, match='ghost of "cuda" alone'), ghost("xpu"):
        pass


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(seen: Recorder, mode: Any) -> None:
    """In inference mode operations come whole, not in their parts."""
    with mode():
        x = F.linear(torch.ones(2, 3, device="cuda"), torch.ones(4, 3, device="cuda"))
        assert F.scaled_dot_product_attention(x, x, x).is_cuda
        assert seen.total == 0
        assert x.max().item() == 3 and seen.total == 1


def test_clipping_waits_for_nothing(seen: Recorder) -> None:
    layer = torch.nn.Linear(3, 2, device="cuda")
    layer(torch.ones(1, 3, device="cuda")).sum().backward()
    torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    assert seen.total == 0


def test_a_module_that_moves_is_one_wait(seen: Recorder) -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    layers.to("cuda")
    assert seen.total == 1
    layers.to("cuda")
    assert seen.total == 1
    layers.cpu()
    assert seen.total == 2


def test_compiled_functions_run_as_they_are_written(seen: Recorder) -> None:
    x = torch.ones(3, device="cuda")
    y = torch.compile(lambda x: torch.sin(x) + torch.zeros(3, device=x.device))(x)
    assert y.device == GHOST and seen.total == 0


def test_what_is_not_supported_is_told(seen: Recorder) -> None:
    with pytest.raises(RuntimeError, match=r"torch\.export does not work under the ghost"):
        torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))


class Dispatching(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]  # torch is not read when types are checked
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Calling(torch.overrides.TorchFunctionMode):  # type: ignore[misc]  # torch is not read when types are checked
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def by_hand() -> None:
    x = torch.ones(3, device="cuda") + torch.tensor([1.0, 2.0, 3.0], device="cuda")
    assert x.device == GHOST and x.sum().item() == 9


def test_other_modes_outside() -> None:
    with Dispatching(), Calling(), ghost() as seen:
        by_hand()
    assert seen.total == 2


def test_other_modes_inside() -> None:
    with ghost() as seen, Dispatching(), Calling():
        by_hand()
    assert seen.total == 2


def test_a_method_that_others_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.Tensor.item
    monkeypatch.setattr(torch.Tensor, "item", lambda self: real(self))
    with ghost() as seen:
        assert torch.ones((), device="cuda").item() == 1
    assert seen.total == 1 and torch.Tensor.item is not real


TENSOR = torch.tensor


def test_functions_that_were_taken_before(seen: Recorder) -> None:
    """As by `from torch import tensor`."""
    assert TENSOR([1, 2], device="cuda").device == GHOST and seen.total == 1
    assert TENSOR([1, 2]).device == HOST


def test_functions_that_are_kept_are_the_real_ones_afterwards() -> None:
    with ghost():
        available, tensor = torch.cuda.is_available, torch.tensor
        assert available()
    assert not available() and tensor([1]).device == HOST


def test_a_default_device_leaves_no_layer_behind() -> None:
    def modes() -> list[type]:
        return [type(mode) for mode in torch.overrides._get_current_function_mode_stack()]

    before = modes()
    with ghost():
        torch.set_default_device("cuda")
        assert torch.ones(1).is_cuda
    assert modes() == before
    assert not torch.ones(1).is_cuda
    torch.set_default_device("cpu")
    try:
        named = modes()
        with ghost():
            torch.set_default_device("cuda")
        assert modes() == named != before
    finally:
        torch.set_default_device(None)
    assert modes() == before


def test_what_is_to_be_scripted_runs_as_it_is_written() -> None:
    def scaled(x: torch.Tensor, by: float = 2.0) -> torch.Tensor:
        return x * torch.tensor(by, device=x.device)

    with ghost():
        assert torch.jit.script(scaled)(torch.ones(2, device="cuda")).tolist() == [2, 2]
        module = torch.nn.Linear(2, 2)
        assert torch.jit.script(module) is module
    assert torch.jit.script(scaled)(torch.ones(2)).tolist() == [2, 2]
